#include "simulator/report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace bayplan::sim {
namespace {

struct Sum {
  std::int64_t events = 0;
  std::int64_t picoseconds = 0;
};

struct Sums {
  std::vector<Sum> kinds, streams, ranks;
  std::int64_t steps = 0;
};

/// Sums over all steps of a timeline.
Sums sum_up(const TimelineLabels& labels, const Timeline& timeline) {
  Sums sums;
  sums.kinds.resize(kInstructionKindCount);
  sums.streams.resize(kStreamCount);
  sums.ranks.resize(labels.rank_class.size());
  std::int32_t last_step = -1;
  for (const TimelineEvent& e : timeline.events) {
    if (e.step != last_step) {
      ++sums.steps;
      last_step = e.step;
    }
    const auto rank = static_cast<std::size_t>(e.rank);
    const auto& list = labels.classes[static_cast<std::size_t>(labels.rank_class[rank])];
    const InstructionLabel& label = list[e.instruction.index()];
    for (Sum* sum : {&sums.kinds[static_cast<std::size_t>(label.kind)],
                     &sums.streams[static_cast<std::size_t>(label.stream)], &sums.ranks[rank]}) {
      ++sum->events;
      sum->picoseconds += e.end.value - e.start.value;
    }
  }
  return sums;
}

template <class NameOf>
std::vector<ComparisonRow> rows(const std::vector<Sum>& predicted, std::int64_t predicted_steps,
                                const std::vector<Sum>& measured, std::int64_t measured_steps,
                                const NameOf& name_of) {
  std::vector<ComparisonRow> out;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    if (predicted[i].events == 0 && measured[i].events == 0) continue;
    ComparisonRow row;
    row.name = name_of(i);
    row.instructions = predicted[i].events / predicted_steps;
    row.predicted = to_seconds(Picoseconds(predicted[i].picoseconds / predicted_steps));
    row.measured = to_seconds(Picoseconds(measured[i].picoseconds / measured_steps));
    out.push_back(row);
  }
  return out;
}

Seconds mean(const std::vector<Picoseconds>& times) {
  if (times.empty()) return Seconds(0.0);
  Seconds sum;
  for (const Picoseconds t : times) sum += to_seconds(t);
  return Seconds(sum.value / static_cast<double>(times.size()));
}

Seconds median(std::vector<Picoseconds> times) {
  if (times.empty()) return Seconds(0.0);
  std::sort(times.begin(), times.end());
  return to_seconds(times[times.size() / 2]);
}

void add_table(fmt::memory_buffer& out, std::string_view title,
               const std::vector<ComparisonRow>& table) {
  fmt::format_to(std::back_inserter(out), "{:<18}{:>8}{:>14}{:>14}{:>8}\n", title, "count",
                 "predicted", "measured", "ratio");
  for (const ComparisonRow& row : table) {
    fmt::format_to(std::back_inserter(out), "  {:<16}{:>8}{:>11.3f} ms{:>11.3f} ms{:>8.2f}\n",
                   row.name, row.instructions, row.predicted.value * 1e3, row.measured.value * 1e3,
                   row.ratio());
  }
}

}  // namespace

Result<Comparison> compare_timelines(const TimelineLabels& labels, const Timeline& predicted,
                                     const Timeline& measured) {
  if (predicted.fingerprint != measured.fingerprint || predicted.program != measured.program) {
    return Error{
        "different-programs",
        fmt::format("the prediction is of {} of program {:016x}, the measurement of {} of {:016x}",
                    program_kind_name(predicted.program), predicted.fingerprint,
                    program_kind_name(measured.program), measured.fingerprint),
        "fingerprint", "simulate and run the same plan"};
  }
  for (const Timeline* t : {&predicted, &measured}) {
    if (!t->events.empty()) continue;
    return Error{
        "empty-timeline",
        std::string("the ") + (t == &predicted ? "prediction" : "measurement") + " has no events",
        "events", "write the timeline with `simulate --timeline` or `run --out`"};
  }
  const Sums p = sum_up(labels, predicted);
  const Sums m = sum_up(labels, measured);
  Comparison c;
  c.predicted_step = mean(predicted.step_times);
  c.measured_step = median(measured.step_times);
  c.kinds = rows(p.kinds, p.steps, m.kinds, m.steps, [](std::size_t i) {
    return std::string(instruction_name(static_cast<InstructionKind>(i)));
  });
  c.streams = rows(p.streams, p.steps, m.streams, m.steps,
                   [](std::size_t i) { return std::string(stream_name(static_cast<Stream>(i))); });
  c.ranks = rows(p.ranks, p.steps, m.ranks, m.steps,
                 [](std::size_t i) { return "rank " + std::to_string(i); });
  return c;
}

std::string comparison_text(const Comparison& comparison) {
  fmt::memory_buffer out;
  fmt::format_to(std::back_inserter(out),
                 "step: predicted {:.3f} ms, measured {:.3f} ms, ratio {:.2f}\n",
                 comparison.predicted_step.value * 1e3, comparison.measured_step.value * 1e3,
                 comparison.step_ratio());
  add_table(out, "instruction", comparison.kinds);
  add_table(out, "stream", comparison.streams);
  add_table(out, "rank", comparison.ranks);
  return fmt::to_string(out);
}

}  // namespace bayplan::sim
