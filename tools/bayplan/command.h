// One subcommand: what it is called, what it answers, and how it declares its options.
// Not for: parsing (main.cpp) or printing errors (main.cpp).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string_view>

#include "tools/bayplan/outcome.h"

namespace bayplan::cli {

struct Command {
  std::string_view name;
  std::string_view question;  // that it answers; the first line of its help
  /// Declares arguments and options on `app`; the returned function runs the command after they
  /// were parsed. With `json`, stdout gets one JSON object and nothing else.
  std::function<Outcome(bool json)> (*declare)(CLI::App& app) = nullptr;
};

/// Every subcommand, in the order of the help.
std::span<const Command> commands();

// One declaration per file of this folder.
std::function<Outcome(bool)> declare_fit(CLI::App& app);
std::function<Outcome(bool)> declare_plan(CLI::App& app);
std::function<Outcome(bool)> declare_simulate(CLI::App& app);
std::function<Outcome(bool)> declare_run(CLI::App& app);
std::function<Outcome(bool)> declare_compare(CLI::App& app);
std::function<Outcome(bool)> declare_compare_state(CLI::App& app);
std::function<Outcome(bool)> declare_verify(CLI::App& app);
std::function<Outcome(bool)> declare_calibrate(CLI::App& app);
std::function<Outcome(bool)> declare_presets(CLI::App& app);

}  // namespace bayplan::cli
