#include "simulator/report/perfetto.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <vector>

#include "simulator/engine/class_graph.h"

namespace bayplan::sim {
namespace {

/// Picoseconds as exact microseconds.
struct Microseconds {
  std::int64_t ps = 0;
};

void append(fmt::memory_buffer& out, Microseconds t) {
  fmt::format_to(std::back_inserter(out), "{}.{:06d}", t.ps / 1'000'000, t.ps % 1'000'000);
}

class TraceWriter {
 public:
  TraceWriter(const Program& program, const Timeline& timeline)
      : program_(program), timeline_(timeline) {
    for (std::size_t c = 0; c < program.classes.size(); ++c) {
      graphs_.push_back(build_class_graph(program, static_cast<int>(c), timeline.program,
                                          ExecutionStyle::kAsynchronous));
    }
    matching_ = match_endpoints(program, graphs_);
    mark_streams();
  }

  std::string write() {
    text(
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"fingerprint\":\"{:016x}\",\"program\":\"{}"
        "\","
        "\"source\":\"{}\"}},\n\"traceEvents\":[",
        program_.fingerprint, program_kind_name(timeline_.program),
        timeline_.measured ? "measured" : "predicted");
    for (int rank = 0; rank < program_.world_size(); ++rank) write_names(rank);
    for (const TimelineEvent& e : timeline_.events) write_slice(e);
    for (const MemorySample& s : timeline_.memory) write_counter(s);
    write_flows();
    text("\n]}}\n");
    return fmt::to_string(out_);
  }

 private:
  template <class... Args>
  void text(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void begin_event() {
    text("{}", first_ ? "\n" : ",\n");
    first_ = false;
  }

  void mark_streams() {
    used_.resize(static_cast<std::size_t>(program_.world_size()));
    for (const TimelineEvent& e : timeline_.events) {
      const Instruction& i = instruction(e);
      used_[static_cast<std::size_t>(e.rank)][static_cast<std::size_t>(i.stream)] = true;
    }
  }

  const InstructionList& list(std::int32_t rank) const {
    return program_.list(rank, timeline_.program);
  }
  const Instruction& instruction(const TimelineEvent& e) const {
    return list(e.rank).instructions[e.instruction.index()];
  }

  void write_names(int rank) {
    const MeshCoordinate at = program_.mesh.coordinate(rank);
    begin_event();
    text(
        "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":\"rank {0} (pp "
        "{1}, dp {2})\"}}}}",
        rank, at.pp(), at.dp());
    begin_event();
    text(
        "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{0},\"args\":{{\"sort_index\":{0}}}"
        "}}",
        rank);
    for (int s = 0; s < kStreamCount; ++s) {
      if (!used_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(s)]) continue;
      begin_event();
      text(
          "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}"
          "\"}}}}",
          rank, s, stream_name(static_cast<Stream>(s)));
      begin_event();
      text(
          "{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{0},\"tid\":{1},\"args\":{{\"sort_"
          "index\":{1}}}}}",
          rank, s);
    }
  }

  void write_label(const Instruction& i) {
    text("{}", instruction_name(i.kind));
    if (i.purpose != Purpose::kNone) text(" {}", purpose_name(i.purpose));
    if (i.unit.valid()) text(" {}", program_.units[i.unit.index()].name);
    if (i.micro_batch >= 0) text(" mb {}", i.micro_batch);
  }

  std::int64_t bytes_of(const TimelineEvent& e, const Instruction& i) const {
    if (is_matched(i.kind)) {
      const CollectivePayload payload = collective_payload(program_, e.rank, list(e.rank), i);
      return payload.bytes.end - payload.bytes.begin;
    }
    std::int64_t sum = 0;
    for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
      sum += list(e.rank).accesses[static_cast<std::size_t>(a)].bytes;
    }
    return sum;
  }

  void write_slice(const TimelineEvent& e) {
    const Instruction& i = instruction(e);
    if (i.kind == InstructionKind::kRelease) return;
    begin_event();
    text("{{\"ph\":\"X\",\"name\":\"");
    write_label(i);
    text("\",\"cat\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":", instruction_name(i.kind), e.rank,
         static_cast<int>(i.stream));
    append(out_, {e.start.value});
    text(",\"dur\":");
    append(out_, {e.end.value - e.start.value});
    text(",\"args\":{{\"instruction\":{},\"step\":{},\"bytes\":{}", e.instruction.value, e.step,
         bytes_of(e, i));
    if (i.stage >= 0) text(",\"stage\":{}", i.stage);
    if (i.unit.valid()) text(",\"unit\":{}", i.unit.value);
    if (i.micro_batch >= 0) text(",\"micro_batch\":{}", i.micro_batch);
    if (i.group.valid())
      text(",\"group\":\"{}\"", program_.communication_groups[i.group.index()].name);
    text(",\"waited_us\":");
    append(out_, {std::max<std::int64_t>(0, e.start.value - e.ready.value)});
    text("}}}}");
  }

  void write_counter(const MemorySample& s) {
    begin_event();
    text("{{\"ph\":\"C\",\"name\":\"{} memory\",\"pid\":{},\"ts\":", tier_name(s.tier), s.rank);
    append(out_, {s.time.value});
    text(",\"args\":{{\"live_bytes\":{}}}}}", s.live_bytes);
  }

  void write_flows() {
    // Position of each (step, rank)'s first event. Lists are recorded whole.
    std::vector<std::vector<std::size_t>> first(static_cast<std::size_t>(program_.world_size()));
    for (std::size_t k = 0; k < timeline_.events.size(); ++k) {
      const TimelineEvent& e = timeline_.events[k];
      const bool opens = k == 0 || timeline_.events[k - 1].rank != e.rank ||
                         timeline_.events[k - 1].step != e.step;
      if (opens) first[static_cast<std::size_t>(e.rank)].push_back(k);
    }
    std::int64_t id = 0;
    for (const Match& match : matching_.matches) {
      const MatchMember& from = matching_.members[static_cast<std::size_t>(match.members.begin)];
      const std::size_t sends = instruction_of(from);
      if (match.members.size() != 2 || !is_send(list(from.rank).instructions[sends].kind)) continue;
      const MatchMember& to = matching_.members[static_cast<std::size_t>(match.members.begin) + 1];
      const auto& from_steps = first[static_cast<std::size_t>(from.rank)];
      const auto& to_steps = first[static_cast<std::size_t>(to.rank)];
      for (std::size_t s = 0; s < std::min(from_steps.size(), to_steps.size()); ++s) {
        write_flow(++id, from_steps[s] + sends, to_steps[s] + instruction_of(to));
      }
    }
  }

  std::size_t instruction_of(const MatchMember& m) const {
    const auto c = static_cast<std::size_t>(program_.rank_class[static_cast<std::size_t>(m.rank)]);
    return static_cast<std::size_t>(
        graphs_[c].endpoints[static_cast<std::size_t>(m.endpoint)].instruction);
  }

  /// The arrow leaves at the send's start and arrives just inside the receive's slice.
  void write_flow(std::int64_t id, std::size_t send, std::size_t receive) {
    if (send >= timeline_.events.size() || receive >= timeline_.events.size()) return;
    const TimelineEvent& from = timeline_.events[send];
    const TimelineEvent& to = timeline_.events[receive];
    const std::int64_t arrives = std::max(to.start.value, to.end.value - 1);
    begin_event();
    text(
        "{{\"ph\":\"s\",\"id\":{},\"name\":\"message\",\"cat\":\"message\",\"pid\":{},\"tid\":{},"
        "\"ts\":",
        id, from.rank, static_cast<int>(instruction(from).stream));
    append(out_, {std::min(from.start.value, arrives)});
    text("}}");
    begin_event();
    text(
        "{{\"ph\":\"f\",\"bp\":\"e\",\"id\":{},\"name\":\"message\",\"cat\":\"message\",\"pid\":{},"
        "\"tid\":{},\"ts\":",
        id, to.rank, static_cast<int>(instruction(to).stream));
    append(out_, {arrives});
    text("}}");
  }

  const Program& program_;
  const Timeline& timeline_;
  std::vector<ClassGraph> graphs_;
  Matching matching_;
  std::vector<std::array<bool, kStreamCount>> used_;
  fmt::memory_buffer out_;
  bool first_ = true;
};

}  // namespace

std::string perfetto_trace(const Program& program, const Timeline& timeline) {
  return TraceWriter(program, timeline).write();
}

}  // namespace bayplan::sim
