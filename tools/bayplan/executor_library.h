// Loads libbayplan_executor.so (torch, MPI) when a command needs it: from beside the program, or
// from ../lib of an installed tree. Nothing else of the command line touches those libraries.
#pragma once

#include "executor/entry.h"
#include "planner/core/result.h"

namespace bayplan::cli {

/// The library's table; it stays loaded until the process ends. Errors: "no-executor" (this build
/// has none, or it cannot be loaded), "executor-version".
Result<const exec::ExecutorEntry*> load_executor();

}  // namespace bayplan::cli
