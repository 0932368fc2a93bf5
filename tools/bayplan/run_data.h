// Where a run's samples come from: --data with an optional held-out share, or --synthetic.
#pragma once

#include <memory>

#include "executor/data/data_source.h"
#include "planner/core/result.h"
#include "planner/program/program.h"
#include "tools/bayplan/given_options.h"

namespace bayplan::cli {

struct RunData {
  std::unique_ptr<exec::DataSource> train;
  std::unique_ptr<exec::DataSource> held_out;  // null without evaluation
  std::int64_t eval_samples = 0;
  std::int64_t eval_every = 0;
};

struct DataFlags {
  bool synthetic = false;
  bool shuffle = false;
};

/// Declares --data, --held-out, --eval-samples, --eval-every and the flags.
void declare_data_options(CLI::App& app, GivenOptions& given, DataFlags& flags);

/// Opens the sources for `program`. Exactly one of --data and --synthetic must be given.
Result<RunData> open_run_data(const GivenOptions& given, DataFlags flags, const Program& program);

}  // namespace bayplan::cli
