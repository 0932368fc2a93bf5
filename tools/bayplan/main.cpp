// bayplan: the command line. Parses, runs one subcommand, prints errors; everything else is in
// the subcommands' files.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "planner/formats/nearest.h"
#include "tools/bayplan/command.h"
#include "tools/bayplan/launch_mode.h"

namespace bayplan::cli {
namespace {

struct Declared {
  CLI::App* app = nullptr;
  bool json = false;
  std::function<Outcome(bool)> run;
};

void print_error(const Error& error, bool json) {
  if (json) {
    const nlohmann::ordered_json object = {{"schema", "bayplan.error/1"},
                                           {"code", error.code},
                                           {"message", error.message},
                                           {"where", error.where},
                                           {"hint", error.hint}};
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print(stderr, "bayplan: error: {} [{}]\n", error.message, error.code);
  if (!error.where.empty()) fmt::print(stderr, "  where: {}\n", error.where);
  if (!error.hint.empty()) fmt::print(stderr, "  hint:  {}\n", error.hint);
}

/// Names of the options of `app`, with their dashes.
std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

Error usage_error(const CLI::App& root, const CLI::ParseError& parse_error, int argc, char** argv) {
  const CLI::App* app = &root;
  for (const CLI::App* sub : root.get_subcommands()) app = sub;
  const std::string help =
      fmt::format("see 'bayplan {}--help'", app == &root ? "" : app->get_name() + " ");
  if (app == &root && argc > 1) {
    std::vector<std::string> names;
    for (const Command& command : commands()) names.emplace_back(command.name);
    return Error{
        "unknown-command", fmt::format("'{}' is no command", argv[1]), argv[1],
        fmt::format("nearest: '{}'; 'bayplan --help' lists all", nearest_name(argv[1], names))};
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&parse_error) != nullptr) {
    for (const std::string& extra : app->remaining()) {
      if (extra.size() > 1 && extra[0] == '-') {
        const std::string name = extra.substr(0, extra.find('='));
        return Error{
            "unknown-option", fmt::format("'{}' has no option '{}'", app->get_name(), name), name,
            fmt::format("nearest: '{}'; {}", nearest_name(name, option_names(*app)), help)};
      }
      return Error{"usage", fmt::format("argument '{}' is one too many", extra), app->get_name(),
                   help};
    }
  }
  std::string message = parse_error.what();
  if (const std::size_t at = message.find(": At Most 1 required"); at != std::string::npos) {
    message = message.substr(0, at) + " is given more than once";
  }
  return Error{"usage", message, app->get_name(), help};
}

int run(int argc, char** argv) {
  CLI::App root{"Plans, simulates and runs 2D/3D-parallel training of language models.", "bayplan"};
  root.set_help_flag("--help", "Print this help and exit");
  root.set_version_flag("--version", std::string("bayplan ") + BAYPLAN_VERSION,
                        "Print the version and exit");
  root.require_subcommand(1);
  root.footer(
      "'bayplan COMMAND --help' lists every option with its default and unit.\n"
      "Exit codes: 0 ok, 1 failed while running, 2 usage or bad input, 3 does not fit, 4 not "
      "verified.");

  std::vector<Declared> declared(commands().size());
  for (std::size_t i = 0; i < declared.size(); ++i) {
    const Command& command = commands()[i];
    Declared& d = declared[i];
    d.app = root.add_subcommand(std::string(command.name), std::string(command.question));
    d.app->set_help_flag("--help", "Print this help and exit");
    d.app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::Throw);
    d.run = command.declare(*d.app);
    d.app->add_flag("--json", d.json, "Print one JSON object on stdout and nothing else there");
  }

  // Whether errors go out as JSON must be known even when parsing fails.
  bool json = false;
  for (int i = 1; i < argc; ++i) json = json || std::string_view(argv[i]) == "--json";
  const bool speaks = is_speaking_process();
  try {
    root.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const auto parsed = root.get_subcommands();
    fmt::print("{}", parsed.empty() ? root.help() : parsed.front()->help());
    return kExitOk;
  } catch (const CLI::CallForVersion&) {
    fmt::print("bayplan {}\n", BAYPLAN_VERSION);
    return kExitOk;
  } catch (const CLI::ParseError& e) {
    if (argc == 1) {
      fmt::print(stderr, "{}", root.help());
      return kExitBadInput;
    }
    if (speaks) print_error(usage_error(root, e, argc, argv), json);
    return kExitBadInput;
  }
  for (const Declared& d : declared) {
    if (!d.app->parsed()) continue;
    const Outcome outcome = d.run(d.json);
    // Of several processes of one run all know about bad input, each may know another reason why
    // the run failed, and only one has stdout.
    const bool own_reason = outcome.exit_code == kExitFailed && !d.json;
    if (outcome.error && (speaks || own_reason)) print_error(*outcome.error, d.json);
    return outcome.exit_code;
  }
  return kExitBadInput;
}

}  // namespace
}  // namespace bayplan::cli

int main(int argc, char** argv) {
  using namespace bayplan::cli;
  spdlog::set_default_logger(spdlog::stderr_color_mt("bayplan"));
  spdlog::set_pattern("bayplan: %^%l%$: %v");
  int code = kExitFailed;
  try {
    code = run(argc, argv);
  } catch (const std::exception& e) {
    bool json = false;
    for (int i = 1; i < argc; ++i) json = json || std::string_view(argv[i]) == "--json";
    print_error(bayplan::Error{"internal-error", e.what(), "bayplan " BAYPLAN_VERSION,
                               "this is a defect of Bayplan; please report it with the command"},
                json);
  }
  // A full disk or a closed pipe must not look like success.
  if (std::fflush(stdout) != 0 && code == kExitOk) {
    fmt::print(stderr,
               "bayplan: error: cannot write [unwritable-output]\n  where: stdout\n"
               "  hint:  check the disk, or what reads the output\n");
    code = kExitFailed;
  }
  return code;
}
