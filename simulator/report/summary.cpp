#include "simulator/report/summary.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

namespace bayplan::sim {
namespace {

/// Three significant digits with a unit: "1.23 s", "45.6 ms".
std::string seconds_text(double seconds) {
  static constexpr std::array<std::pair<double, std::string_view>, 4> kUnits = {
      {{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}}};
  for (const auto& [size, unit] : kUnits) {
    if (seconds < size && size > 1e-9) continue;
    return fmt::format("{:.3g} {}", seconds / size, unit);
  }
  return "0 s";
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes >= std::int64_t{1} << 30)
    return fmt::format("{:.2f} GiB", std::ldexp(static_cast<double>(bytes), -30));
  return fmt::format("{:.2f} MiB", std::ldexp(static_cast<double>(bytes), -20));
}

void add_breakdown(fmt::memory_buffer& out, const SimulationResult& result) {
  const StepBreakdown& b = result.breakdown;
  const double total = b.total().value;
  if (total <= 0.0) return;
  const std::array<std::pair<std::string_view, Seconds>, 6> parts = {
      {{"compute", b.compute},
       {"bubble", b.bubble},
       {"exposed communication", b.exposed_communication},
       {"optimizer", b.optimizer},
       {"offload", b.offload},
       {"launch and input", b.launch}}};
  for (const auto& [name, time] : parts) {
    if (time.value <= 0.0) continue;
    const double share = time.value / total;
    fmt::format_to(std::back_inserter(out), "  {:<22}{:>10} {:>5.1f} %  {}\n", name,
                   seconds_text(time.value), share * 100.0,
                   std::string(static_cast<std::size_t>(share * 40.0 + 0.5), '#'));
  }
}

void add_memory(fmt::memory_buffer& out, const Program& program, const SimulationResult& result) {
  fmt::format_to(std::back_inserter(out), "memory (arena, live peak of this program)\n");
  for (std::size_t c = 0; c < program.classes.size(); ++c) {
    int ranks = 0;
    std::size_t example = 0;
    for (std::size_t r = program.rank_class.size(); r-- > 0;) {
      if (program.rank_class[r] != static_cast<std::int32_t>(c)) continue;
      ++ranks;
      example = r;
    }
    if (ranks == 0) continue;
    fmt::format_to(std::back_inserter(out), "  pp {}, {} {}:", program.classes[c].pp, ranks,
                   ranks == 1 ? "rank" : "ranks");
    for (std::size_t t = 0; t < kTierCount; ++t) {
      const std::int64_t arena = program.classes[c].arena_bytes[t];
      if (arena == 0) continue;
      fmt::format_to(std::back_inserter(out), "  {} {} ({})", tier_name(static_cast<Tier>(t)),
                     bytes_text(arena), bytes_text(result.memory[example].peak_live[t]));
    }
    fmt::format_to(std::back_inserter(out), "\n");
  }
}

}  // namespace

std::string summary_text(const Program& program, const SimulationResult& result) {
  fmt::memory_buffer out;
  const TimeInterval& step = result.step_time;
  fmt::format_to(std::back_inserter(out), "step {} ({} to {}, {})\n", seconds_text(step.mid.value),
                 seconds_text(step.low.value), seconds_text(step.high.value),
                 provenance_name(result.provenance));
  fmt::format_to(std::back_inserter(out), "{:.4g} tokens/s", result.tokens_per_second);
  if (result.mfu > 0.0) {
    fmt::format_to(std::back_inserter(out), ", MFU {:.1f} %, HFU {:.1f} %", result.mfu * 100.0,
                   result.hfu * 100.0);
  }
  fmt::format_to(std::back_inserter(out), "\n");
  add_breakdown(out, result);
  add_memory(out, program, result);
  return fmt::to_string(out);
}

}  // namespace bayplan::sim
