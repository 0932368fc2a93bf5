#include "tools/bayplan/given_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "planner/formats/nearest.h"

namespace bayplan::cli {
namespace {

struct OptionRow {
  const char* name;
  const char* value;
  const char* help;
};

constexpr OptionRow kJobRows[] = {
    {"--seq", "N", "Tokens per sample (default: the model's longest)"},
    {"--global-batch", "N", "Samples per step (default: one per data-parallel replica)"},
    {"--precision", "P", "Training recipe: fp64, fp32 or bf16 (default: fp32)"},
    {"--grad-dtype", "D",
     "Accumulated and reduced gradients: fp32; fp64 with fp64 (default: that)"},
    {"--optimizer", "NAME", "Optimizer: adamw, adam, sgd or sgd-momentum (default: adamw)"},
    {"--attention", "KIND", "auto or flash (default: auto)"},
    {"--dropout", "P", "Probability on embedding and residuals, 0 <= P < 1 (default: 0)"},
    {"--steps", "N", "Optimizer steps (default: 1)"},
    {"--seed", "N", "Seed of initialisation, dropout and synthetic data (default: 0)"},
    {"--lr", "RATE", "Learning rate (default: 0.001)"},
    {"--lr-schedule", "NAME",
     "constant; linear or cosine down to --lr-min over the steps behind the warm-up; wsd: "
     "constant, "
     "then linear over the last --decay-steps (default: constant)"},
    {"--warmup-steps", "N", "Steps in which the learning rate rises to --lr (default: 0)"},
    {"--decay-steps", "N", "Last steps, in which wsd decays (default: none)"},
    {"--lr-min", "RATE", "Where linear, cosine and wsd end (default: 0)"},
    {"--weight-decay", "W",
     "Weight decay; decoupled with adamw, else added to the gradient (default: 0.1)"},
    {"--clip", "NORM|off", "Global gradient norm limit (default: 1.0)"},
};

constexpr OptionRow kLayoutRows[] = {
    {"--micro-batch", "N|auto", "Samples per micro-batch of one replica"},
    {"--pp", "N|auto", "Pipeline ranks"},
    {"--dp", "N|auto", "Data-parallel replicas (default: devices / (tp pp cp))"},
    {"--zero", "0|1|2|3|auto", "ZeRO stage"},
    {"--schedule", "NAME|auto",
     "Pipeline schedule: gpipe, 1f1b, interleaved, breadth-first, zb-h1, zb-h2, zbv, dualpipev or "
     "a "
     "FILE.csv with a table"},
    {"--tp", "1", "Tensor-parallel ranks (default: 1; others are not modelled yet)"},
    {"--cp", "1", "Context-parallel ranks (default: 1; others are not modelled yet)"},
    {"--ep", "1", "Expert-parallel ranks (default: 1; others are not modelled yet)"},
    {"--vp", "N|auto", "Model chunks per pipeline rank; zbv and dualpipev have 2"},
    {"--grad-reduce", "WHEN",
     "When gradients are reduced: step, micro-batch or auto (default: auto, step for ZeRO 0 and 1, "
     "micro-batch for 2 and 3)"},
    {"--reshard-after-forward", "WHEN",
     "Gathered ZeRO-3 parameters are kept for one use (yes), a chunk's run of micro-batches "
     "(chunk) or the step (no) (default: auto, chunk with breadth-first, else yes)"},
    {"--prefetch", "N", "Uses by which a ZeRO-3 gather is issued ahead (default: 1)"},
    {"--persistence-threshold", "BYTES",
     "ZeRO 3 leaves parameter groups of up to this size whole, as in 100KB (default: 0 B)"},
    {"--offload", "WHAT",
     "Kept in host memory: none, optimizer (moments and master weights; the host makes the step), "
     "activations (what blocks save for backward) or both with a comma (default: none)"},
    {"--recompute", "WHAT",
     "Computed again in backward instead of kept: none, selective (attention), full (all that a "
     "block saves) or units=LIST as in units=1,4-6 (default: none)"},
    {"--threads-per-rank", "N",
     "CPU threads of one rank (default: cores / ranks of the node, at least 1)"},
};

/// Options that have one accepted value so far; it is also what happens without them. Without a
/// value the option is a flag, and leaving it out is what is accepted.
struct RestrictedRow {
  const char* name;
  const char* value;
  const char* what;
};
constexpr RestrictedRow kRestrictedRows[] = {
    {"--runtime", "bayplan", "another runtime's habits"},
    {"--task", "pretrain", "another task"},
    {"--zero-group", "dp", "sharding inside smaller groups"},
    {"--loss-scale", "1", "loss scaling"},
    {"--sequence-parallel", "", "sequence parallelism"},
    {"--bucket", "step", "gradient buckets"},
    {"--overlap", "none", "overlap of communication and computation by choice"},
};

void declare_rows(CLI::App& app, GivenOptions& given, std::span<const OptionRow> rows,
                  const std::string& group) {
  for (const OptionRow& row : rows) {
    declare_text(app, given, row.name, row.value, row.help);
    app.get_option(row.name)->group(group);
  }
}

Error not_a_number(std::string_view name, const std::string& text, std::string_view kind) {
  return Error{"usage", fmt::format("'{}' is not a {}", text.substr(0, 60), kind),
               std::string(name), "write digits, without a unit"};
}

template <class T>
Error outside(std::string_view name, const std::string& text, T least, T most) {
  return Error{"out-of-range",
               fmt::format("{} is outside [{}, {}]", text.substr(0, 60), least, most),
               std::string(name), fmt::format("write {} or more", least)};
}

}  // namespace

std::optional<std::string> GivenOptions::get(std::string_view name) const {
  const auto found = text.find(name);
  if (found == text.end()) return std::nullopt;
  return found->second;
}

Result<std::optional<std::int64_t>> GivenOptions::count(std::string_view name, std::int64_t least,
                                                        std::int64_t most) const {
  const auto given = get(name);
  if (!given) return std::optional<std::int64_t>();
  std::int64_t value = 0;
  const char* end = given->data() + given->size();
  const auto [rest, error] = std::from_chars(given->data(), end, value);
  if (rest != end || error == std::errc::invalid_argument)
    return not_a_number(name, *given, "whole number");
  if (error == std::errc::result_out_of_range || value < least || value > most) {
    return outside(name, *given, least, most);
  }
  return std::optional<std::int64_t>(value);
}

Result<std::optional<double>> GivenOptions::real(std::string_view name, double least,
                                                 double most) const {
  const auto given = get(name);
  if (!given) return std::optional<double>();
  double value = 0.0;
  const char* end = given->data() + given->size();
  const auto [rest, error] = std::from_chars(given->data(), end, value);
  if (rest != end || error == std::errc::invalid_argument)
    return not_a_number(name, *given, "number");
  if (error == std::errc::result_out_of_range || !(value >= least && value <= most)) {
    return outside(name, *given, least, most);
  }
  return std::optional<double>(value);
}

Result<std::optional<std::string>> GivenOptions::word(std::string_view name,
                                                      const std::vector<std::string>& known) const {
  const auto given = get(name);
  if (!given || std::find(known.begin(), known.end(), *given) != known.end()) return given;
  return Error{"unsupported",
               fmt::format("'{}' is not modelled or not known", given->substr(0, 60)),
               std::string(name),
               fmt::format("nearest: '{}'; supported: {}", nearest_name(*given, known),
                           fmt::join(known, ", "))};
}

void declare_text(CLI::App& app, GivenOptions& given, const std::string& name,
                  const std::string& value, const std::string& help) {
  app.add_option_function<std::string>(
         name, [&given, name](const std::string& text) { given.text[name] = text; }, help)
      ->type_name(value);
}

void declare_model_and_cluster(CLI::App& app, GivenOptions& given, bool required) {
  CLI::Option* model =
      app.add_option("MODEL", given.model,
                     "Preset, Hugging Face config.json or its folder, or a shape such as "
                     "gpt:hidden=1024,layers=24,heads=16");
  CLI::Option* cluster =
      app.add_option("CLUSTER", given.cluster,
                     "8xh100-sxm-80gb, 16x8xa100-sxm-80gb@200Gbps, localhost:4 (this machine), "
                     "or a cluster.json");
  for (CLI::Option* option : {model, cluster}) {
    option->type_name("");
    if (required) option->required();
  }
}

void declare_job_options(CLI::App& app, GivenOptions& given) {
  declare_rows(app, given, kJobRows, "Job");
  for (const RestrictedRow& row : kRestrictedRows) {
    if (*row.value == '\0') {
      const std::string name = row.name;
      app.add_flag_callback(
          name, [&given, name] { given.text[name] = "given"; },
          fmt::format("Refused (default: off); not modelled yet: {}", row.what));
    } else {
      declare_text(
          app, given, row.name, row.value,
          fmt::format("Only {0} (default: {0}); not modelled yet: {1}", row.value, row.what));
    }
    app.get_option(row.name)->group("One value so far");
  }
}

void declare_layout_options(CLI::App& app, GivenOptions& given, Defaults defaults) {
  const bool fixed = defaults == Defaults::kFixed;
  declare_rows(app, given, kLayoutRows,
               fixed ? "Layout (auto searches)" : "Layout (what is not given is searched)");
  const auto add_default = [&](const char* name, const char* value) {
    CLI::Option* option = app.get_option(name);
    option->description(option->get_description() +
                        fmt::format(" (default: {})", fixed ? value : "searched"));
  };
  add_default("--micro-batch", "1");
  add_default("--pp", "1");
  add_default("--zero", "0");
  add_default("--schedule", "1f1b, or interleaved with --vp");
  add_default("--vp", "1, or what the schedule has");
}

void declare_cluster_options(CLI::App& app, GivenOptions& given) {
  app.add_option("--set", given.settings,
                 "Change a field of the cluster: host_memory=256GiB, nvme=2TB@3GB/s, "
                 "inter_node_bandwidth=25Gbps; "
                 "repeatable")
      ->type_name("PATH=VALUE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->group("Cluster");
  declare_text(app, given, "--calibration", "FILE|none",
               "Measured rates of this machine, for localhost (default: the file of `bayplan "
               "calibrate`, if present)");
  app.get_option("--calibration")->group("Cluster");
}

Status check_restricted(const GivenOptions& given) {
  for (const RestrictedRow& row : kRestrictedRows) {
    const auto text = given.get(row.name);
    if (!text || *text == row.value) continue;
    const bool flag = *row.value == '\0';
    return Error{
        "unsupported",
        fmt::format("'{}': {} is neither modelled nor executed yet", text->substr(0, 60), row.what),
        row.name,
        flag ? "leave it out" : fmt::format("leave it out, or write {} {}", row.name, row.value)};
  }
  return {};
}

}  // namespace bayplan::cli
