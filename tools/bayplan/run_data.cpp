#include "tools/bayplan/run_data.h"

#include <fmt/format.h>

namespace bayplan::cli {
namespace {

constexpr std::int64_t kMostEvalSamples = std::int64_t{1} << 31;
constexpr double kHeldOutWithEvaluation = 0.1;
constexpr const char* kGroup = "Data";

/// Held-out synthetic tokens come from another stream than those that are trained on.
constexpr std::uint64_t kHeldOutSeed = 0x9e3779b97f4a7c15u;

}  // namespace

void declare_data_options(CLI::App& app, GivenOptions& given, DataFlags& flags) {
  declare_text(app, given, "--data", "FILE",
               "Text, read as bytes, or a .bin file of 16- or 32-bit tokens (default: none)");
  declare_text(app, given, "--held-out", "FRACTION",
               "Share of the samples, at the end, that is not trained on (default: 0; 0.1 with "
               "--eval-samples)");
  declare_text(
      app, given, "--eval-samples", "N",
      "Held-out samples of one evaluation, a multiple of the global batch (default: 0, none)");
  declare_text(app, given, "--eval-every", "N",
               "Steps between evaluations (default: 0, only at the end)");
  for (const char* name : {"--data", "--held-out", "--eval-samples", "--eval-every"}) {
    app.get_option(name)->group(kGroup);
  }
  app.add_flag("--shuffle", flags.shuffle,
               "Read the samples of --data in a new order each epoch, by --seed (default: in the "
               "order of the file)")
      ->group(kGroup);
  app.add_flag("--synthetic", flags.synthetic, "Seeded random tokens, the same for every layout")
      ->group(kGroup);
}

Result<RunData> open_run_data(const GivenOptions& given, DataFlags flags, const Program& program) {
  const TrainingJob& job = program.job;
  const std::int64_t vocab = program.graph.architecture.vocab;
  const auto path = given.get("--data");
  if (path.has_value() == flags.synthetic) {
    return Error{
        "usage", flags.synthetic ? "both --data and --synthetic are given" : "no data is given",
        "--data, --synthetic", "name a file with --data, or write --synthetic for seeded tokens"};
  }
  if (flags.shuffle && flags.synthetic) {
    return Error{"usage", "synthetic tokens are random already", "--shuffle",
                 "leave out --shuffle"};
  }
  RunData data;
  BAYPLAN_TRY(eval_samples, given.count("--eval-samples", 0, kMostEvalSamples));
  BAYPLAN_TRY(eval_every, given.count("--eval-every", 0, kMostEvalSamples));
  data.eval_samples = eval_samples.value_or(0);
  data.eval_every = eval_every.value_or(0);
  if (data.eval_samples % job.global_batch != 0) {
    return Error{"out-of-range",
                 fmt::format("{} samples are not a multiple of the global batch of {}",
                             data.eval_samples, job.global_batch),
                 "--eval-samples",
                 fmt::format("write {}", round_up(data.eval_samples, job.global_batch))};
  }
  if (data.eval_every > 0 && data.eval_samples == 0) {
    return Error{"usage", "--eval-every without --eval-samples evaluates nothing", "--eval-every",
                 "add --eval-samples N"};
  }
  BAYPLAN_TRY(fraction, given.real("--held-out", 0.0, 0.999999));
  const double held_out = fraction.value_or(data.eval_samples > 0 ? kHeldOutWithEvaluation : 0.0);
  if (data.eval_samples > 0 && held_out <= 0.0) {
    return Error{"usage", "evaluation needs held-out samples", "--held-out",
                 "write --held-out 0.1, for example"};
  }
  if (flags.synthetic) {
    data.train = exec::synthetic_data(job.seed, job.seq, vocab);
    if (data.eval_samples > 0)
      data.held_out = exec::synthetic_data(job.seed ^ kHeldOutSeed, job.seq, vocab);
    return data;
  }
  BAYPLAN_TRY(train,
              exec::open_data(*path, job.seq, vocab,
                              held_out > 0.0 ? exec::Split::kTrain : exec::Split::kAll, held_out));
  data.train = flags.shuffle ? exec::shuffled_data(std::move(train), job.seed) : std::move(train);
  if (data.eval_samples > 0) {
    BAYPLAN_TRY(eval, exec::open_data(*path, job.seq, vocab, exec::Split::kHeldOut, held_out));
    data.held_out = std::move(eval);
  }
  return data;
}

}  // namespace bayplan::cli
