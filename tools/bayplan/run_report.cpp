#include "tools/bayplan/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "planner/formats/quantity.h"
#include "tools/bayplan/report.h"

namespace bayplan::cli {
namespace {

using nlohmann::ordered_json;

ordered_json path_or_null(const std::string& path) {
  return path.empty() ? ordered_json(nullptr) : ordered_json(path);
}

double tokens_per_step(const Answer& answer) {
  return static_cast<double>(answer.plan.job.global_batch) *
         static_cast<double>(answer.plan.job.seq);
}

}  // namespace

StepSeconds steady_steps(const std::vector<double>& step_seconds) {
  std::vector<double> steady(step_seconds.begin() + (step_seconds.size() > 1 ? 1 : 0),
                             step_seconds.end());
  if (steady.empty()) return {};
  std::sort(steady.begin(), steady.end());
  const std::size_t n = steady.size();
  const double median = n % 2 == 1 ? steady[n / 2] : 0.5 * (steady[n / 2 - 1] + steady[n / 2]);
  return {median, steady.front()};
}

ordered_json run_json(const exec::RunResult& result, const Answer& answer,
                      const std::string& timeline) {
  const StepSeconds steps = steady_steps(result.step_seconds);
  ordered_json memory = ordered_json::array();
  for (const exec::MemoryReport& m : result.memory) {
    memory.push_back({{"rank", m.rank},
                      {"tier", tier_name(m.tier)},
                      {"predicted_bytes", m.predicted_bytes},
                      {"measured_bytes", m.measured_bytes},
                      {"workspace_declared_bytes", m.workspace_declared_bytes},
                      {"workspace_used_bytes", m.workspace_used_bytes}});
  }
  ordered_json wire = ordered_json::array();
  for (const exec::WireReport& w : result.wire) {
    wire.push_back({{"rank", w.rank},
                    {"collective", instruction_name(w.collective)},
                    {"purpose", purpose_name(w.purpose)},
                    {"predicted_bytes", w.predicted_bytes},
                    {"sent_bytes", w.sent_bytes}});
  }
  const sim::TimeInterval& predicted = answer.simulation.step_time;
  return {{"schema", "bayplan.run/1"},
          {"fingerprint", fingerprint_text(result.fingerprint)},
          {"job", write_job(answer.plan.job)},
          {"layout", layout_json(answer.plan)},
          {"losses", result.losses},
          {"eval_losses", result.eval_losses},
          {"grad_norms", result.grad_norms},
          {"step_s", {{"median", steps.median}, {"min", steps.min}}},
          {"predicted_step_s",
           {{"low", predicted.low.value},
            {"mid", predicted.mid.value},
            {"high", predicted.high.value}}},
          {"tokens_per_second", steps.median > 0.0 ? tokens_per_step(answer) / steps.median : 0.0},
          {"state_hash", result.state_hash},
          {"memory", memory},
          {"wire", wire},
          {"rss_bytes", result.rss_bytes},
          {"timeline", path_or_null(timeline)},
          {"checkpoint", path_or_null(result.checkpoint)}};
}

std::string run_text(const exec::RunResult& result, const Answer& answer) {
  const StepSeconds steps = steady_steps(result.step_seconds);
  const sim::TimeInterval& predicted = answer.simulation.step_time;
  std::string out;
  if (!result.losses.empty()) {
    out += fmt::format("loss {:.6f} -> {:.6f} in {} steps", result.losses.front(),
                       result.losses.back(), result.losses.size());
    if (!result.eval_losses.empty())
      out += fmt::format(", held-out {:.6f}", result.eval_losses.back());
    out += fmt::format("; state {}\n\n", result.state_hash);
  }
  out += fmt::format("{:<18} {:>14} {:>14} {:>8}\n", "", "predicted", "measured", "ratio");
  if (steps.median > 0.0) {
    out +=
        fmt::format("{:<18} {:>14} {:>14} {:>8.3f}\n", "step time", short_duration(predicted.mid),
                    short_duration(Seconds(steps.median)), predicted.mid.value / steps.median);
  }
  for (const exec::MemoryReport& m : result.memory) {
    if (m.predicted_bytes == 0 && m.measured_bytes == 0) continue;
    const double ratio = static_cast<double>(m.predicted_bytes) /
                         static_cast<double>(std::max<std::int64_t>(1, m.measured_bytes));
    out += fmt::format("{:<18} {:>14} {:>14} {:>8.3f}\n",
                       fmt::format("rank {} {}, B", m.rank, tier_name(m.tier)), m.predicted_bytes,
                       m.measured_bytes, ratio);
  }
  if (steps.median > 0.0) {
    out += fmt::format("\n{} tokens/s, resident memory {}\n",
                       short_count(tokens_per_step(answer) / steps.median),
                       short_bytes(Bytes(result.rss_bytes)));
  }
  return out;
}

}  // namespace bayplan::cli
