// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11). The value of an element is
// a function of (seed, step, operator, global element index) alone, so it depends neither on the
// layout nor on the order of execution, and a mask can be regenerated instead of saved.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/types.h"

namespace bayplan::kernels {

/// What keys a sequence of random numbers. Different triples never share a counter.
struct PhiloxStream {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t operator_id = 0;
};

/// One block: ten rounds on counter with key.
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key);

/// out[i] = the 32 random bits of global element first + i: word (e & 3) of the block with
/// counter {low e>>2, high e>>2, step, operator_id} and key {low seed, high seed}.
///   out [end] out, i in elements
void philox_bits(std::uint32_t* out, const PhiloxStream& stream, std::uint64_t first,
                 Range elements);

/// Uniform in [0, 1): the upper 24 bits of philox_bits, times 2^-24; equal values for float and
/// double. T: float, double.
template <class T>
void philox_uniform(T* out, const PhiloxStream& stream, std::uint64_t first, Range elements);

/// Normal with the given mean and standard deviation, by Box-Muller on the pair of words that an
/// element shares with its neighbour (even element: cosine, odd: sine), in double, rounded once to
/// T; |value - mean| <= 6.7 stddev. T: float, double.
template <class T>
void philox_normal(T* out, const PhiloxStream& stream, std::uint64_t first, double mean,
                   double stddev, Range elements);

}  // namespace bayplan::kernels
