// The end of a run: one pass over the whole state feeds the hash, the state dump and the model
// file.
#pragma once

#include <array>
#include <string>

#include "executor/comm/communicator.h"
#include "planner/program/program.h"

namespace bayplan::exec {

struct SaveRequest {
  bool hash = false;
  std::string dump_path;   // all tensors, "" = none
  std::string model_path;  // weights under their plain names, "" = none
  std::int64_t step = 0;   // optimizer steps done

  bool wanted() const { return hash || !dump_path.empty() || !model_path.empty(); }
};

/// Collective. Returns the hash (rank 0, if asked for). Throws when a file cannot be written.
std::string save_state(const Program& program, const std::array<std::byte*, kTierCount>& arenas,
                       Communicator& communicator, const SaveRequest& request);

}  // namespace bayplan::exec
