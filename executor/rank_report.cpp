#include "executor/rank_report.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <type_traits>

#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

constexpr int kReportTag = (1 << 20) + 1;  // apart from all tags of programs

template <class T>
void put(std::vector<std::byte>& out, const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::uint64_t count = values.size();
  const auto* const size = reinterpret_cast<const std::byte*>(&count);
  out.insert(out.end(), size, size + sizeof count);
  const auto* const data = reinterpret_cast<const std::byte*>(values.data());
  out.insert(out.end(), data, data + values.size() * sizeof(T));
}

template <class T>
void take(const std::vector<std::byte>& in, std::size_t& at, std::vector<T>& values) {
  std::uint64_t count = 0;
  BAYPLAN_CHECK(at + sizeof count <= in.size(), "truncated rank report");
  std::memcpy(&count, in.data() + at, sizeof count);
  at += sizeof count;
  BAYPLAN_CHECK(count <= (in.size() - at) / sizeof(T), "truncated rank report");
  values.resize(count);
  std::memcpy(values.data(), in.data() + at, count * sizeof(T));
  at += count * sizeof(T);
}

}  // namespace

std::vector<MemoryReport> memory_reports(const Program& program, int rank, const ArenaUse& use,
                                         std::int64_t workspace_used) {
  std::vector<MemoryReport> out;
  const RankClass& rank_class = program.class_of(rank);
  for (std::size_t t = 0; t < kTierCount; ++t) {
    if (rank_class.arena_bytes[t] <= 0) continue;
    MemoryReport report;
    report.rank = rank;
    report.tier = static_cast<Tier>(t);
    report.predicted_bytes = rank_class.arena_bytes[t];
    report.measured_bytes = use.high_water(report.tier);
    if (report.tier == Tier::kDevice) {
      report.workspace_declared_bytes = use.workspace_declared();
      report.workspace_used_bytes = workspace_used;
    }
    out.push_back(report);
  }
  return out;
}

std::vector<WireReport> wire_reports(const Program& program, int rank,
                                     const std::array<std::int64_t, kProgramKindCount>& executions,
                                     const std::vector<WireCount>& sent) {
  std::map<std::pair<InstructionKind, Purpose>, WireReport> reports;
  for (std::size_t k = 0; k < kProgramKindCount; ++k) {
    if (executions[k] == 0) continue;
    const InstructionList& list = program.list(rank, static_cast<ProgramKind>(k));
    for (const Instruction& i : list.instructions) {
      if (!is_matched(i.kind) || is_recv(i.kind)) continue;
      reports[{i.kind, i.purpose}].predicted_bytes +=
          executions[k] * sent_bytes(program, rank, list, i);
    }
  }
  for (const WireCount& count : sent) {
    reports[{count.collective, count.purpose}].sent_bytes += count.bytes;
  }
  std::vector<WireReport> out;
  for (auto& [key, report] : reports) {
    if (report.predicted_bytes == 0 && report.sent_bytes == 0) continue;
    report.rank = rank;
    report.collective = key.first;
    report.purpose = key.second;
    out.push_back(report);
  }
  return out;
}

std::vector<RankReport> gather_reports(Communicator& communicator, const RankReport& own) {
  const int world = communicator.world_size();
  std::vector<std::byte> packed;
  put(packed, own.memory);
  put(packed, own.wire);
  put(packed, own.events);
  put(packed, own.samples);
  const auto message = [&](bool send, int peer, void* data, std::size_t bytes) {
    return Message{send,
                   peer,
                   kReportTag,
                   static_cast<std::byte*>(data),
                   static_cast<std::int64_t>(bytes),
                   InstructionKind::kOffload,
                   Purpose::kNone};
  };
  const CallSite site{0, "gather of the ranks' reports", Purpose::kNone};
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world), 0);
  std::uint64_t own_size = packed.size();
  if (communicator.rank() != 0) {
    const std::array<Message, 1> size = {message(true, 0, &own_size, sizeof own_size)};
    communicator.exchange(site, size);
    const std::array<Message, 1> body = {message(true, 0, packed.data(), packed.size())};
    communicator.exchange(site, body);
    return {};
  }
  std::vector<Message> receives;
  for (int r = 1; r < world; ++r) {
    receives.push_back(message(false, r, &sizes[static_cast<std::size_t>(r)], sizeof own_size));
  }
  communicator.exchange(site, receives);
  std::vector<std::vector<std::byte>> bodies(static_cast<std::size_t>(world));
  receives.clear();
  for (int r = 1; r < world; ++r) {
    std::vector<std::byte>& body = bodies[static_cast<std::size_t>(r)];
    body.resize(sizes[static_cast<std::size_t>(r)]);
    receives.push_back(message(false, r, body.data(), body.size()));
  }
  communicator.exchange(site, receives);
  std::vector<RankReport> reports = {own};
  for (int r = 1; r < world; ++r) {
    const std::vector<std::byte>& body = bodies[static_cast<std::size_t>(r)];
    if (body.empty()) continue;  // a communicator without data
    RankReport report;
    report.rank = r;
    std::size_t at = 0;
    take(body, at, report.memory);
    take(body, at, report.wire);
    take(body, at, report.events);
    take(body, at, report.samples);
    reports.push_back(std::move(report));
  }
  return reports;
}

Timeline merge_timelines(const Program& program, const std::vector<RankReport>& reports) {
  Timeline timeline;
  timeline.fingerprint = program.fingerprint;
  timeline.program = ProgramKind::kTrainStep;
  timeline.measured = true;
  for (const RankReport& report : reports) {
    timeline.events.insert(timeline.events.end(), report.events.begin(), report.events.end());
    timeline.memory.insert(timeline.memory.end(), report.samples.begin(), report.samples.end());
  }
  std::stable_sort(timeline.events.begin(), timeline.events.end(),
                   [](const TimelineEvent& a, const TimelineEvent& b) {
                     return std::pair(a.step, a.rank) < std::pair(b.step, b.rank);
                   });
  std::stable_sort(timeline.memory.begin(), timeline.memory.end(),
                   [](const MemorySample& a, const MemorySample& b) {
                     return std::tuple(a.rank, a.tier, a.time) < std::tuple(b.rank, b.tier, b.time);
                   });
  for (std::size_t i = 0; i < timeline.events.size();) {
    const std::int32_t step = timeline.events[i].step;
    Picoseconds first = timeline.events[i].start;
    Picoseconds last = timeline.events[i].end;
    for (; i < timeline.events.size() && timeline.events[i].step == step; ++i) {
      first = std::min(first, timeline.events[i].start);
      last = std::max(last, timeline.events[i].end);
    }
    timeline.step_times.push_back(last - first);
  }
  return timeline;
}

std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace bayplan::exec
