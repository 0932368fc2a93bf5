// `bayplan run`: trains with a plan, or with the fixed default layout of MODEL CLUSTER.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "models/localhost.h"
#include "planner/formats/quantity.h"
#include "planner/formats/text_file.h"
#include "planner/formats/timeline_json.h"
#include "simulator/report/perfetto.h"
#include "tools/bayplan/answer.h"
#include "tools/bayplan/command.h"
#include "tools/bayplan/executor_library.h"
#include "tools/bayplan/launch_mode.h"
#include "tools/bayplan/progress_bar.h"
#include "tools/bayplan/report.h"
#include "tools/bayplan/run_data.h"
#include "tools/bayplan/run_report.h"

namespace bayplan::cli {
namespace {

struct RunArguments {
  GivenOptions given;  // model holds the plan's path when there is no CLUSTER
  DataFlags data_flags;
  std::string launch = "auto";
  std::string deadline = "60s";
  std::string out;
  std::string dump_state;
};

/// What runs, judged: from a plan file, or planned with fixed defaults.
struct Prepared {
  Subject subject;
  Answer answer;
};

/// Options that may accompany a plan file: those that do not change the program.
Status only_run_options(const GivenOptions& given) {
  constexpr std::array<std::string_view, 6> kAllowed = {
      "--steps", "--calibration", "--data", "--held-out", "--eval-samples", "--eval-every"};
  for (const auto& [name, text] : given.text) {
    if (std::find(kAllowed.begin(), kAllowed.end(), name) != kAllowed.end()) continue;
    return Error{"usage",
                 fmt::format("'{}' is part of the plan and cannot be changed for a run", name),
                 name, "edit the plan file, or plan again with this option"};
  }
  return {};
}

/// A plan's schedule ends with the plan's steps; a shorter run is the beginning of the same.
Status check_steps(const TrainingJob& job, std::int64_t steps) {
  if (job.lr_schedule == LearningRateSchedule::kConstant || steps <= job.steps) return {};
  return Error{
      "bad-learning-rate",
      fmt::format("{} steps, but the plan's {} schedule of the learning rate ends after {}", steps,
                  learning_rate_schedule_name(job.lr_schedule), job.steps),
      "--steps", "plan again with these --steps, or run no more than the plan has"};
}

std::string rate_text(const TrainingJob& job) {
  std::string text = fmt::format("lr {}", job.learning_rate);
  if (job.warmup_steps > 0) text += fmt::format(", warm-up {}", job.warmup_steps);
  if (job.lr_schedule != LearningRateSchedule::kConstant) {
    text += fmt::format(", {} to {}", learning_rate_schedule_name(job.lr_schedule),
                        job.min_learning_rate);
  }
  return text;
}

Result<Prepared> prepare(const GivenOptions& given) {
  if (!given.cluster.empty()) {
    BAYPLAN_TRY(request, make_request(given, Defaults::kFixed));
    BAYPLAN_TRY(answer, find_answer(request));
    return Prepared{std::move(request.subject), std::move(answer)};
  }
  BAYPLAN_RETURN_IF_ERROR(only_run_options(given));
  BAYPLAN_TRY(loaded, load_plan(given.model, "", given));
  BAYPLAN_TRY(answer, judge_program(loaded.plan, std::move(loaded.program), loaded.subject, false));
  return Prepared{std::move(loaded.subject), std::move(answer)};
}

/// What can be predicted but not run.
Status check_runnable(const Prepared& prepared) {
  const DeviceSpec& device = prepared.subject.cluster.groups.front().device;
  if (device.device_class != DeviceClass::kCpu) {
    return Error{"unsupported", fmt::format("{} devices are predicted, not run yet", device.name),
                 "CLUSTER", "run on this machine: localhost:N"};
  }
  if (!prepared.subject.model.not_executed.empty()) {
    return Error{"unsupported",
                 fmt::format("the model needs {}, which is not executed",
                             prepared.subject.model.not_executed.front()),
                 "MODEL", "its size, memory and time can be predicted: fit, plan, simulate"};
  }
  return {};
}

/// A plan may have been made on a larger machine; ranks that are threads share this one's memory.
Status check_this_machine(const Answer& answer) {
  BAYPLAN_TRY(machine, describe_machine());
  std::int64_t needed = 0;
  for (const RankMemoryNeed& need : answer.needs)
    needed += need.count * (need.allocated + need.host).value;
  if (needed <= machine.memory.value) return {};
  return Error{"does-not-fit",
               fmt::format("the ranks need {} together, this machine has {}",
                           short_bytes(Bytes(needed)), short_bytes(machine.memory)),
               "memory of this machine",
               "use a smaller model or micro-batch, or several machines with mpirun"};
}

Result<double> parse_deadline(const std::string& text) {
  GivenOptions seconds;
  seconds.text["--deadline"] = text;
  auto plain = seconds.real("--deadline", 1e-3, 1e9);
  if (plain) return **plain;
  if (plain.error().code == "out-of-range") return plain.error();
  BAYPLAN_TRY(duration, parse_duration(text, "--deadline"));
  return duration.value;
}

Status check_world(const Program& program, LaunchMode mode) {
  const auto processes = mode == LaunchMode::kMpi ? mpi_world_size() : std::nullopt;
  if (!processes || *processes == program.world_size()) return {};
  return Error{"world-size",
               fmt::format("the plan has {} ranks, mpirun started {} processes",
                           program.world_size(), *processes),
               "--launch", fmt::format("start mpirun -np {}", program.world_size())};
}

/// A file that is written at the end must not fail then.
Status check_dump_state(const std::string& path) {
  if (path.empty()) return {};
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored) && ::access(folder.c_str(), W_OK) == 0)
    return {};
  return Error{"unwritable-output", "cannot be written", path,
               "name a file in a folder that exists with --dump-state"};
}

/// The executor checks its own inputs too (an output in use, data that does not match): those are
/// bad input, the rest is the world failing.
int run_error_exit(const Error& error) {
  constexpr std::array<std::string_view, 6> kInput = {
      "bad-option",          "bad-data",
      "output-in-use",       "world-size",
      "output-not-writable", "output-not-a-directory"};
  return std::find(kInput.begin(), kInput.end(), error.code) != kInput.end() ? kExitBadInput
                                                                             : kExitFailed;
}

/// Files of --out besides those of the executor. "" when there is no output.
Result<std::string> write_outputs(const RunArguments& arguments, const Prepared& prepared,
                                  const exec::RunResult& result) {
  if (arguments.out.empty()) return std::string();
  const PlanFile file{prepared.answer.plan, prepared.subject.model, prepared.subject.cluster};
  BAYPLAN_RETURN_IF_ERROR(
      write_text_file(arguments.out + "/plan.json", write_plan(file).dump(2) + "\n"));
  const std::string timeline = arguments.out + "/timeline.json";
  BAYPLAN_RETURN_IF_ERROR(write_timeline_file(timeline, result.timeline, prepared.answer.program));
  BAYPLAN_RETURN_IF_ERROR(
      write_text_file(arguments.out + "/trace.json",
                      sim::perfetto_trace(prepared.answer.program, result.timeline)));
  return timeline;
}

Outcome run_run(const RunArguments& arguments, bool json) {
  auto mode = launch_mode(arguments.launch);
  if (!mode) return mode.error();
  auto prepared = prepare(arguments.given);
  if (!prepared) return outcome_of(prepared.error());
  Answer& answer = prepared->answer;
  if (const Status runnable = check_runnable(*prepared); !runnable) return runnable.error();
  if (const Status world = check_world(answer.program, *mode); !world) return world.error();
  if (answer.verdict == Verdict::kDoesNotFit) {
    const RankMemoryNeed& worst = answer.needs[tightest(answer.needs)];
    return Outcome(Error{"does-not-fit",
                         fmt::format("rank {} needs {}, its device has {}", worst.rank,
                                     short_bytes(worst.device), short_bytes(worst.capacity)),
                         prepared->subject.cluster.name, "'bayplan fit' says what would fit"},
                   kExitDoesNotFit);
  }
  if (*mode == LaunchMode::kLocal) {
    if (const Status fits = check_this_machine(answer); !fits)
      return Outcome(fits.error(), kExitDoesNotFit);
  }

  exec::RunOptions options;
  auto steps = arguments.given.count("--steps", 1, std::int64_t{1} << 40);
  if (!steps) return steps.error();
  options.steps = steps->value_or(answer.plan.job.steps);
  if (const Status enough = check_steps(answer.plan.job, options.steps); !enough)
    return enough.error();
  auto deadline = parse_deadline(arguments.deadline);
  if (!deadline) return deadline.error();
  options.deadline_seconds = *deadline;
  if (const Status writable = check_dump_state(arguments.dump_state); !writable)
    return writable.error();
  auto data = open_run_data(arguments.given, arguments.data_flags, answer.program);
  if (!data) return data.error();
  options.eval_samples = data->eval_samples;
  options.eval_every = data->eval_every;
  options.output_directory = arguments.out;
  options.dump_state = arguments.dump_state;
  options.record_timeline = !arguments.out.empty();

  auto executor = load_executor();
  if (!executor) return Outcome(executor.error(), kExitFailed);
  const bool speaks = *mode == LaunchMode::kLocal || is_speaking_process();
  if (!json && speaks) {
    const TrainingJob& job = answer.plan.job;
    fmt::print(
        "running  {} on {}\nlayout   {}\njob      {}, global batch {}, {}, weight decay {}, "
        "clip "
        "{}, dropout {}, "
        "seed {}, {} steps\n\n",
        answer.plan.model, answer.plan.cluster, layout_text(answer.plan),
        optimizer_spec(job.optimizer).name, job.global_batch, rate_text(job), job.weight_decay,
        job.clip_norm, job.dropout, job.seed, options.steps);
    std::fflush(stdout);
  }
  std::optional<Result<exec::LaunchedRun>> launched;
  {
    ProgressBar bar;
    options.on_step = [&](const exec::StepMetrics& m) {
      bar.show(static_cast<double>(m.step + 1) / static_cast<double>(options.steps),
               fmt::format("step {} loss {:.4f} norm {:.3f} {} tokens/s", m.step + 1, m.loss,
                           m.grad_norm, short_count(m.tokens_per_second)));
    };
    launched = (*executor)->run(
        answer.program, *mode == LaunchMode::kMpi ? exec::Launch::kMpi : exec::Launch::kLocal,
        *data->train, data->held_out.get(), options);
  }
  if (!*launched) return Outcome(launched->error(), run_error_exit(launched->error()));
  const exec::LaunchedRun& run = **launched;
  if (!run.is_root) return kExitOk;
  auto timeline = write_outputs(arguments, *prepared, run.result);
  if (!timeline) return Outcome(timeline.error(), kExitFailed);
  if (json) {
    print_json(run_json(run.result, answer, *timeline));
  } else {
    fmt::print("{}", run_text(run.result, answer));
    if (!arguments.out.empty()) fmt::print("written: {}\n", arguments.out);
    fmt::print("{}", notes_text(prepared->subject));
  }
  return kExitOk;
}

}  // namespace

std::function<Outcome(bool)> declare_run(CLI::App& app) {
  auto arguments = std::make_shared<RunArguments>();
  app.add_option("PLAN|MODEL", arguments->given.model, "Plan file; or, with CLUSTER, a MODEL")
      ->required()
      ->type_name("");
  app.add_option("CLUSTER", arguments->given.cluster, "With MODEL: localhost:N")->type_name("");
  declare_data_options(app, arguments->given, arguments->data_flags);
  app.add_option("--launch", arguments->launch,
                 "auto, local (ranks are threads) or mpi (this process is one rank of mpirun) "
                 "(default: auto)")
      ->type_name("HOW");
  app.add_option(
         "--out", arguments->out,
         "New folder for metrics, timeline, trace, plan and weights (default: nothing is written)")
      ->type_name("DIR");
  app.add_option("--dump-state", arguments->dump_state,
                 "Write all logical tensors as safetensors (default: none)")
      ->type_name("FILE");
  app.add_option("--deadline", arguments->deadline,
                 "Longest wait for another rank in one communication call; seconds or with a unit "
                 "(default: 60s)")
      ->type_name("TIME");
  declare_job_options(app, arguments->given);
  declare_layout_options(app, arguments->given, Defaults::kFixed);
  declare_cluster_options(app, arguments->given);
  return [arguments](bool json) { return run_run(*arguments, json); };
}

}  // namespace bayplan::cli
