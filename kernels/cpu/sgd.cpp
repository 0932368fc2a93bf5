// SGD, with and without momentum, in one pass. The update is bound by memory: 12 bytes per
// parameter are moved, 20 with momentum (2 more with a bf16 weight).
#include <cmath>

#include "kernels/cpu/dispatch.h"
#include "kernels/optim.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sgd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"

#ifndef BAYPLAN_KERNELS_CPU_SGD_COEFFICIENTS_
#define BAYPLAN_KERNELS_CPU_SGD_COEFFICIENTS_
namespace bayplan::kernels {
namespace {
/// What the update multiplies by, in its own type A.
template <class A>
struct SgdCoefficients {
  A grad_scale;
  A decay;
  A momentum;
  A lr;
};
}  // namespace
}  // namespace bayplan::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

template <bool has_momentum, bool has_weight, class G>
HWY_INLINE void update(const SgdCoefficients<accumulate_t<G>>& k, const G* HWY_RESTRICT grad,
                       accumulate_t<G>* HWY_RESTRICT master, accumulate_t<G>* HWY_RESTRICT buffer,
                       bf16* HWY_RESTRICT weight, Range elements) {
  const Compute<G> d;
  const auto grad_scale = hn::Set(d, k.grad_scale);
  const auto decay = hn::Set(d, k.decay);
  const auto momentum = hn::Set(d, k.momentum);
  const auto lr = hn::Set(d, k.lr);
  for_vectors(d, elements.begin, elements.end, [&](std::int64_t i, auto access) HWY_ATTR {
    const auto before = access.load(d, master + i);
    auto g = hn::MulAdd(decay, before, hn::Mul(access.load(d, grad + i), grad_scale));
    if constexpr (has_momentum) {
      g = hn::MulAdd(momentum, access.load(d, buffer + i), g);
      access.store(d, g, buffer + i);
    }
    const auto p = hn::NegMulAdd(lr, g, before);
    access.store(d, p, master + i);
    if constexpr (has_weight) {
      access.store(d, p, weight + i);
    }
  });
}

template <class G>
HWY_INLINE void update(const SgdCoefficients<accumulate_t<G>>& k, const G* grad,
                       accumulate_t<G>* master, accumulate_t<G>* buffer, bf16* weight,
                       Range elements) {
  if (buffer != nullptr && weight != nullptr) {
    update<true, true>(k, grad, master, buffer, weight, elements);
  } else if (buffer != nullptr) {
    update<true, false>(k, grad, master, buffer, weight, elements);
  } else if (weight != nullptr) {
    update<false, true>(k, grad, master, buffer, weight, elements);
  } else {
    update<false, false>(k, grad, master, buffer, weight, elements);
  }
}

void sgd_f32(const SgdCoefficients<float>& k, const float* grad, float* master, float* buffer,
             bf16* weight, Range elements) {
  update(k, grad, master, buffer, weight, elements);
}
void sgd_bf16(const SgdCoefficients<float>& k, const bf16* grad, float* master, float* buffer,
              bf16* weight, Range elements) {
  update(k, grad, master, buffer, weight, elements);
}
void sgd_f64(const SgdCoefficients<double>& k, const double* grad, double* master, double* buffer,
             Range elements) {
  if (buffer != nullptr) {
    update<true, false>(k, grad, master, buffer, nullptr, elements);
  } else {
    update<false, false>(k, grad, master, buffer, nullptr, elements);
  }
}

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bayplan::kernels {
namespace {
HWY_EXPORT(sgd_f32);
HWY_EXPORT(sgd_bf16);
HWY_EXPORT(sgd_f64);

template <class A>
SgdCoefficients<A> coefficients(const SgdOptions& options, A grad_scale) {
  return {.grad_scale = grad_scale,
          .decay = static_cast<A>(options.weight_decay),
          .momentum = static_cast<A>(options.momentum),
          .lr = static_cast<A>(options.lr)};
}
}  // namespace

bool sgd_step(const SgdOptions& options, const float* grad_scale, const float* grad, float* master,
              float* buffer, bf16* weight, Range elements) {
  const float scale = *grad_scale;
  if (!std::isfinite(scale)) {
    return false;
  }
  HWY_DYNAMIC_DISPATCH(sgd_f32)
  (coefficients(options, scale), grad, master, buffer, weight, elements);
  return true;
}

bool sgd_step(const SgdOptions& options, const float* grad_scale, const bf16* grad, float* master,
              float* buffer, bf16* weight, Range elements) {
  const float scale = *grad_scale;
  if (!std::isfinite(scale)) {
    return false;
  }
  HWY_DYNAMIC_DISPATCH(sgd_bf16)
  (coefficients(options, scale), grad, master, buffer, weight, elements);
  return true;
}

bool sgd_step(const SgdOptions& options, const double* grad_scale, const double* grad,
              double* master, double* buffer, Range elements) {
  const double scale = *grad_scale;
  if (!std::isfinite(scale)) {
    return false;
  }
  HWY_DYNAMIC_DISPATCH(sgd_f64)
  (coefficients(options, scale), grad, master, buffer, elements);
  return true;
}

}  // namespace bayplan::kernels
#endif
