// Exponential for softmax and sigmoid. NaN stays NaN. Arguments saturate rather than overflow:
//   float:  0 below -87 (no denormal results), e^88 above 88; error below 1.5 ulp between
//           (polynomial of Cephes expf, S. Moshier)
//   double: 0 below -700, e^700 above 700; error below 1.5 ulp between (Highway's Exp)
#if defined(BAYPLAN_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BAYPLAN_KERNELS_CPU_EXP_INL_H_
#undef BAYPLAN_KERNELS_CPU_EXP_INL_H_
#else
#define BAYPLAN_KERNELS_CPU_EXP_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

/// e^x for -87 <= x <= 88 or NaN: x = n ln 2 + r with |r| <= ln(2) / 2, e^x = 2^n e^r.
template <class D>
HWY_INLINE hn::Vec<D> exp_in_range(D d, hn::Vec<D> x, float /*lane type*/) {
  const hn::Rebind<std::int32_t, D> di;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const auto round = hn::Set(d, 12582912.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), round);
  const auto n = hn::Sub(shifted, round);
  // ln 2 in two parts; the product of n with the first is exact.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), r);
  p = hn::Add(p, hn::Set(d, 1.0f));
  const auto exponent = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, round));
  const auto power = hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127)));
  return hn::Mul(p, hn::BitCast(d, power));
}

template <class D>
HWY_INLINE hn::Vec<D> exp_in_range(D d, hn::Vec<D> x, double /*lane type*/) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  using A = hn::TFromD<D>;
  constexpr bool kFloat = sizeof(A) == 4;
  const auto low = hn::Set(d, kFloat ? A{-87} : A{-700});
  const auto high = hn::Set(d, kFloat ? A{88} : A{700});
  const auto too_low = hn::Lt(x, low);
  const auto bounded = hn::IfThenElse(too_low, low, hn::IfThenElse(hn::Gt(x, high), high, x));
  return hn::IfThenZeroElse(too_low, exp_in_range(d, bounded, A{}));
}

/// e^x with x limited to 87, for 1 / (1 + e^x): the quotient stays a normal number.
template <class D>
HWY_INLINE hn::Vec<D> exp_for_sigmoid(D d, hn::Vec<D> x) {
  const auto high = hn::Set(d, hn::TFromD<D>{87});
  return HWY_NAMESPACE::exp(d, hn::IfThenElse(hn::Gt(x, high), high, x));
}

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
