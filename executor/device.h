// Device: one of the four virtual seams. Executes the compute of a Program on arena memory.
// Implementations: null (touches nothing; dry runs, conformance), torch (CPU, CUDA).
// It decides nothing: order, buffers and sizes all come from the Program.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "planner/program/program.h"

namespace bayplan::exec {

/// Everything a compute instruction may need. Pointers of the step are valid during the call.
struct ComputeCall {
  const Program* program = nullptr;
  const RankClass* rank_class = nullptr;
  const InstructionList* list = nullptr;
  const Instruction* instruction = nullptr;
  ProgramKind kind = ProgramKind::kTrainStep;
  int rank = 0;
  std::int64_t step = 0;       // optimizer step, from 0; keys the dropout masks
  double learning_rate = 0.0;  // of this step
  std::array<std::byte*, kTierCount> arenas{};
};

/// Start of the bytes that `access` touches (bounds follow from touched_bytes()).
std::byte* access_data(const ComputeCall& call, const Access& access);
/// First access of the instruction to a buffer in `region` (and region_index); nullptr if none.
const Access* find_access(const ComputeCall& call, Region region, std::int32_t region_index = 0);
/// First access to a buffer with this role (and, if valid, parameter group); nullptr if none.
const Access* find_access(const ComputeCall& call, BufferRole role, ParameterGroupId group = {});

class Device {
 public:
  virtual ~Device() = default;
  /// Memory of `bytes` on `tier`, aligned to kTensorAlignment, zeroed. Freed with the device.
  virtual std::byte* allocate_arena(Tier tier, std::int64_t bytes) = 0;
  /// Called once by the thread that will execute, before the first instruction.
  virtual void attach(const Program& program, int rank) = 0;

  virtual void initialize(const ComputeCall& call) = 0;
  /// ids and labels: [micro_batch · seq] each, host memory.
  virtual void load_micro_batch(const ComputeCall& call, const std::int32_t* ids,
                                const std::int32_t* labels) = 0;
  virtual void unit_compute(const ComputeCall& call) = 0;
  /// Adds a micro-batch's reduced gradient to the step's, or starts the sum with it.
  virtual void accumulate(const ComputeCall& call) = 0;
  virtual void gradient_norm(const ComputeCall& call) = 0;
  /// Returns false when the update was skipped (gradient scale not finite).
  virtual bool optimizer_step(const ComputeCall& call) = 0;

  /// Allocations seen by the allocator hook since attach: bytes used in the workspace region
  /// (maximum over calls). 0 where nothing allocates.
  virtual std::int64_t workspace_used() const = 0;
  /// Whether the last call allocated in its workspace region.
  virtual bool last_call_used_workspace() const = 0;
};

}  // namespace bayplan::exec
