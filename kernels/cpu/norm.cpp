// LayerNorm and RMSNorm. A row of x and dy stays in L1 between the passes over it.
#include "kernels/norm.h"

#include <cmath>

#include "kernels/cpu/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/column_sum-inl.h"
#include "kernels/cpu/simd-inl.h"

#ifndef BAYPLAN_KERNELS_CPU_NORM_TABLE_
#define BAYPLAN_KERNELS_CPU_NORM_TABLE_
namespace bayplan::kernels {
namespace {
template <class T>
struct NormTable {
  decltype(&layer_norm_forward<T>) layer_norm_forward_;
  decltype(&layer_norm_backward_input<T>) layer_norm_backward_input_;
  decltype(&layer_norm_backward_weight<T>) layer_norm_backward_weight_;
  decltype(&rms_norm_forward<T>) rms_norm_forward_;
  decltype(&rms_norm_backward_input<T>) rms_norm_backward_input_;
  decltype(&rms_norm_backward_weight<T>) rms_norm_backward_weight_;
};
}  // namespace
}  // namespace bayplan::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

template <class A>
A reciprocal_deviation(A sum_of_squares, std::int64_t width, double eps) {
  const A mean = sum_of_squares / static_cast<A>(width);
  return A{1} / std::sqrt(mean + static_cast<A>(eps));
}

template <class T>
void layer_forward(T* y, accumulate_t<T>* mean, accumulate_t<T>* rstd, const T* x, const T* weight,
                   const T* bias, std::int64_t width, double eps, Range rows) {
  const Compute<T> d;
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const T* row = x + r * width;
    T* out = y + r * width;
    const auto sum = row_sum(d, width, [&](std::int64_t c, auto access, auto* sums) HWY_ATTR {
      sums[0] = hn::Add(sums[0], access.load(d, row + c));
    });
    mean[r] = sum / static_cast<accumulate_t<T>>(width);
    const auto mean_v = hn::Set(d, mean[r]);
    const auto squares = row_sum(d, width, [&](std::int64_t c, auto access, auto* sums) HWY_ATTR {
      const auto centred = access.keep(d, hn::Sub(access.load(d, row + c), mean_v), hn::Zero(d));
      sums[0] = hn::MulAdd(centred, centred, sums[0]);
    });
    rstd[r] = reciprocal_deviation(squares, width, eps);
    const auto rstd_v = hn::Set(d, rstd[r]);
    if (bias != nullptr) {
      for_vectors(d, 0, width, [&](std::int64_t c, auto access) HWY_ATTR {
        const auto normed = hn::Mul(hn::Sub(access.load(d, row + c), mean_v), rstd_v);
        access.store(d, hn::MulAdd(normed, access.load(d, weight + c), access.load(d, bias + c)),
                     out + c);
      });
    } else {
      for_vectors(d, 0, width, [&](std::int64_t c, auto access) HWY_ATTR {
        const auto normed = hn::Mul(hn::Sub(access.load(d, row + c), mean_v), rstd_v);
        access.store(d, hn::Mul(normed, access.load(d, weight + c)), out + c);
      });
    }
  }
}

// With g = dy * weight and n = (x - mean) * rstd:
//   dx = rstd * (g - mean(g) - n * mean(g n)); RMSNorm has mean 0 and no mean(g).
template <bool centred, class T>
void backward_input(T* dx, const T* residual, const T* dy, const T* x, const T* weight,
                    const accumulate_t<T>* mean, const accumulate_t<T>* rstd, std::int64_t width,
                    Range rows) {
  using A = accumulate_t<T>;
  const Compute<T> d;
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const T* x_row = x + r * width;
    const T* dy_row = dy + r * width;
    T* out = dx + r * width;
    const auto rstd_v = hn::Set(d, rstd[r]);
    const auto mean_v = hn::Set(d, centred ? mean[r] : A{0});
    const auto normed = [&](std::int64_t c, auto access) HWY_ATTR {
      const auto value = access.load(d, x_row + c);
      return hn::Mul(centred ? hn::Sub(value, mean_v) : value, rstd_v);
    };
    A totals[2] = {A{0}, A{0}};
    if constexpr (centred) {
      row_sums<2>(d, width, totals, [&](std::int64_t c, auto access, auto* sums) HWY_ATTR {
        const auto g = hn::Mul(access.load(d, dy_row + c), access.load(d, weight + c));
        sums[0] = hn::MulAdd(g, normed(c, access), sums[0]);
        sums[1] = hn::Add(sums[1], g);
      });
    } else {
      totals[0] = row_sum(d, width, [&](std::int64_t c, auto access, auto* sums) HWY_ATTR {
        const auto g = hn::Mul(access.load(d, dy_row + c), access.load(d, weight + c));
        sums[0] = hn::MulAdd(g, normed(c, access), sums[0]);
      });
    }
    const auto mean_gn = hn::Set(d, totals[0] / static_cast<A>(width));
    const auto mean_g = hn::Set(d, totals[1] / static_cast<A>(width));
    const auto gradient = [&](std::int64_t c, auto access) HWY_ATTR {
      auto g = hn::Mul(access.load(d, dy_row + c), access.load(d, weight + c));
      if constexpr (centred) {
        g = hn::Sub(g, mean_g);
      }
      return hn::NegMulAdd(normed(c, access), mean_gn, g);
    };
    if (residual != nullptr) {
      const T* residual_row = residual + r * width;
      for_vectors(d, 0, width, [&](std::int64_t c, auto access) HWY_ATTR {
        const auto kept = access.load(d, residual_row + c);
        access.store(d, hn::MulAdd(gradient(c, access), rstd_v, kept), out + c);
      });
    } else {
      for_vectors(d, 0, width, [&](std::int64_t c, auto access) HWY_ATTR {
        access.store(d, hn::Mul(gradient(c, access), rstd_v), out + c);
      });
    }
  }
}

template <class T>
void layer_backward_input(T* dx, const T* residual, const T* dy, const T* x, const T* weight,
                          const accumulate_t<T>* mean, const accumulate_t<T>* rstd,
                          std::int64_t width, Range rows) {
  backward_input<true, T>(dx, residual, dy, x, weight, mean, rstd, width, rows);
}

template <bool with_bias, class T>
void weight_gradients(accumulate_t<T>* dweight, accumulate_t<T>* dbias, const T* dy, const T* x,
                      const accumulate_t<T>* mean, const accumulate_t<T>* rstd, std::int64_t rows,
                      std::int64_t width, bool accumulate, Range columns) {
  const Compute<T> d;
  const auto make = [&](std::int64_t r) HWY_ATTR {
    const auto mean_v = hn::Set(d, mean[r]);
    const auto rstd_v = hn::Set(d, rstd[r]);
    const T* x_row = x + r * width;
    const T* dy_row = dy + r * width;
    return [=](std::int64_t c, auto access, auto* sums) HWY_ATTR {
      const auto normed = hn::Mul(hn::Sub(access.load(d, x_row + c), mean_v), rstd_v);
      const auto g = access.load(d, dy_row + c);
      sums[0] = hn::MulAdd(g, normed, sums[0]);
      if constexpr (with_bias) {
        sums[1] = hn::Add(sums[1], g);
      }
    };
  };
  if constexpr (with_bias) {
    column_sums<2>(d, rows, columns, accumulate, {dweight, dbias}, make);
  } else {
    column_sums<1>(d, rows, columns, accumulate, {dweight}, make);
  }
}

template <class T>
void layer_backward_weight(accumulate_t<T>* dweight, accumulate_t<T>* dbias, const T* dy,
                           const T* x, const accumulate_t<T>* mean, const accumulate_t<T>* rstd,
                           std::int64_t rows, std::int64_t width, bool accumulate, Range columns) {
  const auto run = dbias != nullptr ? &weight_gradients<true, T> : &weight_gradients<false, T>;
  run(dweight, dbias, dy, x, mean, rstd, rows, width, accumulate, columns);
}

template <class T>
void rms_forward(T* y, accumulate_t<T>* rstd, const T* x, const T* weight, std::int64_t width,
                 double eps, Range rows) {
  const Compute<T> d;
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const T* row = x + r * width;
    T* out = y + r * width;
    const auto squares = row_sum(d, width, [&](std::int64_t c, auto access, auto* sums) HWY_ATTR {
      const auto value = access.load(d, row + c);
      sums[0] = hn::MulAdd(value, value, sums[0]);
    });
    rstd[r] = reciprocal_deviation(squares, width, eps);
    const auto rstd_v = hn::Set(d, rstd[r]);
    for_vectors(d, 0, width, [&](std::int64_t c, auto access) HWY_ATTR {
      const auto normed = hn::Mul(access.load(d, row + c), rstd_v);
      access.store(d, hn::Mul(normed, access.load(d, weight + c)), out + c);
    });
  }
}

template <class T>
void rms_backward_input(T* dx, const T* residual, const T* dy, const T* x, const T* weight,
                        const accumulate_t<T>* rstd, std::int64_t width, Range rows) {
  backward_input<false, T>(dx, residual, dy, x, weight, nullptr, rstd, width, rows);
}

template <class T>
void rms_backward_weight(accumulate_t<T>* dweight, const T* dy, const T* x,
                         const accumulate_t<T>* rstd, std::int64_t rows, std::int64_t width,
                         bool accumulate, Range columns) {
  const Compute<T> d;
  column_sums<1>(d, rows, columns, accumulate, {dweight}, [&](std::int64_t r) HWY_ATTR {
    const auto rstd_v = hn::Set(d, rstd[r]);
    const T* x_row = x + r * width;
    const T* dy_row = dy + r * width;
    return [=](std::int64_t c, auto access, auto* sums) HWY_ATTR {
      const auto normed = hn::Mul(access.load(d, x_row + c), rstd_v);
      sums[0] = hn::MulAdd(access.load(d, dy_row + c), normed, sums[0]);
    };
  });
}

template <class T>
constexpr NormTable<T> make_table() {
  return {&layer_forward<T>, &layer_backward_input<T>, &layer_backward_weight<T>,
          &rms_forward<T>,   &rms_backward_input<T>,   &rms_backward_weight<T>};
}
BAYPLAN_TARGET_TABLES(NormTable, norm_table)

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bayplan::kernels {
BAYPLAN_EXPORT_TABLES(NormTable, norm_table)

template <class T>
void layer_norm_forward(T* y, accumulate_t<T>* mean, accumulate_t<T>* rstd, const T* x,
                        const T* weight, const T* bias, std::int64_t width, double eps,
                        Range rows) {
  norm_table<T>().layer_norm_forward_(y, mean, rstd, x, weight, bias, width, eps, rows);
}

template <class T>
void layer_norm_backward_input(T* dx, const T* residual, const T* dy, const T* x, const T* weight,
                               const accumulate_t<T>* mean, const accumulate_t<T>* rstd,
                               std::int64_t width, Range rows) {
  norm_table<T>().layer_norm_backward_input_(dx, residual, dy, x, weight, mean, rstd, width, rows);
}

template <class T>
void layer_norm_backward_weight(accumulate_t<T>* dweight, accumulate_t<T>* dbias, const T* dy,
                                const T* x, const accumulate_t<T>* mean,
                                const accumulate_t<T>* rstd, std::int64_t rows, std::int64_t width,
                                bool accumulate, Range columns) {
  norm_table<T>().layer_norm_backward_weight_(dweight, dbias, dy, x, mean, rstd, rows, width,
                                              accumulate, columns);
}

template <class T>
void rms_norm_forward(T* y, accumulate_t<T>* rstd, const T* x, const T* weight, std::int64_t width,
                      double eps, Range rows) {
  norm_table<T>().rms_norm_forward_(y, rstd, x, weight, width, eps, rows);
}

template <class T>
void rms_norm_backward_input(T* dx, const T* residual, const T* dy, const T* x, const T* weight,
                             const accumulate_t<T>* rstd, std::int64_t width, Range rows) {
  norm_table<T>().rms_norm_backward_input_(dx, residual, dy, x, weight, rstd, width, rows);
}

template <class T>
void rms_norm_backward_weight(accumulate_t<T>* dweight, const T* dy, const T* x,
                              const accumulate_t<T>* rstd, std::int64_t rows, std::int64_t width,
                              bool accumulate, Range columns) {
  norm_table<T>().rms_norm_backward_weight_(dweight, dy, x, rstd, rows, width, accumulate, columns);
}

BAYPLAN_INSTANTIATE(layer_norm_forward)
BAYPLAN_INSTANTIATE(layer_norm_backward_input)
BAYPLAN_INSTANTIATE(layer_norm_backward_weight)
BAYPLAN_INSTANTIATE(rms_norm_forward)
BAYPLAN_INSTANTIATE(rms_norm_backward_input)
BAYPLAN_INSTANTIATE(rms_norm_backward_weight)

}  // namespace bayplan::kernels
#endif
