// `bayplan compare-state`: how far two dumped training states are apart.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "planner/formats/tensor_difference.h"
#include "tools/bayplan/command.h"
#include "tools/bayplan/given_options.h"
#include "tools/bayplan/report.h"

namespace bayplan::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kWorstRows = 20;

struct CompareStateArguments {
  GivenOptions given;
  std::string a;
  std::string b;
};

/// JSON has no infinity: null.
ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

ordered_json state_json(const StateDifference& state, bool equal) {
  ordered_json tensors = ordered_json::array();
  for (const TensorDifference& t : state.tensors) {
    tensors.push_back({{"name", t.name},
                       {"dtype", safetensors_dtype_name(t.dtype)},
                       {"shape", t.shape},
                       {"max_abs", finite_or_null(t.max_abs)},
                       {"max_rel", finite_or_null(t.max_rel)}});
  }
  return {{"schema", "bayplan.compare-state/1"},
          {"equal", equal},
          {"tensors", std::move(tensors)},
          {"only_in_a", state.only_in_a},
          {"only_in_b", state.only_in_b}};
}

void print_missing(const std::vector<std::string>& names, const std::string& file) {
  for (std::size_t i = 0; i < std::min(names.size(), kWorstRows); ++i)
    fmt::print("only in {}: {}\n", file, names[i]);
  if (names.size() > kWorstRows)
    fmt::print("only in {}: and {} more\n", file, names.size() - kWorstRows);
}

void print_state(const CompareStateArguments& arguments, const StateDifference& state, bool equal,
                 double tolerance) {
  std::vector<const TensorDifference*> differ;
  double most_rel = 0.0;
  for (const TensorDifference& t : state.tensors) {
    if (t.max_abs > 0.0) differ.push_back(&t);
    most_rel = std::max(most_rel, t.max_rel);
  }
  std::stable_sort(differ.begin(), differ.end(),
                   [](const auto* x, const auto* y) { return x->max_abs > y->max_abs; });
  const std::size_t rows = std::min(differ.size(), kWorstRows);
  std::size_t width = 6;
  for (std::size_t i = 0; i < rows; ++i) width = std::max(width, differ[i]->name.size());
  if (rows > 0) {
    fmt::print("{:<{}}  {:<5}  {:<16}  {:>10}  {:>10}\n", "tensor", width, "dtype", "shape",
               "max abs", "max rel");
  }
  for (std::size_t i = 0; i < rows; ++i) {
    const TensorDifference& t = *differ[i];
    fmt::print("{:<{}}  {:<5}  {:<16}  {:>10.3e}  {:>10.3e}\n", t.name, width,
               safetensors_dtype_name(t.dtype), fmt::format("[{}]", fmt::join(t.shape, ", ")),
               t.max_abs, t.max_rel);
  }
  if (differ.size() > rows) fmt::print("and {} more that differ less\n", differ.size() - rows);
  print_missing(state.only_in_a, arguments.a);
  print_missing(state.only_in_b, arguments.b);
  fmt::print("{} tensors in both, {} differ; largest difference {:.3e} absolute, {:.3e} relative\n",
             state.tensors.size(), differ.size(), differ.empty() ? 0.0 : differ[0]->max_abs,
             most_rel);
  fmt::print("{} within {}\n", equal ? "equal" : "not equal", tolerance);
}

Outcome run_compare_state(const CompareStateArguments& arguments, bool json) {
  auto given = arguments.given.real("--tolerance", 0.0, std::numeric_limits<double>::max());
  if (!given) return given.error();
  const double tolerance = given->value_or(0.0);
  auto state = compare_safetensors(arguments.a, arguments.b);
  if (!state) return state.error();
  bool equal = state->only_in_a.empty() && state->only_in_b.empty();
  for (const TensorDifference& t : state->tensors) equal = equal && t.max_abs <= tolerance;
  if (json) {
    print_json(state_json(*state, equal));
  } else {
    print_state(arguments, *state, equal, tolerance);
  }
  return equal ? kExitOk : kExitFailed;
}

}  // namespace

std::function<Outcome(bool)> declare_compare_state(CLI::App& app) {
  auto arguments = std::make_shared<CompareStateArguments>();
  for (const auto& [name, path] : {std::pair{"A", &arguments->a}, {"B", &arguments->b}}) {
    app.add_option(name, *path, "Safetensors file, as `run --dump-state` writes it")
        ->required()
        ->type_name("");
  }
  declare_text(app, arguments->given, "--tolerance", "T",
               "Largest absolute difference that still counts as equal (default: 0)");
  app.footer(
      "Exit codes: 0 equal within the tolerance, 1 not equal, 2 a file that cannot be read or "
      "tensors of other shapes.");
  return [arguments](bool json) { return run_compare_state(*arguments, json); };
}

}  // namespace bayplan::cli
