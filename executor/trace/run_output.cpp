#include "executor/trace/run_output.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace bayplan::exec {
namespace {

namespace fs = std::filesystem;

/// Whether a file can be made beside `path`, where a partial file will be written.
std::error_code try_to_write(const fs::path& path) {
  const fs::path probe = path.string() + ".part";
  if (!std::ofstream(probe)) return std::make_error_code(std::errc::permission_denied);
  std::error_code ignored;
  fs::remove(probe, ignored);
  return {};
}

Status prepare_directory(const std::string& directory) {
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
  if (!error) error = try_to_write(fs::path(directory) / "metrics.jsonl");
  if (error) {
    return Error{"output-not-writable", "cannot write to output directory: " + error.message(),
                 directory, "give a directory that you may write to with --out"};
  }
  return {};
}

}  // namespace

Status RunOutput::prepare(const std::string& directory, const std::string& dump_file) {
  if (!dump_file.empty() && try_to_write(dump_file)) {
    return Error{"output-not-writable", "cannot write the state dump", dump_file,
                 "give a file in an existing folder that you may write to with --dump-state"};
  }
  if (directory.empty()) return {};
  return prepare_directory(directory);
}

RunOutput::RunOutput(const std::string& directory) : directory_(directory) {
  if (directory_.empty()) return;
  const std::string path = (fs::path(directory_) / "metrics.jsonl").string();
  metrics_.open(path);
  if (!metrics_) throw std::runtime_error("cannot write " + path);
}

void RunOutput::add(const StepMetrics& metrics) {
  if (directory_.empty()) return;
  const nlohmann::ordered_json line = {{"step", metrics.step},
                                       {"loss", metrics.loss},
                                       {"grad_norm", metrics.grad_norm},
                                       {"learning_rate", metrics.learning_rate},
                                       {"tokens_per_second", metrics.tokens_per_second},
                                       {"seconds", metrics.seconds}};
  metrics_ << line.dump() << '\n' << std::flush;
  if (!metrics_) throw std::runtime_error("cannot write metrics.jsonl in " + directory_);
}

std::string RunOutput::model_path(const std::string& directory) {
  if (directory.empty()) return "";
  return (fs::path(directory) / "model.safetensors").string();
}

}  // namespace bayplan::exec
