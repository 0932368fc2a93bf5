// Sizes of one tensor, outermost first, row-major and dense.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

namespace bayplan {

struct Shape {
  static constexpr int kMaxRank = 4;
  std::array<std::int64_t, kMaxRank> dims{};
  int rank = 0;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> sizes) {
    for (std::int64_t d : sizes) dims[static_cast<std::size_t>(rank++)] = d;
  }
  constexpr std::int64_t operator[](int i) const { return dims[static_cast<std::size_t>(i)]; }
  /// Elements; 1 for rank 0.
  constexpr std::int64_t count() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<std::size_t>(i)];
    return n;
  }
  /// Size of the last dim, and the number of rows of that size.
  constexpr std::int64_t width() const { return rank == 0 ? 1 : (*this)[rank - 1]; }
  constexpr std::int64_t rows() const { return rank == 0 ? 1 : count() / width(); }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

}  // namespace bayplan
