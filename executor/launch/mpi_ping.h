// Latency and rate of messages between two MPI processes, for `bayplan calibrate`: the program
// starts itself twice under mpirun, and these two play ping-pong through the communicator that
// runs use. Not for: threads of one process (calibrate/machine_bench.h).
#pragma once

#include <optional>

#include "planner/core/units.h"

namespace bayplan::exec {

struct MpiPing {
  Seconds latency;           // of a message of 8 bytes
  BytesPerSecond bandwidth;  // of messages of 4 MiB
};

/// nullopt when there is no mpirun, this process is itself part of an MPI job or not the bayplan
/// program, or no answer came within `deadline_seconds`. Leaves no process behind.
std::optional<MpiPing> measure_mpi_ping(double deadline_seconds);

/// In a process that measure_mpi_ping() started: plays, prints and ends the process. Else returns.
void play_ping_if_asked();

}  // namespace bayplan::exec
