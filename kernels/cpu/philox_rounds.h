// Philox4x32-10, one block at a time: constants and rounds of Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC'11).
#pragma once

#include <array>
#include <cstdint>

#include "kernels/philox.h"

namespace bayplan::kernels {

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxFactor0 = 0xD2511F53u;
inline constexpr std::uint32_t kPhiloxFactor1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u;
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85u;

/// The block with index `block` of a stream, that is elements 4 * block to 4 * block + 3.
inline std::array<std::uint32_t, 4> philox_block(const PhiloxStream& stream, std::uint64_t block) {
  return philox4x32_10(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), stream.step,
       stream.operator_id},
      {static_cast<std::uint32_t>(stream.seed), static_cast<std::uint32_t>(stream.seed >> 32)});
}

}  // namespace bayplan::kernels
