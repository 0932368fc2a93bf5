// RankRunner executes the sub-programs of one rank. A host thread (the caller of run()) issues the
// instruction list in order and computes inline; communication goes to the rank's progress
// thread, one queue in issue order, which waits for each call's waits and then calls the
// Communicator. Adjacent messages with one fuse id become one exchange().
// It decides nothing: no schedule logic belongs here.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "executor/comm/communicator.h"
#include "executor/data/data_source.h"
#include "executor/device.h"
#include "executor/error.h"
#include "executor/memory/arena_use.h"
#include "executor/run.h"
#include "executor/trace/rank_status.h"
#include "planner/program/timeline.h"

namespace bayplan::exec {

/// One execution of a sub-program.
struct ProgramCall {
  ProgramKind kind = ProgramKind::kLoad;
  std::int64_t step = 0;  // optimizer step; keys randomness
  double learning_rate = 0.0;
  const DataSource* data = nullptr;  // nullptr: micro-batches are not read (no memory)
  std::int64_t first_sample = 0;     // of the global batch
  bool record = false;               // keep events and memory samples
};

/// One issued call: `count` instructions from `first` on (more than one when fused).
struct RunnerCall {
  InstructionId first;
  std::int32_t count = 1;
  friend bool operator==(const RunnerCall&, const RunnerCall&) = default;
};

/// What one execution left behind. Times count from the runner's epoch.
struct ProgramTrace {
  std::vector<TimelineEvent> events;  // in issue order
  std::vector<MemorySample> memory;
  std::vector<RunnerCall> issued;     // in the order in which the host issued them
  std::vector<LiveBytesChange> live;  // in execution order
};

class RankRunner {
 public:
  using Clock = std::chrono::steady_clock;

  /// Allocates the rank's arenas. All arguments must outlive the runner.
  RankRunner(const Program& program, int rank, Device& device, Communicator& communicator,
             const FaultInjection& fault, Clock::time_point epoch);
  ~RankRunner();
  RankRunner(const RankRunner&) = delete;
  RankRunner& operator=(const RankRunner&) = delete;

  /// Runs to the end of the list. Always from the same thread. Throws ExecutorError; then the
  /// other ranks have been told to stop and the runner can only be destroyed.
  ProgramTrace run(const ProgramCall& call);

  /// Makes run() throw soon. From any thread.
  void stop(const std::string& reason) noexcept;

  const std::array<std::byte*, kTierCount>& arenas() const { return arenas_; }
  const ArenaUse& memory() const { return memory_; }
  const RankStatus& status() const { return status_; }
  /// False when the device has no memory, so that nothing can be read back.
  bool has_memory() const { return has_memory_; }
  /// fp64 scalars of the rank: [summed loss, sums of squares …]; empty without memory.
  std::vector<double> scalars() const;

 private:
  struct HostConsumer;
  friend struct HostConsumer;

  /// Instructions [first, first + count) that the progress thread runs as one call.
  struct Queued {
    std::int32_t first = 0;
    std::int32_t count = 1;
    Clock::time_point issued;
  };

  // host thread
  template <class Work>
  void run_inline(const InstructionList& list, std::int32_t index, Work work);
  void enqueue(std::int32_t index);
  void flush();
  void load(const InstructionList& list, const Instruction& instruction);
  /// Copies each buffer that the instruction reads to the one of its kind that it writes.
  void transfer(const InstructionList& list, const Instruction& instruction);
  ComputeCall compute_call(const InstructionList& list, const Instruction& instruction) const;

  // progress thread
  void progress();
  void run_queued(const Queued& call);
  void exchange(const InstructionList& list, const Queued& call, const CallSite& site);
  void collective(const InstructionList& list, const Instruction& instruction,
                  const CallSite& site);

  // both
  const InstructionList& list() const { return program_.list(rank_, call_.kind); }
  void inject(ThreadStatus& status, std::int32_t index);
  Clock::time_point wait_for(std::int32_t first, std::int32_t count, Clock::time_point issued);
  void finish(std::int32_t first, std::int32_t count, Clock::time_point ready,
              Clock::time_point start, bool library_workspace);
  void begin(std::int32_t first, std::int32_t count);
  void sample_memory(Clock::time_point at);
  void check_stop(std::int32_t index) const;
  ExecutorError error_at(std::int32_t index, const std::string& cause,
                         FailureKind kind = FailureKind::kFailed) const;
  Picoseconds since_epoch(Clock::time_point t) const;
  std::byte* data(BufferId buffer, std::int64_t offset) const;
  int tag(const Instruction& instruction) const;

  const Program& program_;
  const int rank_;
  const RankClass& rank_class_;
  Device& device_;
  Communicator& communicator_;
  const FaultInjection fault_;
  const Clock::time_point epoch_;
  std::array<std::byte*, kTierCount> arenas_{};
  bool has_memory_ = false;
  RankStatus status_;
  std::vector<std::int32_t> ids_, labels_;  // staging of one micro-batch

  // Guarded by mutex_. call_ and texts_ change only while the progress thread is idle.
  std::mutex mutex_;
  std::condition_variable changed_;
  ProgramCall call_;
  std::array<std::vector<std::string>, kProgramKindCount> texts_;  // of communication calls
  std::vector<Clock::time_point> end_of_;  // per instruction; epoch = not done
  std::deque<Queued> queue_;
  bool progress_busy_ = false;
  bool shut_down_ = false;
  std::string stop_reason_;  // not empty = stop
  std::exception_ptr progress_failure_;
  ArenaUse memory_;
  ProgramTrace trace_;

  Queued open_;  // host only: the call that is being collected; count 0 = none
  std::thread progress_thread_;
};

}  // namespace bayplan::exec
