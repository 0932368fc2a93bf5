// A Device with real memory whose "operators" write a hash of the bytes they read: the cheapest
// computation whose result shows every wrong, missing, late or misplaced byte.
#pragma once

#include <cstring>
#include <vector>

#include "executor/device.h"
#include "executor/run.h"

namespace bayplan::exec::test {

class HashDevice final : public Device {
 public:
  std::byte* allocate_arena(Tier, std::int64_t bytes) override {
    // 64-bit words, so that the arena is aligned for every element type.
    arenas_.emplace_back(static_cast<std::size_t>(bytes + 7) / 8, 0);
    return reinterpret_cast<std::byte*>(arenas_.back().data());
  }
  void attach(const Program&, int) override {}

  /// Parameters depend on their logical position only; moments are zero.
  void initialize(const ComputeCall& call) override {
    const ParameterGroup& group =
        call.program->parameter_groups[call.instruction->parameter_group.index()];
    for (const BufferRole role : {BufferRole::kParameters, BufferRole::kMaster}) {
      const Access* access = find_access(call, role);
      if (access == nullptr) continue;
      const std::int64_t size = dtype_size(state_dtype(*call.program, role));
      const Buffer& buffer = call.rank_class->buffers[access->buffer.index()];
      const bool is_shard = buffer.bytes < group.padded_elements * size;
      const std::int64_t first =
          is_shard ? shard_index(*call.program, group, call.rank) * group.shard_elements * size : 0;
      std::byte* out = access_data(call, *access);
      for (std::int64_t i = 0; i < access->bytes; ++i) {
        out[i] = static_cast<std::byte>(
            mix(static_cast<std::uint64_t>(call.instruction->parameter_group.value),
                static_cast<std::uint64_t>(first + i)));
      }
    }
    for (const BufferRole role : {BufferRole::kMoment1, BufferRole::kMoment2}) {
      const Access* access = find_access(call, role);
      if (access != nullptr)
        std::memset(access_data(call, *access), 0, static_cast<std::size_t>(access->bytes));
    }
  }
  void load_micro_batch(const ComputeCall& call, const std::int32_t* ids,
                        const std::int32_t* labels) override {
    for (const Access& access : accesses(call)) {
      const Buffer& b = call.rank_class->buffers[access.buffer.index()];
      std::memcpy(access_data(call, access), b.region_index == 0 ? ids : labels,
                  static_cast<std::size_t>(access.bytes));
    }
  }
  void unit_compute(const ComputeCall& call) override { hash_step(call, 1); }

  void accumulate(const ComputeCall& call) override { hash_step(call, 5); }
  /// A real sum of the gradients, as the next all_reduce really adds the scalars up.
  void gradient_norm(const ComputeCall& call) override { hash_step(call, 2); }
  bool optimizer_step(const ComputeCall& call) override {
    hash_step(call, 3);
    return true;
  }
  std::int64_t workspace_used() const override { return 0; }
  bool last_call_used_workspace() const override { return false; }

 private:
  static std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15ull;
    return h ^ (h >> 31);
  }
  static std::span<const Access> accesses(const ComputeCall& call) {
    const Range r = call.instruction->accesses;
    return std::span(call.list->accesses)
        .subspan(static_cast<std::size_t>(r.begin), static_cast<std::size_t>(r.size()));
  }
  /// Hash of everything read, then every written element = small number made of it and of its
  /// place. Floating-point buffers get finite values, so that later sums stay exact enough to
  /// compare and never become NaN (whose bits two additions may not agree about).
  void hash_step(const ComputeCall& call, std::uint64_t salt) {
    std::uint64_t h = salt;
    for (const Access& access : accesses(call)) {
      if (access.mode == AccessMode::kWrite || workspace(call, access)) continue;
      const std::byte* at = access_data(call, access);
      for (std::int64_t i = 0; i < access.bytes; ++i) h = mix(h, static_cast<std::uint64_t>(at[i]));
    }
    for (const Access& access : accesses(call)) {
      if (access.mode == AccessMode::kRead) continue;
      std::byte* at = access_data(call, access);
      const Buffer& b = call.rank_class->buffers[access.buffer.index()];
      const bool scalars = b.role == BufferRole::kScalars;
      for (std::int64_t i = 0; i + (scalars ? 7 : 3) < access.bytes; i += scalars ? 8 : 4) {
        const std::uint64_t v = mix(h, static_cast<std::uint64_t>(i)) % 4096;
        if (scalars) {
          const auto value = static_cast<double>(v);
          std::memcpy(at + i, &value, sizeof value);
        } else {
          const auto value = static_cast<float>(v);
          std::memcpy(at + i, &value, sizeof value);
        }
      }
    }
  }
  static bool workspace(const ComputeCall& call, const Access& access) {
    return call.rank_class->buffers[access.buffer.index()].role == BufferRole::kWorkspace;
  }

  std::vector<std::vector<std::uint64_t>> arenas_;
};

inline DeviceFactory hash_devices() {
  return [](int) { return std::make_unique<HashDevice>(); };
}

}  // namespace bayplan::exec::test
