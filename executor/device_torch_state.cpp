#include "executor/device_torch_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "executor/ops/op_arguments.h"
#include "executor/ops/thread_team.h"
#include "kernels/elementwise.h"
#include "kernels/optim.h"
#include "kernels/philox.h"
#include "planner/core/check.h"

namespace bayplan::exec {
namespace {

/// In place of the step in the key of random draws: no training step has this number.
constexpr std::uint32_t kInitializationStep = 0xFFFFFFFFu;

/// Elements that bf16 initialisation draws in fp32 at once, on the stack.
constexpr std::int64_t kDrawBlock = 2048;

const Buffer& buffer_of(const ComputeCall& call, const Access& access) {
  return call.rank_class->buffers[access.buffer.index()];
}

template <class Body>
void for_each_access(const ComputeCall& call, const Body& body) {
  const Range range = call.instruction->accesses;
  for (std::int32_t a = range.begin; a < range.end; ++a) {
    const Access& access = call.list->accesses[static_cast<std::size_t>(a)];
    body(access, buffer_of(call, access));
  }
}

/// out[0, end - begin) = initial values of the group's elements [begin, end). T: float, double.
template <class T>
void draw(const ParameterGroup& group, std::uint64_t seed, std::int64_t begin, std::int64_t end,
          T* out) {
  std::fill(out, out + (end - begin), T{0});
  for (const GroupParameter& p : group.parameters) {
    const std::int64_t low = std::max(begin, p.offset);
    const std::int64_t high = std::min(end, p.offset + p.shape.count());
    if (low >= high) continue;
    T* values = out + (low - begin);
    switch (p.init) {
      case ParameterSpec::Init::kZero:
        break;
      case ParameterSpec::Init::kOne:
        std::fill(values, values + (high - low), T{1});
        break;
      case ParameterSpec::Init::kNormal: {
        const kernels::PhiloxStream stream{seed, kInitializationStep, p.random_stream};
        kernels::philox_normal(values, stream, static_cast<std::uint64_t>(low - p.offset), 0.0,
                               p.init_std, {0, high - low});
        break;
      }
    }
  }
}

void draw(const ParameterGroup& group, std::uint64_t seed, std::int64_t begin, std::int64_t end,
          kernels::bf16* out) {
  std::array<float, kDrawBlock> values;
  for (std::int64_t at = begin; at < end; at += kDrawBlock) {
    const std::int64_t count = std::min(kDrawBlock, end - at);
    draw(group, seed, at, at + count, values.data());
    kernels::cast(out + (at - begin), values.data(), {0, count});
  }
}

/// Elements [first, first + count) of the group at `out`.
template <class T>
void draw_parallel(const ComputeCall& call, int threads, std::int64_t first, std::int64_t count,
                   T* out) {
  const ParameterGroup& group =
      call.program->parameter_groups[call.instruction->parameter_group.index()];
  parallel_ranges(threads, count, kElementGrain, [&](kernels::Range r) {
    draw(group, call.program->job.seed, first + r.begin, first + r.end, out + r.begin);
  });
}

/// Segments of a slice that are summed apart; their number is fixed, so that the order of the sum
/// depends on the slice's length only.
constexpr std::int64_t kNormSegments = 64;

template <class T>
double slice_squares(const T* x, std::int64_t n, int threads) {
  std::array<double, kNormSegments> partial{};
  const std::int64_t size =
      round_up(ceil_div(std::max<std::int64_t>(n, 1), kNormSegments), kernels::kSumBlock);
  parallel_tasks(threads, ceil_div(n, size), [&](std::int64_t i) {
    partial[static_cast<std::size_t>(i)] =
        kernels::sum_of_squares(x + i * size, std::min(size, n - i * size));
  });
  return kernels::sum_ascending(partial.data(), kNormSegments);
}

/// From the reduced sums of squares to the factor that makes clipped mean gradients out of sums.
double gradient_scale(const ComputeCall& call) {
  const Access* access = find_access(call, BufferRole::kScalars);
  BAYPLAN_CHECK(access != nullptr, "optimizer step without scalars");
  const auto* scalars = reinterpret_cast<const double*>(access_data(call, *access));
  const TrainingJob& job = call.program->job;
  const double tokens = static_cast<double>(job.global_batch * job.seq);
  double sum = 0.0;
  for (std::size_t g = 0; g < call.program->parameter_groups.size(); ++g) sum += scalars[1 + g];
  const double norm = std::sqrt(sum) / tokens;
  double coefficient = 1.0;
  if (!std::isfinite(norm)) {
    coefficient = norm;  // the kernel then leaves the state untouched
  } else if (job.clip_norm > 0.0) {
    coefficient = std::min(1.0, job.clip_norm / (norm + 1e-6));
  }
  return coefficient / tokens;
}

template <class T>
T* state(const ComputeCall& call, BufferRole role) {
  const Access* access = find_access(call, role);
  return access == nullptr ? nullptr : reinterpret_cast<T*>(access_data(call, *access));
}

/// One optimizer step over the flat slice of the call's group. T: type of the state.
template <class T>
void update_flat(const ComputeCall& call, int threads, T scale) {
  const TrainingJob& job = call.program->job;
  const ParameterGroup& group =
      call.program->parameter_groups[call.instruction->parameter_group.index()];
  const double weight_decay = group.weight_decay ? job.weight_decay : 0.0;
  const bool has_master = job.precision.has_master;
  const T* gradient = state<T>(call, BufferRole::kGradients);
  T* master = state<T>(call, has_master ? BufferRole::kMaster : BufferRole::kParameters);
  T* moment1 = state<T>(call, BufferRole::kMoment1);
  T* moment2 = state<T>(call, BufferRole::kMoment2);
  const OptimizerSpec& spec = optimizer_spec(group.optimizer);
  BAYPLAN_CHECK(gradient != nullptr && master != nullptr && (moment1 != nullptr) == spec.moment1 &&
                    (moment2 != nullptr) == spec.moment2,
                "optimizer step without its state");

  kernels::AdamOptions adam;
  adam.lr = call.learning_rate;
  adam.beta1 = job.beta1;
  adam.beta2 = job.beta2;
  adam.eps = job.epsilon;
  adam.weight_decay = weight_decay;
  adam.bias_correction1 = kernels::adam_bias_correction(job.beta1, call.step + 1);
  adam.bias_correction2 = kernels::adam_bias_correction(job.beta2, call.step + 1);
  const kernels::SgdOptions sgd{call.learning_rate, job.momentum, weight_decay};

  // The kernels take a bf16 copy of the weights beside an fp32 master, and only there.
  const auto update = [&](kernels::Range r, auto... weight) {
    switch (group.optimizer) {
      case OptimizerKind::kAdamW:
        kernels::adamw_step(adam, &scale, gradient, master, moment1, moment2, weight..., r);
        return;
      case OptimizerKind::kAdam:
        kernels::adam_step(adam, &scale, gradient, master, moment1, moment2, weight..., r);
        return;
      case OptimizerKind::kSgd:
      case OptimizerKind::kSgdMomentum:
        kernels::sgd_step(sgd, &scale, gradient, master, moment1, weight..., r);
        return;
    }
  };
  const Access* slice = find_access(call, BufferRole::kGradients);
  const std::int64_t n = slice->bytes / dtype_size(job.precision.gradient);
  // Flat work of about 50 µs a part; the update of an element does not depend on its place.
  parallel_ranges(threads, n, 4 * kElementGrain, [&](kernels::Range r) {
    if constexpr (std::is_same_v<T, double>) {
      update(r);
    } else {
      update(r, has_master ? state<kernels::bf16>(call, BufferRole::kParameters) : nullptr);
    }
  });
}

}  // namespace

void initialize_group(const ComputeCall& call, int threads) {
  const Precision& precision = call.program->job.precision;
  const ParameterGroup& group =
      call.program->parameter_groups[call.instruction->parameter_group.index()];
  const std::int64_t first = shard_index(*call.program, group, call.rank) * group.shard_elements;
  for_each_access(call, [&](const Access& access, const Buffer& buffer) {
    std::byte* data = access_data(call, access);
    if (buffer.role == BufferRole::kParameters) {
      with_compute_type(precision.compute, [&]<class T>(T) {
        draw_parallel(call, threads, group.gathered ? first : 0,
                      access.bytes / static_cast<std::int64_t>(sizeof(T)),
                      reinterpret_cast<T*>(data));
      });
    } else if (buffer.role == BufferRole::kMaster) {
      BAYPLAN_CHECK(precision.state == DType::kFp32, "master weights are fp32");
      draw_parallel(call, threads, group.shard_axes != 0 ? first : 0,
                    access.bytes / static_cast<std::int64_t>(sizeof(float)),
                    reinterpret_cast<float*>(data));
    } else {
      std::memset(data, 0, static_cast<std::size_t>(access.bytes));
    }
  });
}

void accumulate_gradient(const ComputeCall& call, int threads) {
  const Access* from = find_access(call, BufferRole::kUnitGradients);
  const Access* to = find_access(call, BufferRole::kGradients);
  BAYPLAN_CHECK(from != nullptr && to != nullptr && from->bytes == to->bytes,
                "accumulation between unequal gradients");
  const std::byte* source = access_data(call, *from);
  std::byte* target = access_data(call, *to);
  const bool first = to->mode == AccessMode::kWrite;
  const auto add = [&]<class T>(T) {
    const std::int64_t n = to->bytes / static_cast<std::int64_t>(sizeof(T));
    parallel_ranges(threads, n, 4 * kElementGrain, [&](kernels::Range r) {
      const T* x = reinterpret_cast<const T*>(source);
      T* sum = reinterpret_cast<T*>(target);
      if (first) {
        std::copy(x + r.begin, x + r.end, sum + r.begin);
      } else {
        for (std::int64_t i = r.begin; i < r.end; ++i) sum[i] += x[i];
      }
    });
  };
  const DType type = call.program->job.precision.gradient;
  BAYPLAN_CHECK(type == DType::kFp32 || type == DType::kFp64, "gradients are fp32 or fp64");
  if (type == DType::kFp64) {
    add(double{});
  } else {
    add(float{});
  }
}

void sum_gradient_squares(const ComputeCall& call, int threads) {
  const DType type = call.program->job.precision.gradient;
  const Access* written = find_access(call, BufferRole::kScalars);
  BAYPLAN_CHECK(written != nullptr, "gradient norm without scalars");
  std::byte* start = access_data(call, *written);
  std::memset(start, 0, static_cast<std::size_t>(written->bytes));
  auto* scalars = reinterpret_cast<double*>(start - written->offset);
  for_each_access(call, [&](const Access& access, const Buffer& buffer) {
    if (buffer.role != BufferRole::kGradients) return;
    with_compute_type(type, [&]<class T>(T) {
      scalars[1 + buffer.parameter_group.index()] =
          slice_squares(reinterpret_cast<const T*>(access_data(call, access)),
                        access.bytes / static_cast<std::int64_t>(sizeof(T)), threads);
    });
  });
}

bool update_group(const ComputeCall& call, int threads) {
  const Precision& precision = call.program->job.precision;
  BAYPLAN_CHECK(precision.gradient == precision.state, "gradients have the state's type");
  const double scale = gradient_scale(call);
  if (!std::isfinite(scale)) return false;
  if (precision.state == DType::kFp64) {
    update_flat<double>(call, threads, scale);
  } else {
    update_flat<float>(call, threads, static_cast<float>(scale));
  }
  return true;
}

}  // namespace bayplan::exec
