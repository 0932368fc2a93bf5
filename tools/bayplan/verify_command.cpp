// `bayplan verify`: proves the program of a plan sound, or lists what is wrong.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "planner/program/text.h"
#include "planner/program/verify.h"
#include "tools/bayplan/command.h"
#include "tools/bayplan/report.h"

namespace bayplan::cli {
namespace {

struct VerifyArguments {
  GivenOptions given;
  std::string plan;
  bool text = false;
};

/// One limit serves all ranks, so it is the smallest device's; the context is not the program's.
VerifyOptions budget_of(const Cluster& cluster) {
  VerifyOptions options;
  auto& device = options.capacity[static_cast<std::size_t>(Tier::kDevice)];
  for (const NodeGroup& group : cluster.groups) {
    const std::int64_t bytes = (group.device.memory - group.device.context).value;
    device = device ? std::min(*device, bytes) : bytes;
  }
  return options;
}

std::size_t instruction_count(const Program& program) {
  std::size_t n = 0;
  for (const RankClass& c : program.classes) {
    for (const InstructionList& list : c.programs) n += list.instructions.size();
  }
  return n;
}

Outcome run_verify(const VerifyArguments& arguments, bool json) {
  auto loaded = load_plan(arguments.plan, arguments.given.cluster, arguments.given);
  if (!loaded) return loaded.error();
  const Program& program = loaded->program;
  const std::vector<VerifyFinding> findings = verify(program, budget_of(loaded->subject.cluster));
  if (arguments.text && !json) fmt::print("{}", to_text(program));
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const VerifyFinding& f : findings) {
      list.push_back({{"violation", violation_name(f.violation)},
                      {"program", program_kind_name(f.program)},
                      {"rank", f.rank},
                      {"instruction", f.instruction.value},
                      {"message", f.message}});
    }
    nlohmann::ordered_json answer = {{"schema", "bayplan.verify/1"},
                                     {"verified", findings.empty()},
                                     {"fingerprint", fingerprint_text(program.fingerprint)},
                                     {"ranks", program.world_size()},
                                     {"rank_classes", program.classes.size()},
                                     {"instructions", instruction_count(program)},
                                     {"findings", list}};
    if (arguments.text) answer["text"] = to_text(program);
    print_json(answer);
  } else if (findings.empty()) {
    fmt::print("verified: {} ranks in {} classes, {} instructions, fingerprint {}\n",
               program.world_size(), program.classes.size(), instruction_count(program),
               fingerprint_text(program.fingerprint));
  } else {
    for (const VerifyFinding& f : findings) {
      fmt::print("{} in {} of rank {}: {}\n", violation_name(f.violation),
                 program_kind_name(f.program), f.rank, f.message);
    }
  }
  return findings.empty() ? kExitOk : kExitNotVerified;
}

}  // namespace

std::function<Outcome(bool)> declare_verify(CLI::App& app) {
  auto arguments = std::make_shared<VerifyArguments>();
  app.add_option("PLAN", arguments->plan, "Plan file")->required()->type_name("");
  app.add_option("CLUSTER", arguments->given.cluster, "Another cluster than the plan's")
      ->type_name("");
  app.add_flag("--text", arguments->text, "Print every instruction and buffer first");
  declare_cluster_options(app, arguments->given);
  return [arguments](bool json) { return run_verify(*arguments, json); };
}

}  // namespace bayplan::cli
