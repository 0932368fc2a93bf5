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
  /// Creates the directory; "" = no output. An existing one must be empty.
  static Status prepare(const std::string& directory);

  /// Opens metrics.jsonl in a prepared directory. Throws std::runtime_error naming the file.
  explicit RunOutput(const std::string& directory);

  /// Appends one JSON line and flushes it.
  void add(const StepMetrics& metrics);
  /// "" without output.
  std::string model_path() const;

 private:
  std::string directory_;
  std::ofstream metrics_;
};

}  // namespace bayplan::exec
