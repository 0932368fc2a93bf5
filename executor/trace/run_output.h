// The output directory of a run: metrics.jsonl while it trains, model.safetensors at the end.
// Only rank 0 has one.
#pragma once

#include <fstream>
#include <string>

#include "executor/run.h"
#include "planner/core/result.h"

namespace bayplan::exec {

class RunOutput {
 public:
  /// Creates the directory, which must be empty if it exists, and finds out whether it and the
  /// state dump can be written; "" = not wanted. Leaves no file.
  static Status prepare(const std::string& directory, const std::string& dump_file);

  /// Opens metrics.jsonl in a prepared directory. Throws std::runtime_error naming the file.
  explicit RunOutput(const std::string& directory);

  /// Appends one JSON line and flushes it.
  void add(const StepMetrics& metrics);
  /// Of the weights at the end; "" without output.
  static std::string model_path(const std::string& directory);

 private:
  std::string directory_;
  std::ofstream metrics_;
};

}  // namespace bayplan::exec
