// `bayplan calibrate`: measures this machine into a calibration file.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "planner/formats/calibration_json.h"
#include "planner/formats/quantity.h"
#include "planner/formats/text_file.h"
#include "tools/bayplan/calibration_option.h"
#include "tools/bayplan/command.h"
#include "tools/bayplan/executor_library.h"
#include "tools/bayplan/given_options.h"
#include "tools/bayplan/progress_bar.h"
#include "tools/bayplan/report.h"

namespace bayplan::cli {
namespace {

struct CalibrateArguments {
  std::string output;
  std::string budget = "80s";
};

/// The output's folder, made if needed, before minutes are spent on measuring.
Status prepare_output(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code failed;
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);
  if (!failed && !std::filesystem::is_directory(path, failed)) return {};
  return Error{"unwritable-output",
               failed ? fmt::format("cannot make the folder: {}", failed.message()) : "is a folder",
               path, "name another file with -o"};
}

Outcome run_calibrate(const CalibrateArguments& arguments, bool json) {
  const std::string path = arguments.output.empty() ? default_calibration_path() : arguments.output;
  if (path.empty()) {
    return Error{"usage", "neither XDG_CACHE_HOME nor HOME is set", "-o",
                 "name the file to write with -o"};
  }
  auto budget = parse_duration(arguments.budget, "--budget");
  if (!budget) return budget.error();
  if (const Status prepared = prepare_output(path); !prepared) return prepared.error();
  auto executor = load_executor();
  if (!executor) return Outcome(executor.error(), kExitFailed);
  std::string text;
  {
    ProgressBar bar;
    auto measured = (*executor)->calibrate(
        budget->value, [&](double fraction, const std::string& what) { bar.show(fraction, what); });
    if (!measured) return Outcome(measured.error(), kExitFailed);
    text = std::move(*measured);
  }
  auto document = parse_json(text, path);
  if (!document) return Outcome(document.error(), kExitFailed);
  auto calibration = read_calibration(JsonCursor(*document));
  if (!calibration) return Outcome(calibration.error(), kExitFailed);
  if (const Status written = write_text_file(path, text); !written) return written.error();
  if (json) {
    print_json({{"schema", "bayplan.calibrate/1"},
                {"output", path},
                {"machine", calibration->machine},
                {"libraries", calibration->libraries},
                {"cores", calibration->cores},
                {"operators", calibration->operators.size()},
                {"copy_bytes_per_second", calibration->copy_bytes},
                {"mpi_latency_seconds", calibration->mpi_latency.value},
                {"mpi_bytes_per_second", calibration->mpi_bandwidth.value}});
    return kExitOk;
  }
  fmt::print("{} ({} cores, {})\n", calibration->machine, calibration->cores,
             calibration->libraries);
  fmt::print("  operator rates     {} grids\n", calibration->operators.size());
  fmt::print("  memory copy        {}\n", short_rate(BytesPerSecond(calibration->copy_bytes)));
  fmt::print("  thread wake-up     {} idle, {} busy\n", short_duration(calibration->wake_idle),
             short_duration(calibration->wake_busy));
  if (calibration->mpi_bandwidth.value > 0.0) {
    fmt::print("  MPI message        {} + bytes / {}\n", short_duration(calibration->mpi_latency),
               short_rate(calibration->mpi_bandwidth));
  }
  fmt::print("written: {}\n", path);
  return kExitOk;
}

}  // namespace

std::function<Outcome(bool)> declare_calibrate(CLI::App& app) {
  auto arguments = std::make_shared<CalibrateArguments>();
  app.add_option("-o", arguments->output,
                 "Calibration file (default: $XDG_CACHE_HOME/bayplan/calibration.json, which "
                 "localhost reads)")
      ->type_name("FILE");
  app.add_option("--budget", arguments->budget, "Time to spend, with its unit (default: 80s)")
      ->type_name("TIME");
  return [arguments](bool json) { return run_calibrate(*arguments, json); };
}

}  // namespace bayplan::cli
