#include "tools/bayplan/calibration_option.h"

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "models/clusters.h"
#include "planner/formats/calibration_json.h"
#include "tools/bayplan/request.h"

namespace bayplan::cli {
namespace {

Status load_calibration(const std::string& path, Subject& subject) {
  BAYPLAN_TRY(calibration, read_calibration_file(path));
  subject.calibration = std::make_shared<const Calibration>(std::move(calibration));
  subject.assumptions.push_back({"calibration", path, "calibrated"});
  return {};
}

}  // namespace

std::string default_calibration_path() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::string(cache) + "/bayplan/calibration.json";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    return std::string(home) + "/.cache/bayplan/calibration.json";
  }
  return "";
}

Status apply_calibration_option(const std::optional<std::string>& option, Subject& subject) {
  const bool named = option && *option != "none";
  const bool is_cpu = subject.cluster.groups.front().device.device_class == DeviceClass::kCpu;
  if (!is_cpu) {
    if (!named) return {};
    return Error{"unsupported", "a calibration of this machine says nothing about GPUs",
                 "--calibration", "leave it out, or plan for localhost:N"};
  }
  // A cluster.json may name the calibration that belongs to its machine.
  const std::string& from_cluster = subject.cluster.calibration;
  if (named) return load_calibration(*option, subject);
  if (!option && !from_cluster.empty()) return load_calibration(from_cluster, subject);
  if (!option && is_localhost(subject.cluster)) {
    const std::string path = default_calibration_path();
    std::error_code ignored;
    if (!path.empty() && std::filesystem::exists(path, ignored))
      return load_calibration(path, subject);
  }
  subject.assumptions.push_back({"rates", "uncalibrated CPU; run `bayplan calibrate`", "default"});
  return {};
}

}  // namespace bayplan::cli
