// Symbolic arena contents of null_run(): which value every byte range of one rank's tiers holds,
// and which buffers are alive. Not for real memory (memory/arena.h).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "executor/null_run.h"
#include "planner/program/program.h"

namespace bayplan::exec {

constexpr std::uint64_t hash_mix(std::uint64_t h, std::uint64_t v) {
  h ^= v + 0x9E3779B97F4A7C15ull + (h << 6) + (h >> 2);
  h *= 0xBF58476D1CE4E5B9ull;
  return h ^ (h >> 29);
}

/// What a buffer is, apart from where it lies: equal for the same tensor in different programs.
std::uint64_t buffer_identity(const Buffer& buffer);

class NullValues {
 public:
  using Report = std::function<void(NullFault, std::string)>;

  /// With `initialized`, persistent buffers start with a value of their own.
  NullValues(const RankClass& rank_class, int rank, bool initialized);

  /// Hash of what bytes [begin, end) of the buffer hold; reports bad reads.
  std::uint64_t read(BufferId buffer, ByteInterval bytes, const Report& report);
  /// The range holds `value` from now on; reports writes over other live buffers. `poison`: what
  /// it holds is unspecified, so reading it is a fault.
  void write(BufferId buffer, ByteInterval bytes, std::uint64_t value, bool poison,
             const Report& report);
  /// The range becomes a copy of `source`'s range, value by value. Sizes must be equal.
  void copy_from(const NullValues& source, BufferId source_buffer, ByteInterval source_bytes,
                 BufferId buffer, ByteInterval bytes, const Report& report);
  void release(BufferId buffer, const Report& report);
  std::uint64_t state() const;

 private:
  /// Bytes [begin, end) of a tier hold bytes [begin - origin, end - origin) of `value`.
  struct Run {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::int64_t origin = 0;
    std::uint64_t value = 0;
    std::int32_t buffer = -1;
    bool poison = false;
  };
  using Runs = std::vector<Run>;  // sorted, disjoint

  std::optional<ByteInterval> locate(BufferId buffer, ByteInterval bytes,
                                     const Report& report) const;
  Runs& runs(BufferId buffer) { return tiers_[static_cast<std::size_t>(tier(buffer))]; }
  const Runs& runs(BufferId buffer) const { return tiers_[static_cast<std::size_t>(tier(buffer))]; }
  Tier tier(BufferId buffer) const { return buffers_[buffer.index()].tier; }
  void bring_to_life(BufferId buffer, const Report& report);
  void check_overwrite(BufferId buffer, ByteInterval at, const Report& report) const;
  void replace(Runs& all, ByteInterval at, const Run* with, std::size_t count);
  std::uint64_t hash_range(const Runs& all, ByteInterval at) const;

  enum class Life : std::uint8_t { kUnborn, kAlive, kReleased };
  const std::vector<Buffer>& buffers_;
  std::vector<Life> life_;
  std::vector<BufferId> transient_alive_;
  std::array<Runs, kTierCount> tiers_;
  Runs scratch_;
};

}  // namespace bayplan::exec
