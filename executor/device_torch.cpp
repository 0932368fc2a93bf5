#include "executor/device_torch.h"

#include <ATen/Parallel.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "executor/device_torch_state.h"
#include "executor/device_torch_unit.h"
#include "executor/error.h"
#include "executor/memory/allocator_hook_torch.h"
#include "executor/memory/arena_use.h"
#include "planner/core/check.h"
#include "planner/program/text.h"

namespace bayplan::exec {
namespace {

/// Arenas from this size on ask for huge pages: fewer faults in the first step, fewer TLB misses
/// after. Smaller ones would grow noticeably by rounding.
constexpr std::int64_t kHugePageArena = std::int64_t{64} << 20;

/// Zeroed pages of the process.
class Arena {
 public:
  explicit Arena(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    void* memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw ExecutorError(
          -1, -1, "",
          "cannot map an arena of " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
    }
    start_ = static_cast<std::byte*>(memory);
    if (bytes >= kHugePageArena) ::madvise(start_, bytes_, MADV_HUGEPAGE);  // a hint
  }
  ~Arena() { ::munmap(start_, bytes_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* start() const { return start_; }

 private:
  std::byte* start_ = nullptr;
  std::size_t bytes_;
};

std::string describe_call(const void* context) {
  const auto& call = *static_cast<const ComputeCall*>(context);
  const Instruction& first = call.list->instructions.front();
  return to_text(*call.list, InstructionId(static_cast<std::int32_t>(call.instruction - &first)));
}

class TorchCpuDevice final : public Device {
 public:
  TorchCpuDevice(int rank, int threads) : rank_(rank), threads_(threads) {
    BAYPLAN_CHECK(threads >= 1, "threads of a rank");
    install_allocator_hook();
  }

  std::byte* allocate_arena(Tier tier, std::int64_t bytes) override {
    BAYPLAN_CHECK(tier != Tier::kNvme, "the CPU device has no NVMe tier");
    arenas_.push_back(std::make_unique<Arena>(bytes));
    return arenas_.back()->start();
  }

  void attach(const Program& program, int rank) override {
    BAYPLAN_CHECK(rank == rank_, "device of another rank");
    BAYPLAN_CHECK(program.job.precision.gradient == program.job.precision.reduction,
                  "CPU operators accumulate gradients in fp32 or fp64");
    at::set_num_threads(1);
  }

  void initialize(const ComputeCall& call) override {
    run(call, [&] { initialize_group(call, threads_); });
  }

  void load_micro_batch(const ComputeCall& call, const std::int32_t* ids,
                        const std::int32_t* labels) override {
    last_call_used_ = 0;
    for (const ExternalInput kind : {ExternalInput::kTokens, ExternalInput::kLabels}) {
      const Access* access = find_access(call, Region::kExternal, static_cast<std::int32_t>(kind));
      if (access == nullptr) continue;
      std::memcpy(access_data(call, *access), kind == ExternalInput::kTokens ? ids : labels,
                  static_cast<std::size_t>(access->bytes));
    }
  }

  void unit_compute(const ComputeCall& call) override {
    run(call, [&] { run_unit(call, threads_, op_call_); });
  }

  void accumulate(const ComputeCall& call) override {
    run(call, [&] { accumulate_gradient(call, threads_); });
  }
  void gradient_norm(const ComputeCall& call) override {
    run(call, [&] { sum_gradient_squares(call, threads_); });
  }

  bool optimizer_step(const ComputeCall& call) override {
    bool updated = false;
    run(call, [&] { updated = update_group(call, threads_); });
    return updated;
  }

  std::int64_t workspace_used() const override { return workspace_used_; }
  bool last_call_used_workspace() const override { return last_call_used_ > 0; }

 private:
  /// Runs `body` with the instruction's workspace, behind its scratch tensors, as the only place
  /// where ATen may allocate.
  template <class Body>
  void run(const ComputeCall& call, const Body& body) {
    // Another user of the library in this process may have changed what BLAS uses.
    at::set_num_threads(1);
    std::byte* start = nullptr;
    std::int64_t bytes = 0;
    if (const Access* access = find_access(call, BufferRole::kWorkspace)) {
      const std::int64_t scratch = scratch_bytes(*call.program, *call.instruction);
      start = access_data(call, *access) + scratch;
      bytes = access->bytes - scratch;
    }
    WorkspaceRegion region(start, bytes, {rank_, call.step, &call, &describe_call});
    const RegionScope scope(&region);
    body();
    last_call_used_ = region.used();
    workspace_used_ = std::max(workspace_used_, last_call_used_);
  }

  int rank_;
  int threads_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  OpCall op_call_;
  std::int64_t workspace_used_ = 0;
  std::int64_t last_call_used_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_torch_cpu_device(int rank, int threads) {
  return std::make_unique<TorchCpuDevice>(rank, threads);
}

}  // namespace bayplan::exec
