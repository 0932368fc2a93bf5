// Dropout whose mask is a function of the global element index (philox.h): backward and recompute
// regenerate it, and every layout drops the same elements. T in {float, double, bf16}.
#pragma once

#include <cstdint>

#include "kernels/philox.h"
#include "kernels/types.h"

namespace bayplan::kernels {

/// out[i] = uniform(first + i) >= p ? x[i] / (1 - p) : 0, the factor formed in double and rounded
/// once. The same function applied to the output gradient is the backward.
///   out, x [n]; out may be x · p in [0, 1) · first: global index of element 0 of the arrays
template <class T>
void dropout(T* out, const T* x, double p, const PhiloxStream& stream, std::uint64_t first,
             Range elements);

}  // namespace bayplan::kernels
