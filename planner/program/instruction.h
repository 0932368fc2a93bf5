// Instructions: what one rank does, in issue order. Semantics (docs/program.md): one host thread
// issues the list in order; an instruction joins its stream; it starts when the stream is free,
// its waits are done and, for matched instructions, all partners have reached it; a buffer lives
// from first write to release; there is no other ordering.
// Records are small and fixed; what varies in length sits in side arrays of InstructionList.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "planner/core/ids.h"

namespace bayplan {

enum class InstructionKind : std::uint8_t {
  kInitialize,  // parameters, master weights and moments of one parameter group (load program)
  kLoadMicroBatch,
  kForward,
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  kRecompute,
  kSendActivation,
  kRecvActivation,
  kSendGradient,
  kRecvGradient,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kPrefetch,
  kOffload,
  kRelease,
  kGradientNorm,  // adds one parameter group's sum of squares to the rank's fp64 partial
  kOptimizerStep,
  kEndStep,
  kAccumulate,  // adds a micro-batch's reduced gradient to the step's
};
constexpr int kInstructionKindCount = 23;

enum class Stream : std::uint8_t { kCompute, kGather, kReduce, kP2p, kH2d, kD2h, kNvme, kHost };
constexpr int kStreamCount = 8;

enum class Purpose : std::uint8_t {
  kNone,
  kParams,
  kGrads,
  kTiedGrads,
  kNorm,
  kLoss,
  kCheckpoint,
  kActivations
};

enum class AccessMode : std::uint8_t {
  kRead,
  kWrite,   // content before does not matter
  kUpdate,  // reads and writes (accumulation, in place)
};

/// One use of a buffer. With `sharded`, the bytes touched are the slice
/// [offset + i·bytes, offset + (i+1)·bytes), i the rank's index in the instruction's group (or in
/// the buffer's shard group for instructions without a group).
struct Access {
  BufferId buffer;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  AccessMode mode = AccessMode::kRead;
  bool sharded = false;
  friend bool operator==(const Access&, const Access&) = default;
};

struct Range {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

struct Instruction {
  InstructionKind kind{};
  Stream stream = Stream::kCompute;
  Purpose purpose = Purpose::kNone;
  std::int32_t stage = -1;
  std::int32_t chunk = -1;
  std::int32_t micro_batch = -1;
  UnitId unit;
  ParameterGroupId parameter_group;
  CommunicationGroupId group;    // collectives
  std::int32_t peer_stage = -1;  // sends and receives; a stage, resolved through stage_rank
  std::int32_t boundary = -1;    // sends and receives: position in the stage boundary's tensors
  std::int32_t fuse = -1;        // equal ids that are adjacent on one stream = one group call
  Range accesses;                // into InstructionList::accesses
  Range waits;                   // into InstructionList::waits
  BufferId predicate;            // skip when the buffer's first int32 is 0
  BufferId run_time_count;       // elements really moved; declared bytes are the maximum
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct InstructionList {
  std::vector<Instruction> instructions;
  std::vector<Access> accesses;
  std::vector<InstructionId> waits;
  friend bool operator==(const InstructionList&, const InstructionList&) = default;
};

std::string_view instruction_name(InstructionKind kind);
std::string_view stream_name(Stream stream);
std::string_view purpose_name(Purpose purpose);

constexpr bool is_send(InstructionKind k) {
  return k == InstructionKind::kSendActivation || k == InstructionKind::kSendGradient;
}
constexpr bool is_recv(InstructionKind k) {
  return k == InstructionKind::kRecvActivation || k == InstructionKind::kRecvGradient;
}
constexpr bool is_collective(InstructionKind k) {
  return k >= InstructionKind::kAllGather && k <= InstructionKind::kBroadcast;
}
/// True when the instruction completes only together with instructions of other ranks.
constexpr bool is_matched(InstructionKind k) {
  return is_send(k) || is_recv(k) || is_collective(k);
}

}  // namespace bayplan
