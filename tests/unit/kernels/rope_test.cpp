// Rotary position embedding.
#include <gtest/gtest.h>

#include "kernels/reference/reference.h"
#include "kernels/rope.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

template <class T>
struct Table {
  Table(std::int64_t positions, std::int64_t head_dim)
      : cos(static_cast<std::size_t>(positions * head_dim / 2)), sin(cos.size()) {
    rope_table(cos.data(), sin.data(), positions, head_dim, 10000.0);
  }
  std::vector<accumulate_t<T>> cos, sin;
};

TEST(RopeTable, PositionZeroDoesNotRotateAndTheFirstPairTurnsByThePosition) {
  const Table<double> table(4, 6);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(table.cos[i], 1.0);
    EXPECT_EQ(table.sin[i], 0.0);
  }
  // theta^0 = 1: the angle of pair 0 is the position itself, one radian a token.
  EXPECT_NEAR(table.cos[3 * 3], std::cos(3.0), 1e-15);
  EXPECT_NEAR(table.sin[3 * 3], std::sin(3.0), 1e-15);
}

template <class T>
class Rope : public ::testing::Test {};
TYPED_TEST_SUITE(Rope, StorageTypes);

// Packed rows as a fused projection leaves them: the rotated heads start at an offset and a token
// has more than them.
TYPED_TEST(Rope, AgreesWithReferenceInPackedRowsForEveryHeadDim) {
  const std::int64_t tokens = 7;
  for (std::int64_t head_dim = 0; head_dim <= 134; head_dim += 2) {
    const RopeShape shape{.heads = 2,
                          .head_dim = head_dim,
                          .out_stride = 2 * head_dim,
                          .x_stride = 3 * head_dim + 1,
                          .seq = 5};
    const Table<TypeParam> table(5, head_dim);
    const auto x = random_array<TypeParam>(tokens * shape.x_stride, 1);
    for (const bool forward : {true, false}) {
      std::vector<TypeParam> out(static_cast<std::size_t>(tokens * shape.out_stride));
      std::vector<double> want(out.size());
      in_pieces(tokens, [&](Range part) {
        if (forward) {
          rope_forward(out.data(), x.data(), table.cos.data(), table.sin.data(), shape, part);
        } else {
          rope_backward(out.data(), x.data(), table.cos.data(), table.sin.data(), shape, part);
        }
      });
      reference::rope(want.data(), widen(x).data(), shape, tokens, 10000.0, forward ? 1.0 : -1.0);
      // a cos - b sin with |a|, |b| <= 2: rounded table, product and sum, 3 units of |a| + |b|.
      expect_close(out, want, [&](std::size_t) { return 3 * kUnit<TypeParam> * 4; });
    }
  }
}

TYPED_TEST(Rope, InPlaceAndSplitGiveTheSameBits) {
  const std::int64_t tokens = 29;
  const RopeShape shape{.heads = 3, .head_dim = 22, .out_stride = 66, .x_stride = 66, .seq = 10};
  const Table<TypeParam> table(10, 22);
  auto x = random_array<TypeParam>(tokens * 66, 2);
  std::vector<TypeParam> out(x.size());
  rope_forward(out.data(), x.data(), table.cos.data(), table.sin.data(), shape, Range{0, tokens});
  in_pieces(tokens, [&](Range part) {
    rope_forward(x.data(), x.data(), table.cos.data(), table.sin.data(), shape, part);
  });
  EXPECT_TRUE(same_bits(out, x));
}

TYPED_TEST(Rope, GivenPositionsReplaceTheTokenIndex) {
  // Tokens 0..3 at positions 6..9 equal tokens 6..9 of a sequence of 10.
  RopeShape shape{.heads = 1, .head_dim = 8, .out_stride = 8, .x_stride = 8, .seq = 10};
  const Table<TypeParam> table(10, 8);
  const auto x = random_array<TypeParam>(80, 3);
  std::vector<TypeParam> whole(80);
  rope_forward(whole.data(), x.data(), table.cos.data(), table.sin.data(), shape, Range{0, 10});
  const std::vector<std::int32_t> positions = {6, 7, 8, 9};
  shape.positions = positions.data();
  std::vector<TypeParam> part(32);
  rope_forward(part.data(), x.data() + 48, table.cos.data(), table.sin.data(), shape, Range{0, 4});
  EXPECT_TRUE(same_bits(part, std::vector<TypeParam>(whole.begin() + 48, whole.end())));
}

}  // namespace
}  // namespace bayplan::kernels::test
