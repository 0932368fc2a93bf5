// Time of one instruction that needs no partner: its operators, or the bytes it streams.
// Not for: calls between ranks (communication_cost).
#pragma once

#include <vector>

#include "planner/core/cluster.h"
#include "planner/cost/calibration.h"
#include "planner/cost/operator_shapes.h"
#include "planner/program/program.h"
#include "simulator/cost/cost_model.h"

namespace bayplan::sim {

/// What a rank's device is known by: a specification, or a calibration of the machine.
struct DeviceCosts {
  const DeviceSpec* device = nullptr;
  Link host_link;
  BytesPerSecond host_bandwidth;  // of the host's memory, this device's share; 0 = unknown
  const Calibration* calibration = nullptr;  // nullptr: roofline
};

/// Costs the instructions of one program on one kind of device; keeps what it computed per unit
/// class and phase.
class InstructionCosts {
 public:
  InstructionCosts(const Program& program, const DeviceCosts& device);
  ComputeCost operator()(int rank_class, const InstructionList& list,
                         const Instruction& instruction) const;

 private:
  /// Seconds while all cores are busy and while the others idle, and the calls they consist of.
  struct PhaseTime {
    double busy = 0.0;
    double alone = 0.0;
    int calls = 0;
  };
  struct UnitTimes {
    PhaseTime forward, recompute, fused_input, split_input, backward_weight;
  };

  friend struct InstructionCoster;
  PhaseTime time_phase(const OperatorView& view, Phase phase) const;
  void add_backward_input(PhaseTime& to, const OperatorView& view,
                          const OperatorGradients& gradients) const;
  static void add(PhaseTime& to, const PhaseTime& more);
  ComputeCost finish(PhaseTime time) const;
  PhaseTime streamed(double busy_seconds) const;
  double zeroed_seconds(int rank_class, const InstructionList& list,
                        const Instruction& instruction) const;
  double gradient_elements(int rank_class, const InstructionList& list,
                           const Instruction& instruction) const;
  double norm_seconds(int rank_class, const InstructionList& list,
                      const Instruction& instruction) const;
  double update_seconds(int rank_class, const InstructionList& list,
                        const Instruction& instruction) const;
  double bytes_moved(const InstructionList& list, const Instruction& instruction) const;
  double touched(const InstructionList& list, const Instruction& instruction) const;

  const Program* program_;
  DeviceCosts device_;
  StreamRates rates_;
  std::vector<UnitTimes> units_;
};

/// Rates of `dtype`, or of the nearest dtype measured; zero rates when nothing was.
StreamRates stream_rates(const Calibration& calibration, DType dtype);

}  // namespace bayplan::sim
