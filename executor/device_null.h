// Device without memory that computes nothing: whole programs run at the speed of their
// bookkeeping (dry runs, conformance tests). Communicators must be dry too.
#pragma once

#include "executor/device.h"
#include "executor/run.h"

namespace bayplan::exec {

class NullDevice final : public Device {
 public:
  /// nullptr: there is nothing to read or write.
  std::byte* allocate_arena(Tier, std::int64_t) override { return nullptr; }
  void attach(const Program&, int) override {}
  void initialize(const ComputeCall&) override {}
  void load_micro_batch(const ComputeCall&, const std::int32_t*, const std::int32_t*) override {}
  void unit_compute(const ComputeCall&) override {}
  void accumulate(const ComputeCall&) override {}
  void gradient_norm(const ComputeCall&) override {}
  bool optimizer_step(const ComputeCall&) override { return true; }
  std::int64_t workspace_used() const override { return 0; }
  bool last_call_used_workspace() const override { return false; }
};

DeviceFactory null_devices();

}  // namespace bayplan::exec
