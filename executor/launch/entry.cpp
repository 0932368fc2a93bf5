#include "executor/entry.h"

#include <torch/version.h>

#include "executor/calibrate_torch.h"
#include "executor/comm/mpi_communicator.h"
#include "executor/device_torch.h"
#include "executor/launch/mpi_ping.h"
#include "executor/launch/mpi_session.h"
#include "executor/trace/signal_status.h"
#include "planner/formats/calibration_json.h"

namespace bayplan::exec {
namespace {

DeviceFactory torch_devices(const Program& program) {
  return [threads = program.threads_per_rank](int rank) {
    return make_torch_cpu_device(rank, threads);
  };
}

/// Errors that all ranks find are reported by rank 0; the others end quietly.
Result<LaunchedRun> on_root(bool is_root, const Error& error) {
  if (is_root) return error;
  return LaunchedRun{{}, false};
}

Result<LaunchedRun> run_mpi(const Program& program, const DataSource& train, const DataSource* eval,
                            const RunOptions& options) {
  install_termination_report();
  BAYPLAN_TRY(world, start_mpi());
  const bool is_root = world.rank == 0;
  if (world.size != program.world_size()) {
    end_mpi();
    return on_root(is_root, Error{"world-size",
                                  "the plan has " + std::to_string(program.world_size()) +
                                      " ranks, MPI started " + std::to_string(world.size),
                                  "MPI launcher",
                                  "start it as: mpirun -np " +
                                      std::to_string(program.world_size()) + " bayplan run …"});
  }
  Result<RunResult> result = RunResult{};
  {
    const auto communicator = make_mpi_communicator(options.deadline_seconds);
    result = run_rank(program, torch_devices(program), *communicator, train, eval, options);
  }
  end_mpi();
  if (!result) return on_root(is_root, result.error());
  return LaunchedRun{std::move(*result), is_root};
}

Result<LaunchedRun> run_entry(const Program& program, Launch launch, const DataSource& train,
                              const DataSource* eval, const RunOptions& options) {
  if (launch == Launch::kMpi) return run_mpi(program, train, eval, options);
  BAYPLAN_TRY(result, run_local(program, torch_devices(program), train, eval, options));
  return LaunchedRun{std::move(result), true};
}

Result<std::string> calibrate_entry(
    double budget_seconds, const std::function<void(double, const std::string&)>& progress) {
  play_ping_if_asked();
  CalibrateOptions options;
  options.budget_seconds = budget_seconds;
  BAYPLAN_TRY(calibration, calibrate_machine(options, progress));
  if (const auto ping = measure_mpi_ping(20.0)) {
    calibration.mpi_latency = ping->latency;
    calibration.mpi_bandwidth = ping->bandwidth;
  }
  return calibration_text(calibration);
}

std::string describe_libraries() { return "torch " TORCH_VERSION ", " + mpi_description(); }

}  // namespace
}  // namespace bayplan::exec

extern "C" const bayplan::exec::ExecutorEntry* bayplan_executor_entry() {
  static const bayplan::exec::ExecutorEntry entry = [] {
    bayplan::exec::ExecutorEntry e;
    e.run = bayplan::exec::run_entry;
    e.calibrate = bayplan::exec::calibrate_entry;
    e.description = bayplan::exec::describe_libraries;
    return e;
  }();
  return &entry;
}
