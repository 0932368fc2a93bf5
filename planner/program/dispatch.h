// The one switch over instruction kinds. Every consumer of a Program goes through it, so a new
// kind does not compile until each of them says what it does with it. No `default:` on purpose.
#pragma once

#include <concepts>

#include "planner/program/instruction.h"

namespace bayplan {

/// What a consumer must handle. Arguments: the list (for side arrays) and the instruction.
template <class C>
concept ProgramConsumer = requires(C c, const InstructionList& list, const Instruction& i) {
  c.on_initialize(list, i);
  c.on_load_micro_batch(list, i);
  c.on_unit_compute(list, i);  // forward, backward, backward_input, backward_weight, recompute
  c.on_send(list, i);
  c.on_recv(list, i);
  c.on_collective(list, i);
  c.on_transfer(list, i);  // prefetch, offload
  c.on_release(list, i);
  c.on_gradient_norm(list, i);
  c.on_optimizer_step(list, i);
  c.on_end_step(list, i);
  c.on_accumulate(list, i);
};

template <ProgramConsumer C>
auto dispatch(C& consumer, const InstructionList& list, const Instruction& i)
    -> decltype(consumer.on_end_step(list, i)) {
  switch (i.kind) {
    case InstructionKind::kInitialize:
      return consumer.on_initialize(list, i);
    case InstructionKind::kLoadMicroBatch:
      return consumer.on_load_micro_batch(list, i);
    case InstructionKind::kForward:
    case InstructionKind::kBackward:
    case InstructionKind::kBackwardInput:
    case InstructionKind::kBackwardWeight:
    case InstructionKind::kRecompute:
      return consumer.on_unit_compute(list, i);
    case InstructionKind::kSendActivation:
    case InstructionKind::kSendGradient:
      return consumer.on_send(list, i);
    case InstructionKind::kRecvActivation:
    case InstructionKind::kRecvGradient:
      return consumer.on_recv(list, i);
    case InstructionKind::kAllGather:
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllReduce:
    case InstructionKind::kAllToAll:
    case InstructionKind::kBroadcast:
      return consumer.on_collective(list, i);
    case InstructionKind::kPrefetch:
    case InstructionKind::kOffload:
      return consumer.on_transfer(list, i);
    case InstructionKind::kRelease:
      return consumer.on_release(list, i);
    case InstructionKind::kGradientNorm:
      return consumer.on_gradient_norm(list, i);
    case InstructionKind::kOptimizerStep:
      return consumer.on_optimizer_step(list, i);
    case InstructionKind::kEndStep:
      return consumer.on_end_step(list, i);
    case InstructionKind::kAccumulate:
      return consumer.on_accumulate(list, i);
  }
  __builtin_unreachable();
}

}  // namespace bayplan
