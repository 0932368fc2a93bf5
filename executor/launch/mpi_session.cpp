#include "executor/launch/mpi_session.h"

#include <mpi.h>

#include <array>

namespace bayplan::exec {

Result<MpiWorld> start_mpi() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    return Error{"mpi-ended", "MPI has ended in this process and cannot start again", "MPI",
                 "run one job per process"};
  }
  int initialized = 0;
  MPI_Initialized(&initialized);
  int provided = MPI_THREAD_SINGLE;
  if (initialized == 0) {
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  } else {
    MPI_Query_thread(&provided);
  }
  if (provided < MPI_THREAD_MULTIPLE) {
    return Error{"mpi-threads", "the MPI library does not support threads (MPI_THREAD_MULTIPLE)",
                 mpi_description(), "install an MPI library with thread support"};
  }
  MpiWorld world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.size);
  return world;
}

void end_mpi() { MPI_Finalize(); }

std::string mpi_description() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string whole(text.data(), static_cast<std::size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

}  // namespace bayplan::exec
