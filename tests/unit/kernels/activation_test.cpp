// GELU and SwiGLU.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/activation.h"
#include "kernels/reference/reference.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

template <class T>
class Activation : public ::testing::Test {};
TYPED_TEST_SUITE(Activation, StorageTypes);

// y = x / (1 + e^a). The argument a has a relative error of 3 units, hence e^a one of 3 |a|, plus
// 3 of its own; then come an addition, a division and at most 4 products: (3 |a| + 12) units.
double sigmoid_units(double argument) { return 3 * std::abs(argument) + 12; }

// e^a is taken as 0 below a = -87 and as e^87 above 87: an absolute error below |x| e^-87.
constexpr double kSaturation = 1e-35;

double gelu_argument(double x) { return 2 * 0.7978845608 * (x + 0.044715 * x * x * x); }

TYPED_TEST(Activation, GeluAgreesWithReferenceForEveryTail) {
  const double u = kUnit<TypeParam>;
  for (std::int64_t n = 0; n <= 67; ++n) {
    const auto x = random_array<TypeParam>(n, 1, -12.0, 12.0);
    const auto dout = random_array<TypeParam>(n, 2);
    std::vector<TypeParam> y(x.size());
    std::vector<TypeParam> dx(x.size());
    gelu_tanh_forward(y.data(), x.data(), Range{0, n});
    gelu_tanh_backward(dx.data(), dout.data(), x.data(), Range{0, n});
    std::vector<double> want;
    std::vector<double> want_dx;
    for (std::size_t i = 0; i < x.size(); ++i) {
      want.push_back(reference::gelu_tanh(widen(x[i])));
      want_dx.push_back(widen(dout[i]) * reference::gelu_tanh_derivative(widen(x[i])));
    }
    // The reference itself cancels in 1 + tanh(u): a long double unit of x.
    expect_close(y, want, [&](std::size_t i) {
      const double value = widen(x[i]);
      return u * sigmoid_units(gelu_argument(value)) * std::abs(want[i]) + kSaturation +
             0x1p-62 * std::abs(value);
    });
    // Derivative s (1 + x e s (2u)'): the parts s and x s (1 - s) (2u)' each carry those units.
    expect_close(dx, want_dx, [&](std::size_t i) {
      const double value = widen(x[i]);
      const double s = 1 / (1 + std::exp(-gelu_argument(value)));
      const double slope = 1.5957691 * (1 + 0.134145 * value * value);
      const double parts = s + std::abs(value) * s * (1 - s) * slope;
      return std::abs(widen(dout[i])) *
             (u * sigmoid_units(gelu_argument(value)) * parts + kSaturation + 0x1p-58);
    });
  }
}

TYPED_TEST(Activation, GeluSaturatesInsteadOfOverflowing) {
  const std::vector<double> values = {-1e4, -50, 50, 1e4};
  std::vector<TypeParam> x;
  for (const double value : values) {
    x.push_back(narrow<TypeParam>(value));
  }
  std::vector<TypeParam> y(x.size());
  gelu_tanh_forward(y.data(), x.data(), Range{0, 4});
  EXPECT_NEAR(widen(y[0]), 0.0, 1e-30);
  EXPECT_NEAR(widen(y[1]), 0.0, 1e-30);
  EXPECT_EQ(widen(y[2]), widen(x[2]));
  EXPECT_EQ(widen(y[3]), widen(x[3]));
}

TYPED_TEST(Activation, NanStaysNan) {
  const TypeParam x = narrow<TypeParam>(std::numeric_limits<double>::quiet_NaN());
  const TypeParam one = narrow<TypeParam>(1.0);
  TypeParam y = one;
  gelu_tanh_forward(&y, &x, Range{0, 1});
  EXPECT_TRUE(std::isnan(widen(y)));
  y = one;
  swiglu_forward<TypeParam>({&y, 1}, {&x, 1}, {&one, 1}, 1, Range{0, 1});
  EXPECT_TRUE(std::isnan(widen(y)));
}

TYPED_TEST(Activation, GeluSplitChangesNoBit) {
  const std::int64_t n = 1003;
  const auto x = random_array<TypeParam>(n, 3, -4.0, 4.0);
  const auto dout = random_array<TypeParam>(n, 4);
  std::vector<TypeParam> whole(x.size()), pieces(x.size()), dx(x.size()), dx_pieces(x.size());
  gelu_tanh_forward(whole.data(), x.data(), Range{0, n});
  gelu_tanh_backward(dx.data(), dout.data(), x.data(), Range{0, n});
  in_pieces(n, [&](Range part) {
    gelu_tanh_forward(pieces.data(), x.data(), part);
    gelu_tanh_backward(dx_pieces.data(), dout.data(), x.data(), part);
  });
  EXPECT_TRUE(same_bits(whole, pieces));
  EXPECT_TRUE(same_bits(dx, dx_pieces));
}

TYPED_TEST(Activation, SwigluAgreesWithReferenceForPackedRowsAndEveryTail) {
  const double u = kUnit<TypeParam>;
  const std::int64_t rows = 3;
  for (std::int64_t width = 0; width <= 67; ++width) {
    const std::int64_t stride = 2 * width + 1;
    const auto x = random_array<TypeParam>(rows * stride, 5, -9.0, 9.0);
    const auto dout = random_array<TypeParam>(rows * width, 6);
    std::vector<TypeParam> y(dout.size());
    std::vector<TypeParam> dx(x.size());
    const Rows<const TypeParam> gate{x.data(), stride};
    const Rows<const TypeParam> up{x.data() + width, stride};
    const Rows<const TypeParam> grad{dout.data(), width};
    in_pieces(rows, [&](Range part) {
      swiglu_forward<TypeParam>({y.data(), width}, gate, up, width, part);
      swiglu_backward<TypeParam>({dx.data(), stride}, {dx.data() + width, stride}, grad, gate, up,
                                 width, part);
    });
    std::vector<double> want(y.size());
    std::vector<double> want_dx(x.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < width; ++c) {
        const double g = widen(x[r * stride + c]);
        const double v = widen(x[r * stride + width + c]);
        const double dy = widen(dout[r * width + c]);
        want[r * width + c] = reference::silu(g) * v;
        want_dx[r * stride + c] = dy * v * reference::silu_derivative(g);
        want_dx[r * stride + width + c] = dy * reference::silu(g);
      }
    }
    // |gate| <= 9: 3 * 9 + 12 units of each result; the derivative's parts are below 2, up 9.
    expect_close(y, want, [&](std::size_t i) { return u * sigmoid_units(9) * std::abs(want[i]); });
    expect_close(dx, want_dx, [&](std::size_t) { return u * sigmoid_units(9) * 2 * 9 * 2; });
  }
}

TYPED_TEST(Activation, SwigluBackwardMayOverwriteItsInputs) {
  const auto gate = random_array<TypeParam>(70, 7);
  const auto up = random_array<TypeParam>(70, 8);
  const auto dout = random_array<TypeParam>(70, 9);
  std::vector<TypeParam> dgate(70), dup(70);
  swiglu_backward<TypeParam>({dgate.data(), 35}, {dup.data(), 35}, {dout.data(), 35},
                             {gate.data(), 35}, {up.data(), 35}, 35, Range{0, 2});
  auto gate_in_place = gate;
  auto up_in_place = up;
  swiglu_backward<TypeParam>({gate_in_place.data(), 35}, {up_in_place.data(), 35},
                             {dout.data(), 35}, {gate_in_place.data(), 35},
                             {up_in_place.data(), 35}, 35, Range{0, 2});
  EXPECT_TRUE(same_bits(gate_in_place, dgate));
  EXPECT_TRUE(same_bits(up_in_place, dup));
}

}  // namespace
}  // namespace bayplan::kernels::test
