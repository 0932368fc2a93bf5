// What this process's rank is doing, printed when the process is told to terminate: under mpirun
// the survivors of a killed rank get SIGTERM, and this is how they say whom they waited for.
#pragma once

#include "executor/comm/communicator.h"
#include "executor/trace/rank_status.h"
#include "planner/program/program.h"

namespace bayplan::exec {

/// While it lives, the termination report speaks of this rank. At most one at a time.
class SignalStatus {
 public:
  SignalStatus(const Program& program, int rank, const RankStatus& status,
               const Communicator& communicator);
  ~SignalStatus();
  SignalStatus(const SignalStatus&) = delete;
  SignalStatus& operator=(const SignalStatus&) = delete;

 private:
  const Program& program_;
  int rank_;
  const RankStatus& status_;
  const Communicator& communicator_;
  friend void write_termination_report() noexcept;
};

/// Writes the report to stderr, or nothing when no rank runs. Async-signal-safe.
void write_termination_report() noexcept;

/// Makes SIGTERM and SIGINT write the report and end the process as the signal would.
void install_termination_report();

}  // namespace bayplan::exec
