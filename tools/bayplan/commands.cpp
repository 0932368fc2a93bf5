#include <array>

#include "tools/bayplan/command.h"

namespace bayplan::cli {

std::span<const Command> commands() {
  static constexpr std::array<Command, 9> kTable = {{
      {"fit",
       "Does this job fit, where is the peak, and what is the cheapest change that makes it fit?",
       declare_fit},
      {"plan", "Which placement is fastest, and what was it chosen from?", declare_plan},
      {"simulate", "Step time, tokens/s, MFU and memory of each rank over time of a plan.",
       declare_simulate},
      {"run", "Train it: a plan, or MODEL CLUSTER with fixed defaults.", declare_run},
      {"compare", "Where was the prediction wrong, by instruction kind, stream and rank?",
       declare_compare},
      {"compare-state", "How far are two dumped training states apart, tensor by tensor?",
       declare_compare_state},
      {"verify", "Is the program sound: no deadlock, matched sizes, memory within budget?",
       declare_verify},
      {"calibrate",
       "Measure this machine (GEMM, attention, memory, messages) into a calibration file.",
       declare_calibrate},
      {"presets", "What is known, with sources: models, hardware, runtimes, schedules.",
       declare_presets},
  }};
  return kTable;
}

}  // namespace bayplan::cli
