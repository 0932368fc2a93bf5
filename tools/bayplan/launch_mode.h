// How this process was started: alone, or as one of several by mpirun, torchrun or SLURM.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "planner/core/result.h"

namespace bayplan::cli {

enum class LaunchMode : std::uint8_t { kLocal, kMpi };

/// `text` is --launch: auto, local or mpi. auto follows the variables of the launcher: those of
/// Open MPI, PMI and PMIx mean mpi; RANK/WORLD_SIZE, or SLURM_PROCID without PMI, mean a
/// rendezvous that CPU devices do not have, an error that says what to use; else local.
Result<LaunchMode> launch_mode(std::string_view text);

/// Processes that the MPI launcher started, if it says so.
std::optional<int> mpi_world_size();

/// False for all but the first of the processes of one MPI run: they print no results.
bool is_speaking_process();

}  // namespace bayplan::cli
