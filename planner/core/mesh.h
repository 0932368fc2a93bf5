// The rank mesh. Rank order [pp][dp][cp][tp], tp fastest; ep is derived from a stage's
// dp·cp·tp ranks as [edp][ep][etp] and has no axis of its own here.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace bayplan {

enum class Axis : std::uint8_t { kPp, kDp, kCp, kTp };
constexpr int kAxisCount = 4;

/// Bit per Axis.
using AxisSet = std::uint8_t;
constexpr AxisSet axis_bit(Axis a) { return static_cast<AxisSet>(1u << static_cast<unsigned>(a)); }
constexpr AxisSet kAllAxes = 0b1111;

struct MeshCoordinate {
  std::array<int, kAxisCount> at{};
  int pp() const { return at[0]; }
  int dp() const { return at[1]; }
  int cp() const { return at[2]; }
  int tp() const { return at[3]; }
  friend bool operator==(const MeshCoordinate&, const MeshCoordinate&) = default;
};

struct Mesh {
  int pp = 1, dp = 1, cp = 1, tp = 1;
  int ep = 1;  // divides dp·cp·tp

  int degree(Axis a) const {
    const std::array<int, kAxisCount> d{pp, dp, cp, tp};
    return d[static_cast<std::size_t>(a)];
  }
  int world_size() const { return pp * dp * cp * tp; }
  MeshCoordinate coordinate(int rank) const {
    return {{rank / (tp * cp * dp), rank / (tp * cp) % dp, rank / tp % cp, rank % tp}};
  }
  int rank_of(const MeshCoordinate& c) const {
    return ((c.pp() * dp + c.dp()) * cp + c.cp()) * tp + c.tp();
  }
  friend bool operator==(const Mesh&, const Mesh&) = default;
};

}  // namespace bayplan
