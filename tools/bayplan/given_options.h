// Options as typed, by long name, and the tables that declare them. Turning them into a job and a
// layout is request.cpp's. Not for: options of a single command.
#pragma once

#include <CLI/CLI.hpp>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/result.h"

namespace bayplan::cli {

struct GivenOptions {
  std::string model;
  std::string cluster;
  std::map<std::string, std::string, std::less<>> text;  // "--seq" → "1024"
  std::vector<std::string> settings;                     // --set, in order

  bool has(std::string_view name) const { return text.find(name) != text.end(); }
  /// Text of an option that was given.
  std::optional<std::string> get(std::string_view name) const;

  /// The option as a whole number or real inside [least, most]; nullopt when not given. Errors name
  /// the option: "usage" when it is no number, "out-of-range".
  Result<std::optional<std::int64_t>> count(std::string_view name, std::int64_t least,
                                            std::int64_t most) const;
  Result<std::optional<double>> real(std::string_view name, double least, double most) const;
  /// One of `known`; the error names the nearest.
  Result<std::optional<std::string>> word(std::string_view name,
                                          const std::vector<std::string>& known) const;
};

/// Whether a command fills in defaults or searches.
enum class Defaults : std::uint8_t { kSearched, kFixed };

void declare_model_and_cluster(CLI::App& app, GivenOptions& given, bool required);
void declare_job_options(CLI::App& app, GivenOptions& given);
void declare_layout_options(CLI::App& app, GivenOptions& given, Defaults defaults);
/// --set and --calibration.
void declare_cluster_options(CLI::App& app, GivenOptions& given);
/// One option that takes a text.
void declare_text(CLI::App& app, GivenOptions& given, const std::string& name,
                  const std::string& value, const std::string& help);

/// Refuses options whose only accepted value is the default: what they would ask for is neither
/// modelled nor executed.
Status check_restricted(const GivenOptions& given);

}  // namespace bayplan::cli
