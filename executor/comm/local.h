// Communicator whose ranks are threads of one process. Receivers copy from the sender's memory and
// members sum from each other's buffers, so nothing is staged. Not for processes (mpi.h).
#pragma once

#include <memory>
#include <vector>

#include "executor/comm/communicator.h"

namespace bayplan::exec {

struct LocalOptions {
  double deadline_seconds = 60.0;  // for one call
};

/// One communicator per rank of a world of its own, index = rank. Each may be used by one thread
/// at a time (abort and awaiting: by any). Where a data pointer is null, ranks meet and check
/// sizes but nothing is copied (dry runs).
std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    int world_size, const LocalOptions& options = {});

}  // namespace bayplan::exec
