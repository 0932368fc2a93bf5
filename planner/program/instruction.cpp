#include "planner/program/instruction.h"

namespace bayplan {

std::string_view instruction_name(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kInitialize:
      return "initialize";
    case InstructionKind::kLoadMicroBatch:
      return "load_micro_batch";
    case InstructionKind::kForward:
      return "forward";
    case InstructionKind::kBackward:
      return "backward";
    case InstructionKind::kBackwardInput:
      return "backward_input";
    case InstructionKind::kBackwardWeight:
      return "backward_weight";
    case InstructionKind::kRecompute:
      return "recompute";
    case InstructionKind::kSendActivation:
      return "send_activation";
    case InstructionKind::kRecvActivation:
      return "recv_activation";
    case InstructionKind::kSendGradient:
      return "send_gradient";
    case InstructionKind::kRecvGradient:
      return "recv_gradient";
    case InstructionKind::kAllGather:
      return "all_gather";
    case InstructionKind::kReduceScatter:
      return "reduce_scatter";
    case InstructionKind::kAllReduce:
      return "all_reduce";
    case InstructionKind::kAllToAll:
      return "all_to_all";
    case InstructionKind::kBroadcast:
      return "broadcast";
    case InstructionKind::kPrefetch:
      return "prefetch";
    case InstructionKind::kOffload:
      return "offload";
    case InstructionKind::kRelease:
      return "release";
    case InstructionKind::kGradientNorm:
      return "gradient_norm";
    case InstructionKind::kOptimizerStep:
      return "optimizer_step";
    case InstructionKind::kEndStep:
      return "end_step";
    case InstructionKind::kAccumulate:
      return "accumulate";
  }
  return "?";
}

std::string_view stream_name(Stream stream) {
  switch (stream) {
    case Stream::kCompute:
      return "compute";
    case Stream::kGather:
      return "gather";
    case Stream::kReduce:
      return "reduce";
    case Stream::kP2p:
      return "p2p";
    case Stream::kH2d:
      return "h2d";
    case Stream::kD2h:
      return "d2h";
    case Stream::kNvme:
      return "nvme";
    case Stream::kHost:
      return "host";
  }
  return "?";
}

std::string_view purpose_name(Purpose purpose) {
  switch (purpose) {
    case Purpose::kNone:
      return "none";
    case Purpose::kParams:
      return "params";
    case Purpose::kGrads:
      return "grads";
    case Purpose::kTiedGrads:
      return "tied_grads";
    case Purpose::kNorm:
      return "norm";
    case Purpose::kLoss:
      return "loss";
    case Purpose::kCheckpoint:
      return "checkpoint";
    case Purpose::kActivations:
      return "activations";
  }
  return "?";
}

}  // namespace bayplan
