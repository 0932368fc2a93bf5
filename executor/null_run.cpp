#include "executor/null_run.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "executor/null_values.h"
#include "planner/core/check.h"
#include "planner/program/dispatch.h"

namespace bayplan::exec {
namespace {

struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    state += 0x9E3779B97F4A7C15ull;
    std::uint64_t z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
};

bool communicates(Stream stream) {
  return stream == Stream::kP2p || stream == Stream::kReduce || stream == Stream::kGather;
}

/// Instructions [begin, end) of a lane that form one group call; usually one.
struct Group {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t unmet_waits = 0;  // of all members
  std::int32_t unfinished = 0;
  bool started = false;
};

/// One stream of one rank (or all its communication streams together), in issue order.
struct Lane {
  int rank = 0;
  std::vector<std::int32_t> order;  // instruction numbers
  std::vector<Group> groups;
  std::size_t head = 0;
};

/// The instructions of different ranks that complete together.
struct Match {
  struct Side {
    int rank = 0;
    std::int32_t instruction = 0;
  };
  std::vector<Side> sides;  // sender first; collectives in rank order
  std::size_t needed = 0;
  std::size_t started = 0;
};

struct RankState {
  std::vector<std::int32_t> lane_of, group_of;  // per instruction
  std::vector<std::int32_t> match_of;           // per instruction, -1 = none
  std::vector<std::vector<std::int32_t>> dependents;
  std::vector<bool> done;
};

/// What can happen next: one unmatched instruction, or one match.
struct Event {
  std::int32_t lane = 0;  // of the instruction, or of the match's first side
  std::int32_t instruction = -1;
  std::int32_t match = -1;
};

/// Plays one program. The scheduler is in play(), the meaning of instructions in on_*.
class Player {
 public:
  Player(const Program& program, ProgramKind kind, const NullRunOptions& options)
      : program_(program), kind_(kind), options_(options) {}

  NullRunResult play(std::uint64_t seed);

  // ProgramConsumer: effects on one rank. Matched kinds come through finish_match.
  void on_initialize(const InstructionList& list, const Instruction& i) { compute(list, i); }
  void on_load_micro_batch(const InstructionList& list, const Instruction& i) { compute(list, i); }
  void on_unit_compute(const InstructionList& list, const Instruction& i) { compute(list, i); }
  void on_transfer(const InstructionList& list, const Instruction& i) { compute(list, i); }
  void on_gradient_norm(const InstructionList& list, const Instruction& i) { compute(list, i); }
  void on_optimizer_step(const InstructionList& list, const Instruction& i) { compute(list, i); }
  void on_accumulate(const InstructionList& list, const Instruction& i) { compute(list, i); }
  void on_end_step(const InstructionList& list, const Instruction& i) { compute(list, i); }
  void on_send(const InstructionList&, const Instruction&) {}
  void on_recv(const InstructionList&, const Instruction&) {}
  void on_collective(const InstructionList&, const Instruction&) {}
  void on_release(const InstructionList& list, const Instruction& i) {
    sign({rank_, instruction_}, identity(rank_, i));
    for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
      values_[static_cast<std::size_t>(rank_)].release(
          list.accesses[static_cast<std::size_t>(a)].buffer, report());
    }
  }

 private:
  const InstructionList& list(int rank) const { return program_.list(rank, kind_); }
  const Instruction& at(const Match::Side& side) const {
    return list(side.rank).instructions[static_cast<std::size_t>(side.instruction)];
  }
  NullValues::Report report() {
    return [this](NullFault fault, std::string message) {
      find(fault, rank_, instruction_, std::move(message));
    };
  }
  void find(NullFault fault, int rank, std::int32_t instruction, std::string message) {
    if (result_.findings.size() < options_.max_findings) {
      result_.findings.push_back({fault, rank, InstructionId(instruction), std::move(message)});
    }
  }

  void prepare_rank(int rank);
  bool ranges_hold(int rank, std::int32_t instruction);
  void prepare_lanes(int rank);
  void prepare_matches();
  void start_head(std::int32_t lane);
  void execute(const Event& event);
  void complete_member(int rank, std::int32_t instruction);
  void finish_group(std::int32_t lane);
  void finish_match(const Match& match);
  void finish_message(const Match& match);
  void finish_collective(const Match& match);
  void compute(const InstructionList& list, const Instruction& i);
  std::uint64_t identity(int rank, const Instruction& i) const;
  std::uint64_t access_identity(int rank, const Access& access, ByteInterval bytes) const;
  void sign(const Match::Side& side, std::uint64_t h) {
    result_.signatures[static_cast<std::size_t>(side.rank)]
                      [static_cast<std::size_t>(side.instruction)] = h;
  }
  void report_deadlock();

  const Program& program_;
  ProgramKind kind_;
  const NullRunOptions& options_;
  std::vector<RankState> ranks_;
  std::vector<Lane> lanes_;
  std::vector<Match> matches_;
  std::vector<NullValues> values_;
  std::vector<Event> enabled_;
  NullRunResult result_;
  int rank_ = 0;                  // of the instruction being executed
  std::int32_t instruction_ = 0;  // its number
};

bool Player::ranges_hold(int rank, std::int32_t instruction) {
  const InstructionList& l = list(rank);
  const Instruction& i = l.instructions[static_cast<std::size_t>(instruction)];
  const auto inside = [](Range r, std::size_t size) {
    return 0 <= r.begin && r.begin <= r.end && static_cast<std::size_t>(r.end) <= size;
  };
  return inside(i.accesses, l.accesses.size()) && inside(i.waits, l.waits.size()) &&
         static_cast<std::size_t>(i.stream) < kStreamCount &&
         static_cast<std::size_t>(i.kind) < kInstructionKindCount;
}

void Player::prepare_rank(int rank) {
  const InstructionList& l = list(rank);
  const std::size_t n = l.instructions.size();
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  state.lane_of.assign(n, -1);
  state.group_of.assign(n, -1);
  state.match_of.assign(n, -1);
  state.dependents.assign(n, {});
  state.done.assign(n, false);
  result_.signatures[static_cast<std::size_t>(rank)].assign(n, 0);
}

void Player::prepare_lanes(int rank) {
  const InstructionList& l = list(rank);
  RankState& state = ranks_[static_cast<std::size_t>(rank)];
  std::array<std::int32_t, kStreamCount> lane_of_stream;
  lane_of_stream.fill(-1);
  for (std::int32_t k = 0; k < static_cast<std::int32_t>(l.instructions.size()); ++k) {
    const Instruction& i = l.instructions[static_cast<std::size_t>(k)];
    if (!ranges_hold(rank, k)) {
      find(NullFault::kMalformed, rank, k, "a range or enumerator is out of bounds");
      continue;
    }
    const bool shared = options_.one_communication_queue && communicates(i.stream);
    std::int32_t& lane_id =
        lane_of_stream[static_cast<std::size_t>(shared ? Stream::kP2p : i.stream)];
    if (lane_id < 0) {
      lane_id = static_cast<std::int32_t>(lanes_.size());
      lanes_.push_back({rank, {}, {}, 0});
    }
    Lane& lane = lanes_[static_cast<std::size_t>(lane_id)];
    const auto position = static_cast<std::int32_t>(lane.order.size());
    const bool joins = position > 0 && i.fuse >= 0 && !lane.groups.empty() &&
                       l.instructions[static_cast<std::size_t>(lane.order.back())].fuse == i.fuse;
    if (!joins) lane.groups.push_back({position, position, 0, 0, false});
    lane.order.push_back(k);
    Group& group = lane.groups.back();
    group.end = position + 1;
    ++group.unfinished;
    state.lane_of[static_cast<std::size_t>(k)] = lane_id;
    state.group_of[static_cast<std::size_t>(k)] = static_cast<std::int32_t>(lane.groups.size()) - 1;
    for (std::int32_t w = i.waits.begin; w < i.waits.end; ++w) {
      const InstructionId wait = l.waits[static_cast<std::size_t>(w)];
      ++group.unmet_waits;
      if (!wait.valid() || wait.index() >= l.instructions.size()) {
        find(NullFault::kMalformed, rank, k, "waits for an instruction that does not exist");
        continue;  // never met
      }
      state.dependents[wait.index()].push_back(k);
    }
  }
}

void Player::prepare_matches() {
  // Messages match in order per (sender, receiver, activation or gradient, unit, boundary);
  // collectives in order per (group, first member).
  using Key = std::tuple<int, int, int, int, int, int>;
  std::map<Key, std::int32_t> ids;
  std::map<Key, std::int32_t> counts;
  for (int rank = 0; rank < program_.world_size(); ++rank) {
    const InstructionList& l = list(rank);
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(l.instructions.size()); ++k) {
      const Instruction& i = l.instructions[static_cast<std::size_t>(k)];
      if (!ranges_hold(rank, k) || !is_matched(i.kind)) continue;
      Match found;
      Key key;
      try {
        if (is_collective(i.kind)) {
          const std::vector<int> members = group_members(program_, i.group, rank);
          if (std::find(members.begin(), members.end(), rank) == members.end()) {
            find(NullFault::kMalformed, rank, k, "the rank is not a member of the group");
            continue;
          }
          found.needed = members.size();
          key = {-1, i.group.value, members.front(), 0, 0, 0};
        } else {
          const int peer = peer_rank(program_, rank, i.peer_stage);
          const bool gradient =
              i.kind == InstructionKind::kSendGradient || i.kind == InstructionKind::kRecvGradient;
          found.needed = 2;
          key = {is_send(i.kind) ? rank : peer,
                 is_send(i.kind) ? peer : rank,
                 gradient ? 1 : 0,
                 i.unit.value,
                 i.boundary,
                 0};
        }
      } catch (const InternalError& e) {
        find(NullFault::kMalformed, rank, k, e.what());
        continue;
      }
      Key counter = key;
      std::get<5>(counter) = is_send(i.kind) ? -2 : -1;
      if (is_collective(i.kind)) std::get<3>(counter) = rank;
      std::get<5>(key) = counts[counter]++;
      const auto [it, inserted] = ids.try_emplace(key, static_cast<std::int32_t>(matches_.size()));
      if (inserted) matches_.push_back(found);
      Match& match = matches_[static_cast<std::size_t>(it->second)];
      match.sides.push_back({rank, k});
      if (match.sides.size() == 2 && is_send(i.kind)) std::swap(match.sides[0], match.sides[1]);
      ranks_[static_cast<std::size_t>(rank)].match_of[static_cast<std::size_t>(k)] = it->second;
    }
  }
}

void Player::start_head(std::int32_t lane_id) {
  Lane& lane = lanes_[static_cast<std::size_t>(lane_id)];
  if (lane.head >= lane.groups.size()) return;
  Group& group = lane.groups[lane.head];
  if (group.started || group.unmet_waits > 0) return;
  group.started = true;
  for (std::int32_t p = group.begin; p < group.end; ++p) {
    const std::int32_t k = lane.order[static_cast<std::size_t>(p)];
    const std::int32_t match_id =
        ranks_[static_cast<std::size_t>(lane.rank)].match_of[static_cast<std::size_t>(k)];
    if (match_id >= 0) {
      Match& match = matches_[static_cast<std::size_t>(match_id)];
      if (++match.started == match.needed) enabled_.push_back({lane_id, -1, match_id});
    } else if (!is_matched(list(lane.rank).instructions[static_cast<std::size_t>(k)].kind)) {
      enabled_.push_back({lane_id, k, -1});
    }  // else: malformed, never completes
  }
}

std::uint64_t Player::identity(int rank, const Instruction& i) const {
  std::uint64_t h = hash_mix(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(i.kind));
  for (const std::int32_t field : {i.stage, i.micro_batch, i.unit.value, i.parameter_group.value,
                                   static_cast<std::int32_t>(i.purpose), i.boundary}) {
    h = hash_mix(h, static_cast<std::uint64_t>(field));
  }
  return h;
}

std::uint64_t Player::access_identity(int rank, const Access& access, ByteInterval bytes) const {
  const std::vector<Buffer>& buffers = program_.class_of(rank).buffers;
  if (!access.buffer.valid() || access.buffer.index() >= buffers.size()) return 0;
  return hash_mix(buffer_identity(buffers[access.buffer.index()]),
                  static_cast<std::uint64_t>(bytes.begin));
}

void Player::compute(const InstructionList& l, const Instruction& i) {
  NullValues& values = values_[static_cast<std::size_t>(rank_)];
  const std::vector<Buffer>& buffers = program_.class_of(rank_).buffers;
  std::uint64_t h = identity(rank_, i);
  const auto in_workspace = [&](const Access& a) {
    return a.buffer.valid() && a.buffer.index() < buffers.size() &&
           buffers[a.buffer.index()].role == BufferRole::kWorkspace;
  };
  for (const bool writing : {false, true}) {
    for (std::int32_t n = i.accesses.begin; n < i.accesses.end; ++n) {
      const Access& access = l.accesses[static_cast<std::size_t>(n)];
      if (access.mode == (writing ? AccessMode::kRead : AccessMode::kWrite)) continue;
      const ByteInterval bytes = touched_bytes(program_, rank_, i, access);
      const std::uint64_t name = access_identity(rank_, access, bytes);
      if (writing) {
        values.write(access.buffer, bytes, hash_mix(h, name), false, report());
      } else if (!in_workspace(access)) {  // what it holds never counts
        h = hash_mix(hash_mix(h, name), values.read(access.buffer, bytes, report()));
      }
    }
  }
  sign({rank_, instruction_}, h);
}

void Player::finish_message(const Match& match) {
  const Match::Side& from = match.sides[0];
  const Match::Side& to = match.sides[1];
  const Instruction& send = at(from);
  const Instruction& recv = at(to);
  const CollectivePayload out = collective_payload(program_, from.rank, list(from.rank), send);
  const CollectivePayload in = collective_payload(program_, to.rank, list(to.rank), recv);
  const std::int64_t sent = out.bytes.end - out.bytes.begin;
  const std::int64_t expected = in.bytes.end - in.bytes.begin;
  if (sent != expected || send.purpose != recv.purpose) {
    find(NullFault::kMismatch, to.rank, to.instruction,
         "receives " + std::to_string(expected) + " bytes, rank " + std::to_string(from.rank) +
             " sends " + std::to_string(sent));
  }
  rank_ = from.rank;
  instruction_ = from.instruction;
  const std::uint64_t read =
      values_[static_cast<std::size_t>(from.rank)].read(out.buffer, out.bytes, report());
  rank_ = to.rank;
  instruction_ = to.instruction;
  values_[static_cast<std::size_t>(to.rank)].copy_from(values_[static_cast<std::size_t>(from.rank)],
                                                       out.buffer, out.bytes, in.buffer, in.bytes,
                                                       report());
  sign(from, hash_mix(identity(from.rank, send), read));
  sign(to, hash_mix(identity(to.rank, recv), read));
}

void Player::finish_collective(const Match& match) {
  const Instruction& first = at(match.sides[0]);
  const std::size_t n = match.sides.size();
  std::vector<CollectivePayload> payloads;
  std::uint64_t sum =
      hash_mix(static_cast<std::uint64_t>(first.kind), static_cast<std::uint64_t>(first.purpose));
  std::int64_t size = -1;
  for (const Match::Side& side : match.sides) {
    const Instruction& i = at(side);
    payloads.push_back(collective_payload(program_, side.rank, list(side.rank), i));
    const ByteInterval bytes = payloads.back().bytes;
    if (size < 0) size = bytes.end - bytes.begin;
    if (i.kind != first.kind || i.purpose != first.purpose || size != bytes.end - bytes.begin) {
      find(NullFault::kMismatch, side.rank, side.instruction,
           "does not agree with rank " + std::to_string(match.sides[0].rank) +
               " about kind, purpose or bytes");
      return;
    }
  }
  const std::int64_t shard = size / static_cast<std::int64_t>(n);
  const auto slice = [&](std::size_t member, std::size_t of) {
    const std::int64_t begin = payloads[of].bytes.begin + static_cast<std::int64_t>(member) * shard;
    return ByteInterval{begin, begin + shard};
  };
  const bool gathers = first.kind == InstructionKind::kAllGather;
  const bool broadcasts = first.kind == InstructionKind::kBroadcast;
  // Where each member's own shard of a gather lies: in its payload, or in a buffer of its own.
  std::vector<CollectivePayload> shards;
  for (std::size_t s = 0; gathers && s < n; ++s) {
    const Match::Side& side = match.sides[s];
    CollectivePayload own = gather_source(program_, side.rank, list(side.rank), at(side));
    if (!own.buffer.valid()) own = {payloads[s].buffer, slice(s, s)};
    if (own.bytes.end - own.bytes.begin != shard) {
      find(NullFault::kMismatch, side.rank, side.instruction, "gathers a shard of another size");
      return;
    }
    shards.push_back(own);
  }
  for (std::size_t s = 0; s < n; ++s) {
    rank_ = match.sides[s].rank;
    instruction_ = match.sides[s].instruction;
    if (broadcasts && s > 0) continue;
    const CollectivePayload& in = gathers ? shards[s] : payloads[s];
    sum =
        hash_mix(sum, values_[static_cast<std::size_t>(rank_)].read(in.buffer, in.bytes, report()));
  }
  for (std::size_t s = 0; s < n; ++s) {
    rank_ = match.sides[s].rank;
    instruction_ = match.sides[s].instruction;
    NullValues& values = values_[static_cast<std::size_t>(rank_)];
    const std::uint64_t garbage = hash_mix(identity(rank_, first), sum);
    for (std::size_t m = 0; m < n; ++m) {
      const NullValues& other = values_[static_cast<std::size_t>(match.sides[m].rank)];
      if (gathers) {
        if (m != s || shards[s].buffer != payloads[s].buffer) {
          values.copy_from(other, shards[m].buffer, shards[m].bytes, payloads[s].buffer,
                           slice(m, s), report());
        }
      } else if (broadcasts) {
        if (m == 0 && s > 0) {
          values.copy_from(other, payloads[0].buffer, payloads[0].bytes, payloads[s].buffer,
                           payloads[s].bytes, report());
        }
      } else if (first.kind == InstructionKind::kAllReduce) {
        if (m == 0) values.write(payloads[s].buffer, payloads[s].bytes, sum, false, report());
      } else if (first.kind == InstructionKind::kReduceScatter) {
        const bool own = m == s;
        values.write(payloads[s].buffer, slice(m, s),
                     own ? hash_mix(sum, static_cast<std::uint64_t>(m)) : garbage, !own, report());
      } else {
        values.write(payloads[s].buffer, slice(m, s), hash_mix(sum, s * n + m), false, report());
      }
    }
    sign(match.sides[s], hash_mix(identity(rank_, at(match.sides[s])), sum));
  }
}

void Player::finish_match(const Match& match) {
  if (is_collective(at(match.sides[0]).kind)) {
    finish_collective(match);
  } else {
    finish_message(match);
  }
}

void Player::finish_group(std::int32_t lane_id) {
  Lane& lane = lanes_[static_cast<std::size_t>(lane_id)];
  const Group group = lane.groups[lane.head];
  RankState& state = ranks_[static_cast<std::size_t>(lane.rank)];
  ++lane.head;
  for (std::int32_t p = group.begin; p < group.end; ++p) {
    const std::int32_t k = lane.order[static_cast<std::size_t>(p)];
    state.done[static_cast<std::size_t>(k)] = true;
    result_.completions.push_back({lane.rank, InstructionId(k)});
    for (const std::int32_t d : state.dependents[static_cast<std::size_t>(k)]) {
      const std::int32_t other = state.lane_of[static_cast<std::size_t>(d)];
      if (other < 0) continue;
      Lane& waiting = lanes_[static_cast<std::size_t>(other)];
      const auto g = static_cast<std::size_t>(state.group_of[static_cast<std::size_t>(d)]);
      if (--waiting.groups[g].unmet_waits == 0 && g == waiting.head && other != lane_id) {
        start_head(other);
      }
    }
  }
  start_head(lane_id);
}

void Player::complete_member(int rank, std::int32_t instruction) {
  const std::int32_t lane =
      ranks_[static_cast<std::size_t>(rank)].lane_of[static_cast<std::size_t>(instruction)];
  Lane& l = lanes_[static_cast<std::size_t>(lane)];
  if (--l.groups[l.head].unfinished == 0) finish_group(lane);
}

void Player::execute(const Event& event) {
  try {
    if (event.match >= 0) {
      finish_match(matches_[static_cast<std::size_t>(event.match)]);
    } else {
      rank_ = lanes_[static_cast<std::size_t>(event.lane)].rank;
      instruction_ = event.instruction;
      const InstructionList& l = list(rank_);
      dispatch(*this, l, l.instructions[static_cast<std::size_t>(instruction_)]);
    }
  } catch (const InternalError& e) {
    find(NullFault::kMalformed, rank_, instruction_, e.what());
  }
  if (event.match >= 0) {
    // By value: completing a side may start others, which does not change matches_.
    for (const Match::Side side : matches_[static_cast<std::size_t>(event.match)].sides) {
      complete_member(side.rank, side.instruction);
    }
  } else {
    complete_member(lanes_[static_cast<std::size_t>(event.lane)].rank, event.instruction);
  }
}

void Player::report_deadlock() {
  for (const Lane& lane : lanes_) {
    if (lane.head >= lane.groups.size()) continue;
    const Group& group = lane.groups[lane.head];
    const std::int32_t k = lane.order[static_cast<std::size_t>(group.begin)];
    const Instruction& i = list(lane.rank).instructions[static_cast<std::size_t>(k)];
    find(NullFault::kDeadlock, lane.rank, k,
         std::string(instruction_name(i.kind)) +
             (group.started ? " waits for a partner that does not come"
                            : " waits for instructions that do not complete"));
  }
}

NullRunResult Player::play(std::uint64_t seed) {
  const int world = program_.world_size();
  ranks_.resize(static_cast<std::size_t>(world));
  result_.signatures.resize(static_cast<std::size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    prepare_rank(rank);
    prepare_lanes(rank);
    values_.emplace_back(program_.class_of(rank), rank, kind_ != ProgramKind::kLoad);
  }
  prepare_matches();
  const auto lanes = static_cast<std::int32_t>(lanes_.size());
  for (std::int32_t lane = 0; lane < lanes; ++lane) start_head(lane);

  // Odd seeds give every lane a priority and redraw one now and then: some streams then run far
  // ahead of others, which uniform choice hardly ever does.
  Random random{seed};
  const bool uniform = seed % 2 == 0;
  std::vector<std::uint64_t> priority(lanes_.size());
  for (std::uint64_t& p : priority) p = random.next();
  while (!enabled_.empty()) {
    std::size_t pick = 0;
    if (uniform) {
      pick = random.below(enabled_.size());
    } else {
      for (std::size_t e = 1; e < enabled_.size(); ++e) {
        if (priority[static_cast<std::size_t>(enabled_[e].lane)] <
            priority[static_cast<std::size_t>(enabled_[pick].lane)]) {
          pick = e;
        }
      }
      if (random.below(32) == 0) priority[random.below(priority.size())] = random.next();
    }
    const Event event = enabled_[pick];
    enabled_[pick] = enabled_.back();
    enabled_.pop_back();
    execute(event);
  }
  report_deadlock();
  for (const NullValues& values : values_) result_.state.push_back(values.state());
  return std::move(result_);
}

}  // namespace

std::string_view null_fault_name(NullFault fault) {
  switch (fault) {
    case NullFault::kDeadlock:
      return "deadlock";
    case NullFault::kUnwritten:
      return "unwritten";
    case NullFault::kReleased:
      return "released";
    case NullFault::kForeign:
      return "foreign";
    case NullFault::kOverwrite:
      return "overwrite";
    case NullFault::kMismatch:
      return "mismatch";
    case NullFault::kMalformed:
      return "malformed";
  }
  return "?";
}

NullRunResult null_run(const Program& program, ProgramKind kind, std::uint64_t seed,
                       const NullRunOptions& options) {
  return Player(program, kind, options).play(seed);
}

}  // namespace bayplan::exec
