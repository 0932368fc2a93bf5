#include "executor/rank_runner.h"

#include <algorithm>
#include <cstring>

#include "planner/core/check.h"
#include "planner/program/dispatch.h"
#include "planner/program/text.h"

namespace bayplan::exec {
namespace {

using Lock = std::unique_lock<std::mutex>;
constexpr std::int64_t kBoundariesPerUnit = 16;

bool on_progress_thread(Stream stream) {
  return stream == Stream::kP2p || stream == Stream::kReduce || stream == Stream::kGather;
}

}  // namespace

/// What the host thread does with each kind: compute inline, hand communication over.
struct RankRunner::HostConsumer {
  RankRunner& r;
  std::int32_t index = 0;

  template <class Work>
  void inlined(const InstructionList& list, Work work) {
    r.flush();
    r.trace_.issued.push_back({InstructionId(index), 1});
    r.run_inline(list, index, work);
  }

  void on_initialize(const InstructionList& list, const Instruction& i) {
    inlined(list, [&] { r.device_.initialize(r.compute_call(list, i)); });
  }
  void on_load_micro_batch(const InstructionList& list, const Instruction& i) {
    inlined(list, [&] { r.load(list, i); });
  }
  void on_unit_compute(const InstructionList& list, const Instruction& i) {
    inlined(list, [&] { r.device_.unit_compute(r.compute_call(list, i)); });
  }
  void on_gradient_norm(const InstructionList& list, const Instruction& i) {
    inlined(list, [&] { r.device_.gradient_norm(r.compute_call(list, i)); });
  }
  void on_accumulate(const InstructionList& list, const Instruction& i) {
    inlined(list, [&] { r.device_.accumulate(r.compute_call(list, i)); });
  }
  void on_optimizer_step(const InstructionList& list, const Instruction& i) {
    inlined(list, [&] { r.device_.optimizer_step(r.compute_call(list, i)); });
  }
  void on_transfer(const InstructionList& list, const Instruction& i) {
    inlined(list, [&] {
      // Saved state is read from the arenas after the save program (checkpoint/gather_state.h).
      if (i.purpose != Purpose::kCheckpoint) r.transfer(list, i);
    });
  }
  void on_end_step(const InstructionList& list, const Instruction&) {
    inlined(list, [] {});
  }
  void on_release(const InstructionList& list, const Instruction& i) {
    if (on_progress_thread(i.stream)) {
      r.enqueue(index);
    } else {
      inlined(list, [] {});
    }
  }
  void on_send(const InstructionList&, const Instruction&) { r.enqueue(index); }
  void on_recv(const InstructionList&, const Instruction&) { r.enqueue(index); }
  void on_collective(const InstructionList&, const Instruction&) { r.enqueue(index); }
};

RankRunner::RankRunner(const Program& program, int rank, Device& device, Communicator& communicator,
                       const FaultInjection& fault, Clock::time_point epoch)
    : program_(program),
      rank_(rank),
      rank_class_(program.class_of(rank)),
      device_(device),
      communicator_(communicator),
      fault_(fault),
      epoch_(epoch),
      memory_(program, rank) {
  for (std::size_t t = 0; t < kTierCount; ++t) {
    if (rank_class_.arena_bytes[t] <= 0) continue;
    arenas_[t] = device_.allocate_arena(static_cast<Tier>(t), rank_class_.arena_bytes[t]);
    has_memory_ = has_memory_ || arenas_[t] != nullptr;
  }
  open_.count = 0;
  device_.attach(program_, rank_);
  progress_thread_ = std::thread([this] { progress(); });
}

RankRunner::~RankRunner() {
  {
    const Lock lock(mutex_);
    shut_down_ = true;
    changed_.notify_all();
  }
  progress_thread_.join();
}

void RankRunner::stop(const std::string& reason) noexcept {
  try {
    const Lock lock(mutex_);
    if (stop_reason_.empty()) stop_reason_ = reason.empty() ? "stopped" : reason;
    changed_.notify_all();
  } catch (...) {
    // Out of memory: the rank stops at its communicator's deadline.
  }
}

ExecutorError RankRunner::error_at(std::int32_t index, const std::string& cause,
                                   FailureKind kind) const {
  const InstructionList& l = list();
  const bool inside = index >= 0 && static_cast<std::size_t>(index) < l.instructions.size();
  return {rank_, call_.step, inside ? to_text(l, InstructionId(index)) : "", cause, kind};
}

void RankRunner::check_stop(std::int32_t index) const {
  if (progress_failure_) std::rethrow_exception(progress_failure_);
  if (!stop_reason_.empty()) throw error_at(index, stop_reason_, FailureKind::kAborted);
}

ProgramTrace RankRunner::run(const ProgramCall& call) {
  const InstructionList& l = program_.list(rank_, call.kind);
  {
    const Lock lock(mutex_);
    call_ = call;
    check_stop(-1);
    status_.program = call.kind;
    status_.step = call.step;
    end_of_.assign(l.instructions.size(), {});
    trace_ = {};
    trace_.events.resize(l.instructions.size());
    std::vector<std::string>& texts = texts_[static_cast<std::size_t>(call.kind)];
    if (texts.empty()) {
      texts.resize(l.instructions.size());
      for (std::size_t i = 0; i < texts.size(); ++i) {
        if (on_progress_thread(l.instructions[i].stream)) texts[i] = to_text(l, InstructionId(i));
      }
    }
    if (call_.record) sample_memory(Clock::now());
  }
  HostConsumer consumer{*this};
  try {
    for (const Instruction& i : l.instructions) {
      BAYPLAN_CHECK(!i.predicate.valid() && !i.run_time_count.valid(),
                    "predicates and run-time counts are not executed");
      dispatch(consumer, l, i);
      ++consumer.index;
    }
    flush();
    Lock lock(mutex_);
    changed_.wait(lock, [&] {
      return progress_failure_ || !stop_reason_.empty() || (queue_.empty() && !progress_busy_);
    });
    check_stop(consumer.index - 1);
  } catch (const std::exception& cause) {
    const auto* known = dynamic_cast<const ExecutorError*>(&cause);
    const ExecutorError error = known != nullptr ? *known : error_at(consumer.index, cause.what());
    if (error.kind != FailureKind::kAborted) communicator_.abort(describe(error));
    stop(describe(error));
    throw error;
  }
  status_.host.set(Activity::kIdle, -1);
  const Lock lock(mutex_);
  trace_.live = memory_.take_changes();
  return std::move(trace_);
}

ComputeCall RankRunner::compute_call(const InstructionList& l, const Instruction& i) const {
  ComputeCall call;
  call.program = &program_;
  call.rank_class = &rank_class_;
  call.list = &l;
  call.instruction = &i;
  call.kind = call_.kind;
  call.rank = rank_;
  call.step = call_.step;
  call.learning_rate = call_.learning_rate;
  call.arenas = arenas_;
  return call;
}

void RankRunner::load(const InstructionList& l, const Instruction& i) {
  const TrainingJob& job = program_.job;
  if (call_.data != nullptr) {
    const auto seq = static_cast<std::size_t>(job.seq);
    const auto samples = static_cast<std::size_t>(job.micro_batch);
    ids_.resize(samples * seq);
    labels_.resize(samples * seq);
    const std::int64_t block = static_cast<std::int64_t>(i.micro_batch) * program_.mesh.dp +
                               program_.mesh.coordinate(rank_).dp();
    for (std::size_t s = 0; s < samples; ++s) {
      call_.data->read(call_.first_sample + block * job.micro_batch + static_cast<std::int64_t>(s),
                       &ids_[s * seq], &labels_[s * seq]);
    }
  }
  device_.load_micro_batch(compute_call(l, i), ids_.data(), labels_.data());
}

void RankRunner::transfer(const InstructionList& l, const Instruction& i) {
  const auto bytes_of = [&](const Access& a) { return touched_bytes(program_, rank_, i, a); };
  const auto buffer_of = [&](const Access& a) -> const Buffer& {
    return rank_class_.buffers[a.buffer.index()];
  };
  for (std::int32_t r = i.accesses.begin; r < i.accesses.end; ++r) {
    const Access& from = l.accesses[static_cast<std::size_t>(r)];
    if (from.mode != AccessMode::kRead) continue;
    for (std::int32_t w = i.accesses.begin; w < i.accesses.end; ++w) {
      const Access& to = l.accesses[static_cast<std::size_t>(w)];
      if (to.mode == AccessMode::kRead || buffer_of(to).role != buffer_of(from).role ||
          buffer_of(to).region != buffer_of(from).region) {
        continue;
      }
      const ByteInterval source = bytes_of(from);
      const ByteInterval target = bytes_of(to);
      BAYPLAN_CHECK(source.end - source.begin == target.end - target.begin,
                    "transfer between unequal buffers");
      const std::byte* at = data(from.buffer, source.begin);
      if (at == nullptr) continue;
      std::memcpy(data(to.buffer, target.begin), at,
                  static_cast<std::size_t>(source.end - source.begin));
    }
  }
}

template <class Work>
void RankRunner::run_inline(const InstructionList& l, std::int32_t index, Work work) {
  const Clock::time_point issued = Clock::now();
  inject(status_.host, index);
  status_.host.set(Activity::kWaiting, index);
  const Clock::time_point ready = wait_for(index, 1, issued);
  begin(index, 1);
  status_.host.set(Activity::kRunning, index);
  const Clock::time_point start = Clock::now();
  work();
  const InstructionKind kind = l.instructions[static_cast<std::size_t>(index)].kind;
  const bool computes = kind != InstructionKind::kRelease && kind != InstructionKind::kEndStep &&
                        kind != InstructionKind::kOffload && kind != InstructionKind::kPrefetch;
  finish(index, 1, ready, start, computes && device_.last_call_used_workspace());
}

void RankRunner::enqueue(std::int32_t index) {
  const std::vector<Instruction>& all = list().instructions;
  const std::int32_t fuse = all[static_cast<std::size_t>(index)].fuse;
  if (open_.count > 0 && fuse >= 0 && open_.first + open_.count == index &&
      all[static_cast<std::size_t>(open_.first)].fuse == fuse) {
    ++open_.count;
    return;
  }
  flush();
  open_ = {index, 1, Clock::now()};
}

void RankRunner::flush() {
  if (open_.count == 0) return;
  trace_.issued.push_back({InstructionId(open_.first), open_.count});
  const Lock lock(mutex_);
  check_stop(open_.first);
  queue_.push_back(open_);
  open_.count = 0;
  changed_.notify_all();
}

void RankRunner::progress() {
  for (;;) {
    Queued call;
    {
      Lock lock(mutex_);
      if (progress_busy_) {
        progress_busy_ = false;
        changed_.notify_all();
      }
      changed_.wait(lock, [&] { return shut_down_ || (!queue_.empty() && stop_reason_.empty()); });
      if (shut_down_) return;
      call = queue_.front();
      queue_.pop_front();
      progress_busy_ = true;
    }
    try {
      run_queued(call);
      status_.progress.set(Activity::kIdle, -1);
    } catch (const std::exception& cause) {
      const auto* known = dynamic_cast<const ExecutorError*>(&cause);
      const ExecutorError error = known != nullptr ? *known : error_at(call.first, cause.what());
      if (error.kind != FailureKind::kAborted) communicator_.abort(describe(error));
      const Lock lock(mutex_);
      progress_failure_ = std::make_exception_ptr(error);
      if (stop_reason_.empty()) stop_reason_ = describe(error);
      queue_.clear();
      changed_.notify_all();
    }
  }
}

void RankRunner::run_queued(const Queued& call) {
  const InstructionList& l = list();
  const Instruction& first = l.instructions[static_cast<std::size_t>(call.first)];
  for (std::int32_t k = 0; k < call.count; ++k) inject(status_.progress, call.first + k);
  status_.progress.set(Activity::kWaiting, call.first);
  const Clock::time_point ready = wait_for(call.first, call.count, call.issued);
  begin(call.first, call.count);
  status_.progress.set(Activity::kRunning, call.first);
  Clock::time_point start = Clock::now();
  const CallSite site{
      call_.step,
      texts_[static_cast<std::size_t>(call_.kind)][static_cast<std::size_t>(call.first)],
      first.purpose};
  if (is_collective(first.kind)) {
    collective(l, first, site);
    start = std::max(start, communicator_.matched_at());
  } else if (first.kind != InstructionKind::kRelease) {
    exchange(l, call, site);
    start = std::max(start, communicator_.matched_at());
  }
  finish(call.first, call.count, ready, start, false);
}

int RankRunner::tag(const Instruction& i) const {
  BAYPLAN_CHECK(i.unit.valid() && i.boundary >= 0 && i.boundary < kBoundariesPerUnit,
                "message without unit or boundary");
  const bool gradient =
      i.kind == InstructionKind::kSendGradient || i.kind == InstructionKind::kRecvGradient;
  return static_cast<int>((static_cast<std::int64_t>(i.unit.value) * 2 + (gradient ? 1 : 0)) *
                              kBoundariesPerUnit +
                          i.boundary);
}

std::byte* RankRunner::data(BufferId buffer, std::int64_t offset) const {
  const Buffer& b = rank_class_.buffers[buffer.index()];
  std::byte* arena = arenas_[static_cast<std::size_t>(b.tier)];
  return arena == nullptr ? nullptr : arena + b.offset + offset;
}

void RankRunner::exchange(const InstructionList& l, const Queued& call, const CallSite& site) {
  std::vector<Message> messages;
  for (std::int32_t k = call.first; k < call.first + call.count; ++k) {
    const Instruction& i = l.instructions[static_cast<std::size_t>(k)];
    const CollectivePayload payload = collective_payload(program_, rank_, l, i);
    messages.push_back({is_send(i.kind), peer_rank(program_, rank_, i.peer_stage), tag(i),
                        data(payload.buffer, payload.bytes.begin),
                        payload.bytes.end - payload.bytes.begin, i.kind, i.purpose});
  }
  communicator_.exchange(site, messages);
}

void RankRunner::collective(const InstructionList& l, const Instruction& i, const CallSite& site) {
  const std::vector<int> members = group_members(program_, i.group, rank_);
  const CollectivePayload payload = collective_payload(program_, rank_, l, i);
  const Buffer& buffer = rank_class_.buffers[payload.buffer.index()];
  std::byte* at = data(payload.buffer, payload.bytes.begin);
  const std::int64_t bytes = payload.bytes.end - payload.bytes.begin;
  const auto n = static_cast<std::int64_t>(members.size());
  if (i.kind == InstructionKind::kBroadcast) {
    return communicator_.broadcast(site, members, at, bytes, 0);
  }
  BAYPLAN_CHECK(i.kind != InstructionKind::kAllToAll, "all_to_all is not executed");
  const DType dtype = state_dtype(program_, buffer.role);
  const std::int64_t parts = i.kind == InstructionKind::kAllReduce ? 1 : n;
  BAYPLAN_CHECK(bytes % (parts * dtype_size(dtype)) == 0, "shards are not equal");
  if (i.kind == InstructionKind::kAllGather) {
    const CollectivePayload own = gather_source(program_, rank_, l, i);
    if (own.buffer.valid() && at != nullptr) {
      const std::int64_t shard = own.bytes.end - own.bytes.begin;
      BAYPLAN_CHECK(shard * n == bytes, "the shard does not fit the gathered buffer");
      std::memcpy(at + group_index(program_, i.group, rank_) * shard,
                  data(own.buffer, own.bytes.begin), static_cast<std::size_t>(shard));
    }
    communicator_.all_gather(site, members, at, bytes / n);
  } else if (i.kind == InstructionKind::kReduceScatter) {
    communicator_.reduce_scatter(site, members, at, bytes / n / dtype_size(dtype), dtype);
  } else {
    communicator_.all_reduce(site, members, at, bytes / dtype_size(dtype), dtype);
  }
}

void RankRunner::inject(ThreadStatus& status, std::int32_t index) {
  if (fault_.kind == FaultInjection::Kind::kNone || fault_.rank != rank_ ||
      call_.kind != ProgramKind::kTrainStep || fault_.step != call_.step ||
      fault_.instruction != index) {
    return;
  }
  status.set(Activity::kRunning, index);
  if (fault_.kind == FaultInjection::Kind::kThrow) throw error_at(index, "injected fault");
  Lock lock(mutex_);
  changed_.wait(lock, [&] { return shut_down_ || !stop_reason_.empty(); });
  throw error_at(index, stop_reason_, FailureKind::kAborted);
}

RankRunner::Clock::time_point RankRunner::wait_for(std::int32_t first, std::int32_t count,
                                                   Clock::time_point issued) {
  const InstructionList& l = list();
  Clock::time_point ready = issued;
  Lock lock(mutex_);
  for (std::int32_t k = first; k < first + count; ++k) {
    const Range waits = l.instructions[static_cast<std::size_t>(k)].waits;
    for (std::int32_t w = waits.begin; w < waits.end; ++w) {
      const InstructionId wait = l.waits[static_cast<std::size_t>(w)];
      if (wait.value >= first && wait.value < first + count) continue;  // one call with this one
      const Clock::time_point& end = end_of_[wait.index()];
      changed_.wait(
          lock, [&] { return end != Clock::time_point{} || !stop_reason_.empty() || shut_down_; });
      check_stop(k);
      if (end == Clock::time_point{}) throw error_at(k, "shut down", FailureKind::kAborted);
      ready = std::max(ready, end);
    }
  }
  check_stop(first);
  return ready;
}

Picoseconds RankRunner::since_epoch(Clock::time_point t) const {
  return Picoseconds(std::chrono::duration_cast<std::chrono::nanoseconds>(t - epoch_).count() *
                     1000);
}

void RankRunner::sample_memory(Clock::time_point at) {
  for (std::size_t t = 0; t < kTierCount; ++t) {
    const auto tier = static_cast<Tier>(t);
    if (rank_class_.arena_bytes[t] > 0) {
      trace_.memory.push_back({rank_, tier, since_epoch(at), memory_.live(tier)});
    }
  }
}

void RankRunner::begin(std::int32_t first, std::int32_t count) {
  const InstructionList& l = list();
  const Lock lock(mutex_);
  bool changed = false;
  for (std::int32_t k = first; k < first + count; ++k) {
    const Instruction& i = l.instructions[static_cast<std::size_t>(k)];
    if (i.kind != InstructionKind::kRelease) {
      changed = memory_.begin(l, InstructionId(k)) || changed;
    }
  }
  if (changed && call_.record) sample_memory(Clock::now());
}

void RankRunner::finish(std::int32_t first, std::int32_t count, Clock::time_point ready,
                        Clock::time_point start, bool library_workspace) {
  const InstructionList& l = list();
  const Lock lock(mutex_);
  const Clock::time_point end = Clock::now();
  for (std::int32_t k = first; k < first + count; ++k) {
    const Instruction& i = l.instructions[static_cast<std::size_t>(k)];
    if (i.kind == InstructionKind::kRelease) {
      if (memory_.release(l, InstructionId(k)) && call_.record) sample_memory(end);
    } else {
      memory_.executed(l, InstructionId(k), library_workspace);
    }
    end_of_[static_cast<std::size_t>(k)] = end;
    trace_.events[static_cast<std::size_t>(k)] = {rank_,
                                                  static_cast<std::int32_t>(call_.step),
                                                  InstructionId(k),
                                                  since_epoch(ready),
                                                  since_epoch(start),
                                                  since_epoch(end)};
  }
  changed_.notify_all();
}

std::vector<double> RankRunner::scalars() const {
  for (std::size_t b = 0; b < rank_class_.buffers.size(); ++b) {
    if (rank_class_.buffers[b].role != BufferRole::kScalars) continue;
    const std::byte* at = data(BufferId(b), 0);
    if (at == nullptr) return {};
    std::vector<double> values(static_cast<std::size_t>(rank_class_.buffers[b].bytes) /
                               sizeof(double));
    std::memcpy(values.data(), at, values.size() * sizeof(double));
    return values;
  }
  return {};
}

}  // namespace bayplan::exec
