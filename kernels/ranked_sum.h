// The arithmetic of a reduction whose result does not depend on how messages arrived.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace bayplan::kernels {

/// out[i] = ((inputs[0][i] + inputs[1][i]) + inputs[2][i]) + ..., in accumulate_t<T>, rounded once
/// to T when stored. T in {float, double, bf16}.
///   out [n] out · inputs [ranks] pointers to [n]; ranks >= 1
/// out may be any one of the inputs (exactly, not shifted).
template <class T>
void sum_in_rank_order(T* out, const T* const* inputs, int ranks, Range elements);

}  // namespace bayplan::kernels
