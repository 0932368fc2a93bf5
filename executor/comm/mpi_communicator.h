// Communicator whose ranks are MPI processes. MPI only transports bytes, non-blocking and polled
// with a deadline; sums are ours, in rank order, so results equal the local communicator's bit for
// bit. Every message is announced by a header, so that partners who disagree get an error instead
// of wrong bytes. Not for starting MPI (launch/mpi_session.h).
#pragma once

#include <memory>

#include "executor/comm/communicator.h"

namespace bayplan::exec {

/// Collective over MPI_COMM_WORLD, which must be initialized with MPI_THREAD_MULTIPLE. A call
/// fails when nothing has arrived for `deadline_seconds`. abort() prints its reason to stderr and
/// ends the whole MPI job with exit code 1; it does not return.
std::unique_ptr<Communicator> make_mpi_communicator(double deadline_seconds);

}  // namespace bayplan::exec
