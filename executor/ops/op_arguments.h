// Typed access to the arguments of an operator call, temporaries, and what every operator does
// alike with the gradient of an input.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <cstdint>

#include "executor/ops/op_kernels.h"
#include "executor/ops/thread_team.h"
#include "kernels/elementwise.h"
#include "kernels/types.h"
#include "planner/core/check.h"

namespace bayplan::exec {

/// Elements below which one more thread costs more than it saves (about 10 µs of work).
constexpr std::int64_t kElementGrain = 16384;

/// Calls f(T{}) with the compute type: float, double or bf16.
template <class F>
void with_compute_type(DType type, const F& f) {
  switch (type) {
    case DType::kFp64:
      return f(double{});
    case DType::kFp32:
      return f(float{});
    case DType::kBf16:
      return f(kernels::bf16{});
    case DType::kFp16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
      break;
  }
  BAYPLAN_CHECK(false, "no CPU operators for this compute type");
}

template <class T>
T* data(const OpTensor& tensor) {
  return static_cast<T*>(tensor.data);
}

/// Rows of a range-parallel kernel, so that a thread has at least kElementGrain elements.
inline std::int64_t row_grain(std::int64_t width) {
  return kElementGrain / (width > 0 ? width : 1) + 1;
}

/// Uninitialised memory from the workspace, for the lifetime of the object.
template <class T>
class Temporary {
 public:
  explicit Temporary(std::int64_t count)
      : block_(c10::GetCPUAllocator()->allocate(static_cast<std::size_t>(count) * sizeof(T))) {}
  T* get() const { return static_cast<T*>(block_.get()); }

 private:
  c10::DataPtr block_;
};

/// For operators that cannot add while they write: target = residual + target.
template <class T>
void add_residual(const OpCall& call, const OpInputGradient& slot) {
  if (slot.action != GradientSlot::Action::kAdd) return;
  T* target = data<T>(slot.target);
  const T* residual = static_cast<const T*>(slot.residual);
  BAYPLAN_CHECK(target != residual, "this operator cannot add in place");
  parallel_ranges(call.threads, slot.target.shape.count(), kElementGrain,
                  [&](kernels::Range r) { kernels::residual_add(target, target, residual, r); });
}

inline bool wants_gradient(const OpInputGradient& slot) {
  return slot.action == GradientSlot::Action::kWrite || slot.action == GradientSlot::Action::kAdd;
}

}  // namespace bayplan::exec
