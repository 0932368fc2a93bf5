// Words of the text form, one table an enumeration. Only text.cpp and parse_text.cpp read it.
#pragma once

#include <array>
#include <string_view>

#include "planner/program/instruction.h"
#include "planner/program/unit_layout.h"

namespace bayplan::text {

/// In the order of InstructionKind.
inline constexpr std::array<std::string_view, kInstructionKindCount> kInstructionWords = {
    "init",
    "load",
    "F",
    "B",
    "I",
    "W",
    "R",
    "send_act",
    "recv_act",
    "send_grad",
    "recv_grad",
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "prefetch",
    "offload",
    "release",
    "norm",
    "optimizer_step",
    "end_step",
    "accumulate"};

/// In the order of Region; kNone is not written.
inline constexpr std::array<std::string_view, 13> kRegionWords = {"none",
                                                                  "external",
                                                                  "boundary_input",
                                                                  "boundary_output",
                                                                  "saved_for_input",
                                                                  "saved_for_weight",
                                                                  "scratch",
                                                                  "loss",
                                                                  "boundary_output_gradient",
                                                                  "boundary_input_gradient",
                                                                  "gradient_stash",
                                                                  "recomputed_for_input",
                                                                  "recomputed_for_weight"};

/// In the order of AccessMode.
inline constexpr std::array<std::string_view, 3> kModeWords = {"reads", "writes", "updates"};

constexpr int kPurposeCount = 8;

}  // namespace bayplan::text
