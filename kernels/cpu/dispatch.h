// Run-time choice of the instruction set, through Highway. Every kernel file is compiled once per
// target; what a family offers for one storage type is a table of function pointers, and the
// dispatched function returns the table of the machine's best target.
//
// SSSE3 and SSE4 are left out: the machines that have them but not AVX2 are too old to train on,
// and leaving them out halves the compile time; they get the scalar target. Targets whose
// vectors have no size at compile time (SVE, RVV) are left out because row sums keep arrays of
// vectors.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

#include <type_traits>

#include "kernels/types.h"

// Types and function names cannot be put in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)

/// In the target's namespace: NAME_f32(), NAME_f64() and NAME_bf16() return make_table<T>().
#define BAYPLAN_TARGET_TABLES(TABLE, NAME)                       \
  const TABLE<float>* NAME##_f32() {                             \
    static constexpr TABLE<float> table = make_table<float>();   \
    return &table;                                               \
  }                                                              \
  const TABLE<double>* NAME##_f64() {                            \
    static constexpr TABLE<double> table = make_table<double>(); \
    return &table;                                               \
  }                                                              \
  const TABLE<bf16>* NAME##_bf16() {                             \
    static constexpr TABLE<bf16> table = make_table<bf16>();     \
    return &table;                                               \
  }

/// Under HWY_ONCE, in namespace bayplan::kernels: NAME<T>() is the table for this machine.
#define BAYPLAN_EXPORT_TABLES(TABLE, NAME)            \
  namespace {                                         \
  HWY_EXPORT(NAME##_f32);                             \
  HWY_EXPORT(NAME##_f64);                             \
  HWY_EXPORT(NAME##_bf16);                            \
  template <class T>                                  \
  const TABLE<T>& NAME() {                            \
    if constexpr (std::is_same_v<T, float>) {         \
      return *HWY_DYNAMIC_DISPATCH(NAME##_f32)();     \
    } else if constexpr (std::is_same_v<T, double>) { \
      return *HWY_DYNAMIC_DISPATCH(NAME##_f64)();     \
    } else {                                          \
      return *HWY_DYNAMIC_DISPATCH(NAME##_bf16)();    \
    }                                                 \
  }                                                   \
  }

/// Explicit instantiation of a kernel for the three storage types.
#define BAYPLAN_INSTANTIATE(FUNCTION)                   \
  template decltype(FUNCTION<float>) FUNCTION<float>;   \
  template decltype(FUNCTION<double>) FUNCTION<double>; \
  template decltype(FUNCTION<bf16>) FUNCTION<bf16>;

// NOLINTEND(bugprone-macro-parentheses)
