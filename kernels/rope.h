// Rotary position embedding (Su et al. 2021) in the rotate-half convention of Llama and Hugging
// Face: dim i of the first half is paired with dim i of the second half. Frequency scaling is
// the business of whoever fills the table. T in {float, double, bf16}.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace bayplan::kernels {

/// cos, sin [positions, head_dim / 2] out: angle = position * theta^(-2 i / head_dim), computed in
/// double and rounded once. head_dim must be even. A: float, double.
template <class A>
void rope_table(A* cos, A* sin, std::int64_t positions, std::int64_t head_dim, double theta);

/// Where a token's heads lie and which table row rotates it.
struct RopeShape {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t out_stride = 0;              ///< elements from one token to the next in out
  std::int64_t x_stride = 0;                ///< the same in x, as in packed rows [q | k | v]
  std::int64_t seq = 0;                     ///< position of token t is t % seq ...
  const std::int32_t* positions = nullptr;  ///< ... unless given here, [tokens]
};

/// out = x rotated by the angle of its position, heads [heads, head_dim] contiguous per token.
/// Positions must be rows of the table. out may be x (then with equal strides).
template <class T>
void rope_forward(T* out, const T* x, const accumulate_t<T>* cos, const accumulate_t<T>* sin,
                  const RopeShape& shape, Range tokens);

/// Rotation by minus the angle: the transpose of rope_forward.
template <class T>
void rope_backward(T* dx, const T* dout, const accumulate_t<T>* cos, const accumulate_t<T>* sin,
                   const RopeShape& shape, Range tokens);

}  // namespace bayplan::kernels
