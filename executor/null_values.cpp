#include "executor/null_values.h"

#include <algorithm>

namespace bayplan::exec {
namespace {

std::string name_of(BufferId buffer) { return "b" + std::to_string(buffer.value); }

std::string range_text(ByteInterval bytes) {
  return "bytes [" + std::to_string(bytes.begin) + ", " + std::to_string(bytes.end) + ")";
}

}  // namespace

std::uint64_t buffer_identity(const Buffer& buffer) {
  std::uint64_t h =
      hash_mix(static_cast<std::uint64_t>(buffer.role), static_cast<std::uint64_t>(buffer.region));
  h = hash_mix(h, static_cast<std::uint64_t>(buffer.region_index));
  h = hash_mix(h, static_cast<std::uint64_t>(buffer.unit.value));
  h = hash_mix(h, static_cast<std::uint64_t>(buffer.micro_batch));
  return hash_mix(h, static_cast<std::uint64_t>(buffer.parameter_group.value));
}

NullValues::NullValues(const RankClass& rank_class, int rank, bool initialized)
    : buffers_(rank_class.buffers), life_(rank_class.buffers.size(), Life::kUnborn) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const Buffer& b = buffers_[i];
    if (!b.persistent) continue;
    life_[i] = Life::kAlive;
    if (!initialized || b.bytes <= 0 || static_cast<std::size_t>(b.tier) >= kTierCount) continue;
    const Run run{b.offset,
                  b.offset + b.bytes,
                  b.offset,
                  hash_mix(buffer_identity(b), static_cast<std::uint64_t>(rank) + 1),
                  static_cast<std::int32_t>(i),
                  false};
    replace(tiers_[static_cast<std::size_t>(b.tier)], {run.begin, run.end}, &run, 1);
  }
}

std::optional<ByteInterval> NullValues::locate(BufferId buffer, ByteInterval bytes,
                                               const Report& report) const {
  if (!buffer.valid() || buffer.index() >= buffers_.size()) {
    report(NullFault::kMalformed, "no buffer " + name_of(buffer));
    return std::nullopt;
  }
  const Buffer& b = buffers_[buffer.index()];
  if (bytes.begin < 0 || bytes.end > b.bytes || bytes.begin > bytes.end || b.offset < 0 ||
      static_cast<std::size_t>(b.tier) >= kTierCount) {
    report(NullFault::kMalformed, range_text(bytes) + " are outside " + name_of(buffer) + " of " +
                                      std::to_string(b.bytes) + " bytes");
    return std::nullopt;
  }
  return ByteInterval{b.offset + bytes.begin, b.offset + bytes.end};
}

std::uint64_t NullValues::hash_range(const Runs& all, ByteInterval at) const {
  std::uint64_t h = 1;
  auto it =
      std::partition_point(all.begin(), all.end(), [&](const Run& r) { return r.end <= at.begin; });
  // Neighbouring runs that continue one value count as one, so that the hash does not depend on
  // how the range was cut.
  std::uint64_t value = 0;
  std::int64_t position = 0;
  std::int64_t length = 0;
  const auto flush = [&] {
    if (length == 0) return;
    h = hash_mix(hash_mix(hash_mix(h, value), static_cast<std::uint64_t>(position)),
                 static_cast<std::uint64_t>(length));
  };
  for (; it != all.end() && it->begin < at.end; ++it) {
    const std::int64_t begin = std::max(it->begin, at.begin);
    const std::int64_t end = std::min(it->end, at.end);
    if (length > 0 && it->value == value && begin - it->origin == position + length) {
      length += end - begin;
      continue;
    }
    flush();
    value = it->value;
    position = begin - it->origin;
    length = end - begin;
  }
  flush();
  return h;
}

std::uint64_t NullValues::read(BufferId buffer, ByteInterval bytes, const Report& report) {
  const auto at = locate(buffer, bytes, report);
  if (!at) return 0;
  if (life_[buffer.index()] == Life::kReleased) {
    report(NullFault::kReleased, "reads " + name_of(buffer) + " after its release");
  }
  const Runs& all = runs(buffer);
  auto it = std::partition_point(all.begin(), all.end(),
                                 [&](const Run& r) { return r.end <= at->begin; });
  std::int64_t reached = at->begin;
  bool gap = false;
  for (; it != all.end() && it->begin < at->end; ++it) {
    gap = gap || it->begin > reached || it->poison;
    reached = it->end;
    if (it->buffer != buffer.value) {
      report(NullFault::kForeign, "reads " + range_text(bytes) + " of " + name_of(buffer) +
                                      ", which hold b" + std::to_string(it->buffer));
      break;
    }
  }
  if (gap || (reached < at->end && (it == all.end() || it->begin >= at->end))) {
    report(NullFault::kUnwritten,
           "reads " + range_text(bytes) + " of " + name_of(buffer) + " before they are written");
  }
  return hash_range(all, *at);
}

void NullValues::check_overwrite(BufferId buffer, ByteInterval at, const Report& report) const {
  const Runs& all = runs(buffer);
  auto it =
      std::partition_point(all.begin(), all.end(), [&](const Run& r) { return r.end <= at.begin; });
  for (; it != all.end() && it->begin < at.end; ++it) {
    if (it->buffer != buffer.value && life_[static_cast<std::size_t>(it->buffer)] == Life::kAlive) {
      report(NullFault::kOverwrite, "writes " + name_of(buffer) + " over b" +
                                        std::to_string(it->buffer) + ", which is alive");
      return;
    }
  }
}

void NullValues::bring_to_life(BufferId buffer, const Report& report) {
  Life& life = life_[buffer.index()];
  if (life == Life::kReleased) {
    report(NullFault::kReleased, "writes " + name_of(buffer) + " after its release");
    return;
  }
  if (life == Life::kAlive) return;
  life = Life::kAlive;
  const Buffer& b = buffers_[buffer.index()];
  for (const BufferId other : transient_alive_) {
    const Buffer& o = buffers_[other.index()];
    if (o.tier == b.tier && o.offset < b.offset + b.bytes && b.offset < o.offset + o.bytes) {
      report(NullFault::kOverwrite,
             name_of(buffer) + " comes to life over " + name_of(other) + ", which is alive");
    }
  }
  transient_alive_.push_back(buffer);
}

void NullValues::write(BufferId buffer, ByteInterval bytes, std::uint64_t value, bool poison,
                       const Report& report) {
  const auto at = locate(buffer, bytes, report);
  if (!at) return;
  bring_to_life(buffer, report);
  check_overwrite(buffer, *at, report);
  const Run run{at->begin, at->end, at->begin, value, buffer.value, poison};
  replace(runs(buffer), *at, &run, run.begin < run.end ? 1 : 0);
}

void NullValues::copy_from(const NullValues& source, BufferId source_buffer,
                           ByteInterval source_bytes, BufferId buffer, ByteInterval bytes,
                           const Report& report) {
  const auto from = source.locate(source_buffer, source_bytes, report);
  const auto to = locate(buffer, bytes, report);
  if (!from || !to) return;
  bring_to_life(buffer, report);
  check_overwrite(buffer, *to, report);
  const Runs& all = source.runs(source_buffer);
  const std::int64_t shift = to->begin - from->begin;
  auto it = std::partition_point(all.begin(), all.end(),
                                 [&](const Run& r) { return r.end <= from->begin; });
  Runs copied;
  for (; it != all.end() && it->begin < from->end; ++it) {
    Run run = *it;
    run.begin = std::max(run.begin, from->begin) + shift;
    run.end = std::min({run.end + shift, from->end + shift, to->end});
    run.origin += shift;
    run.buffer = buffer.value;
    if (run.begin < run.end) copied.push_back(run);
  }
  replace(runs(buffer), *to, copied.data(), copied.size());
}

void NullValues::release(BufferId buffer, const Report& report) {
  if (!buffer.valid() || buffer.index() >= buffers_.size()) {
    report(NullFault::kMalformed, "no buffer " + name_of(buffer));
    return;
  }
  Life& life = life_[buffer.index()];
  if (life != Life::kAlive) {
    report(NullFault::kReleased, "releases " + name_of(buffer) + ", which is not alive");
  }
  life = Life::kReleased;
  std::erase(transient_alive_, buffer);
}

void NullValues::replace(Runs& all, ByteInterval at, const Run* with, std::size_t count) {
  const auto first =
      std::partition_point(all.begin(), all.end(), [&](const Run& r) { return r.end <= at.begin; });
  const auto last =
      std::partition_point(first, all.end(), [&](const Run& r) { return r.begin < at.end; });
  scratch_.clear();
  if (first != last && first->begin < at.begin) {
    scratch_.push_back(*first);
    scratch_.back().end = at.begin;
  }
  scratch_.insert(scratch_.end(), with, with + count);
  if (first != last && (last - 1)->end > at.end) {
    scratch_.push_back(*(last - 1));
    scratch_.back().begin = at.end;
  }
  const auto old = static_cast<std::size_t>(last - first);
  const auto position = first - all.begin();
  const std::size_t shared = std::min(old, scratch_.size());
  std::copy_n(scratch_.begin(), shared, first);
  if (scratch_.size() > old) {
    all.insert(all.begin() + position + static_cast<std::ptrdiff_t>(shared),
               scratch_.begin() + static_cast<std::ptrdiff_t>(shared), scratch_.end());
  } else {
    all.erase(all.begin() + position + static_cast<std::ptrdiff_t>(shared), last);
  }
}

std::uint64_t NullValues::state() const {
  std::uint64_t h = 0;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const Buffer& b = buffers_[i];
    if (!b.persistent || b.role == BufferRole::kWorkspace) continue;
    if (static_cast<std::size_t>(b.tier) >= kTierCount) continue;
    const Runs& all = tiers_[static_cast<std::size_t>(b.tier)];
    h = hash_mix(hash_mix(h, buffer_identity(b)), hash_range(all, {b.offset, b.offset + b.bytes}));
  }
  return h;
}

}  // namespace bayplan::exec
