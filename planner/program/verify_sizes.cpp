// Every buffer is as large as what it holds, by the layouts and parameter groups.
#include <optional>

#include "planner/program/verify_internal.h"

namespace bayplan::verification {
namespace {

/// Bytes that the contents of `b` take; nullopt when any size will do.
std::optional<std::int64_t> content_bytes(const Program& program, const Buffer& b) {
  if (b.region != Region::kNone) {
    const UnitLayout& layout = program.layout_of(b.unit);
    const auto index = static_cast<std::size_t>(b.region_index);
    switch (b.region) {
      case Region::kBoundaryOutput:
      case Region::kBoundaryOutputGradient:
        return index < layout.boundary_output_bytes.size() ? layout.boundary_output_bytes[index]
                                                           : 0;
      case Region::kSavedForInput:
        return layout.saved_for_input_bytes;
      case Region::kSavedForWeight:
        return layout.saved_for_weight_bytes;
      case Region::kGradientStash:
        return layout.split.stash_bytes;
      case Region::kRecomputedForInput:
        return layout.recomputed_for_input_bytes;
      case Region::kRecomputedForWeight:
        return layout.recomputed_for_weight_bytes;
      case Region::kExternal:
        return program.job.micro_batch * program.job.seq * dtype_size(DType::kInt32);
      case Region::kNone:
      case Region::kBoundaryInput:
      case Region::kScratch:
      case Region::kLoss:
      case Region::kBoundaryInputGradient:
        return 0;  // no buffer has these
    }
  }
  const auto group = [&]() -> const ParameterGroup& {
    return program.parameter_groups[b.parameter_group.index()];
  };
  const Precision& precision = program.job.precision;
  switch (b.role) {
    case BufferRole::kParameters:
      return (b.tier == Tier::kHost ? group().shard_elements : group().parameter_elements) *
             dtype_size(group().dtype);
    case BufferRole::kGatheredParameters:
      return group().padded_elements * dtype_size(group().dtype);
    case BufferRole::kGradients:
      return (b.tier == Tier::kHost ? group().shard_elements : group().gradient_elements) *
             dtype_size(precision.gradient);
    case BufferRole::kUnitGradients:
      return group().padded_elements * dtype_size(precision.gradient);
    case BufferRole::kMaster:
    case BufferRole::kMoment1:
    case BufferRole::kMoment2:
      return group().shard_elements * dtype_size(precision.state);
    case BufferRole::kScalars:
      return static_cast<std::int64_t>((1 + program.parameter_groups.size()) * sizeof(double));
    case BufferRole::kWorkspace:
      return std::nullopt;
    case BufferRole::kActivation:
    case BufferRole::kSaved:
    case BufferRole::kActivationGradient:
    case BufferRole::kLogits:
    case BufferRole::kRecomputed:
      return 0;  // these have a region
  }
  return 0;
}

}  // namespace

void check_buffer_sizes(const Program& program, const RankClass& rank_class, int rank,
                        Findings& findings) {
  for (std::size_t b = 0; b < rank_class.buffers.size() && !findings.full(); ++b) {
    const Buffer& buffer = rank_class.buffers[b];
    const std::optional<std::int64_t> bytes = content_bytes(program, buffer);
    if (!bytes || *bytes == buffer.bytes) continue;
    findings.add(Violation::kSizeMismatch, ProgramKind::kTrainStep, rank, {},
                 describe(rank_class, BufferId(b)) + " has " + std::to_string(buffer.bytes) +
                     " bytes, what it holds takes " + std::to_string(*bytes));
  }
}

}  // namespace bayplan::verification
