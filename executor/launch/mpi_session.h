// Starting and ending MPI in this process. Not for communication (comm/mpi_communicator.h).
#pragma once

#include "planner/core/result.h"

namespace bayplan::exec {

struct MpiWorld {
  int rank = 0;
  int size = 1;
};

/// Initializes MPI with full thread support, once per process. Errors: "mpi-ended" after end_mpi(),
/// "mpi-threads" when the library was built without threads.
Result<MpiWorld> start_mpi();

/// Collective; waits for the other ranks.
void end_mpi();

/// First line of what the MPI library says about itself.
std::string mpi_description();

}  // namespace bayplan::exec
