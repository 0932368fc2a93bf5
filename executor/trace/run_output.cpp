#include "executor/trace/run_output.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace bayplan::exec {

Status RunOutput::prepare(const std::string& directory) {
  if (directory.empty()) return {};
  namespace fs = std::filesystem;
  std::error_code error;
  const bool exists = fs::exists(directory, error);
  if (!error && exists && !fs::is_directory(directory, error)) {
    return Error{"output-not-a-directory", "output exists and is not a directory", directory,
                 "give another --out"};
  }
  if (!error && exists && !fs::is_empty(directory, error) && !error) {
    return Error{"output-in-use", "output directory exists and is not empty", directory,
                 "give a new directory with --out, or empty this one"};
  }
  if (!error && !exists) fs::create_directories(directory, error);
  if (!error) {
    const std::string probe = (fs::path(directory) / "metrics.jsonl").string();
    if (!std::ofstream(probe)) error = std::make_error_code(std::errc::permission_denied);
    std::error_code ignored;
    fs::remove(probe, ignored);  // a run that fails to start leaves the directory usable
  }
  if (error) {
    return Error{"output-not-writable", "cannot write to output directory: " + error.message(),
                 directory, "give a directory that you may write to with --out"};
  }
  return {};
}

RunOutput::RunOutput(const std::string& directory) : directory_(directory) {
  if (directory_.empty()) return;
  const std::string path = (std::filesystem::path(directory_) / "metrics.jsonl").string();
  metrics_.open(path);
  if (!metrics_) throw std::runtime_error("cannot write " + path);
}

void RunOutput::add(const StepMetrics& metrics) {
  if (directory_.empty()) return;
  const nlohmann::ordered_json line = {{"step", metrics.step},
                                       {"loss", metrics.loss},
                                       {"grad_norm", metrics.grad_norm},
                                       {"tokens_per_second", metrics.tokens_per_second},
                                       {"seconds", metrics.seconds}};
  metrics_ << line.dump() << '\n' << std::flush;
  if (!metrics_) throw std::runtime_error("cannot write metrics.jsonl in " + directory_);
}

std::string RunOutput::model_path() const {
  if (directory_.empty()) return "";
  return (std::filesystem::path(directory_) / "model.safetensors").string();
}

}  // namespace bayplan::exec
