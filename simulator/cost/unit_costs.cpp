#include "simulator/cost/cost_model.h"

namespace bayplan::sim {
namespace {

bool takes_time(InstructionKind kind) {
  return kind != InstructionKind::kRelease && kind != InstructionKind::kEndStep;
}

}  // namespace

CostModel unit_costs() {
  CostModel model;
  model.compute = [](int, const InstructionList&, const Instruction& i) {
    ComputeCost cost;
    cost.time = Picoseconds(takes_time(i.kind) ? 1 : 0);
    return cost;
  };
  model.communication = [](const CommunicationCall&) {
    CommunicationCost cost;
    cost.work = Picoseconds(1);
    return cost;
  };
  model.uncertainty.provenance = Provenance::kDefault;
  return model;
}

}  // namespace bayplan::sim
