// Philox4x32-10 on vectors of counters, written out in element order.
#if defined(BAYPLAN_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BAYPLAN_KERNELS_CPU_PHILOX_INL_H_
#undef BAYPLAN_KERNELS_CPU_PHILOX_INL_H_
#else
#define BAYPLAN_KERNELS_CPU_PHILOX_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/philox_rounds.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/philox.h"

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR
using PhiloxTag = hn::CappedTag<std::uint32_t, 16>;

/// Both halves of the 64-bit products of every lane with `factor`.
template <class D, class V>
HWY_INLINE void multiply_wide(D d, V a, V factor, V& high, V& low) {
  const hn::RepartitionToWide<D> wide;
  const auto even = hn::MulEven(a, factor);
  const V odd_lanes = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a)));
  const auto odd = hn::MulEven(odd_lanes, factor);
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}
#endif

/// words[4 k .. 4 k + 3] = block first_block + k, for k < blocks. A multiple of kPhiloxBlocks is
/// computed, so `words` must have room for 4 * round_up(blocks, kPhiloxBlocks).
constexpr std::int64_t kPhiloxBlocks = 16;

HWY_INLINE void philox_blocks(std::uint32_t* words, const PhiloxStream& stream,
                              std::uint64_t first_block, std::int64_t blocks) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t k = 0; k < blocks; ++k) {
    const auto block = philox_block(stream, first_block + static_cast<std::uint64_t>(k));
    std::copy(block.begin(), block.end(), words + 4 * k);
  }
#else
  const PhiloxTag d;
  using V = hn::Vec<PhiloxTag>;
  HWY_ALIGN std::uint32_t low_words[static_cast<std::size_t>(lanes(d))];
  HWY_ALIGN std::uint32_t high_words[static_cast<std::size_t>(lanes(d))];
  const V factor0 = hn::Set(d, kPhiloxFactor0);
  const V factor1 = hn::Set(d, kPhiloxFactor1);
  for (std::int64_t k = 0; k < blocks; k += lanes(d)) {
    for (std::int64_t lane = 0; lane < lanes(d); ++lane) {
      const std::uint64_t block = first_block + static_cast<std::uint64_t>(k + lane);
      low_words[lane] = static_cast<std::uint32_t>(block);
      high_words[lane] = static_cast<std::uint32_t>(block >> 32);
    }
    V c0 = hn::Load(d, low_words);
    V c1 = hn::Load(d, high_words);
    V c2 = hn::Set(d, stream.step);
    V c3 = hn::Set(d, stream.operator_id);
    std::uint32_t key0 = static_cast<std::uint32_t>(stream.seed);
    std::uint32_t key1 = static_cast<std::uint32_t>(stream.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      V high0, low0, high1, low1;
      multiply_wide(d, c0, factor0, high0, low0);
      multiply_wide(d, c2, factor1, high1, low1);
      c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, key0));
      c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, key1));
      c1 = low1;
      c3 = low0;
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    hn::StoreInterleaved4(c0, c1, c2, c3, d, words + 4 * k);
  }
#endif
}

/// Elements of one call of `body` below; a multiple of what philox_blocks computes at once.
constexpr std::int64_t kPhiloxChunk = 1024;

/// Cuts `elements` (global index = first + i) into runs that lie in whole blocks and calls
/// body(begin, end, words), words[i - begin] being the bits of element i.
template <class Body>
HWY_INLINE void for_philox_chunks(const PhiloxStream& stream, std::uint64_t first, Range elements,
                                  Body body) {
  // The margin lets `body` read a whole vector at the last element.
  HWY_ALIGN std::uint32_t words[static_cast<std::size_t>(kPhiloxChunk) + kSumLanes<float>] = {};
  std::int64_t i = elements.begin;
  while (i < elements.end) {
    const std::uint64_t global = first + static_cast<std::uint64_t>(i);
    const std::int64_t skip = static_cast<std::int64_t>(global & 3);
    const std::int64_t end = std::min(elements.end, i + kPhiloxChunk - skip);
    philox_blocks(words, stream, global >> 2, (skip + end - i + 3) / 4);
    body(i, end, words + skip);
    i = end;
  }
}

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
