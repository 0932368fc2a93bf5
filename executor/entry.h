// The door of libbayplan_executor.so. The CLI loads the library only for the commands that need
// torch or MPI, and calls through this table.
#pragma once

#include <string>

#include "executor/data/data_source.h"
#include "executor/run.h"
#include "planner/core/result.h"
#include "planner/program/program.h"

namespace bayplan::exec {

enum class Launch : std::uint8_t { kLocal, kMpi };

struct LaunchedRun {
  RunResult result;
  bool is_root = true;  // false on MPI ranks other than 0: print nothing
};

struct ExecutorEntry {
  /// Bump when this table or a type that crosses it changes.
  static constexpr int kAbi = 1;
  int abi = kAbi;
  /// Runs on torch CPU devices. Under kMpi the process must be one rank of an MPI job.
  Result<LaunchedRun> (*run)(const Program&, Launch, const DataSource& train,
                             const DataSource* eval, const RunOptions&) = nullptr;
  /// Measures this machine; returns the calibration as JSON text. progress(fraction, what).
  Result<std::string> (*calibrate)(
      double budget_seconds,
      const std::function<void(double, const std::string&)>& progress) = nullptr;
  std::string (*description)() = nullptr;  // torch version, MPI library
};

}  // namespace bayplan::exec

extern "C" const bayplan::exec::ExecutorEntry* bayplan_executor_entry();
