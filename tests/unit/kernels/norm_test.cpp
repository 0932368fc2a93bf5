// LayerNorm and RMSNorm, forward and both halves of the backward.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/norm.h"
#include "kernels/reference/reference.h"
#include "tests/unit/kernels/arrays.h"

namespace bayplan::kernels::test {
namespace {

constexpr double kEps = 1e-5;

/// Everything that forward and backward of one norm read and write.
template <class T>
struct Case {
  using A = accumulate_t<T>;

  Case(std::int64_t row_count, std::int64_t row_width)
      : rows(row_count),
        width(row_width),
        x(random_array<T>(rows * width, 1, -1.0, 3.0)),
        dy(random_array<T>(rows * width, 2)),
        residual(random_array<T>(rows * width, 3)),
        weight(random_array<T>(width, 4)),
        bias(random_array<T>(width, 5)),
        y(x.size()),
        dx(x.size()),
        mean(static_cast<std::size_t>(rows)),
        rstd(static_cast<std::size_t>(rows)),
        dweight(random_array<A>(width, 6)),
        dbias(random_array<A>(width, 7)) {}

  void forward(Range part) {
    layer_norm_forward(y.data(), mean.data(), rstd.data(), x.data(), weight.data(), bias.data(),
                       width, kEps, part);
  }
  void backward_input(Range part) {
    layer_norm_backward_input(dx.data(), residual.data(), dy.data(), x.data(), weight.data(),
                              mean.data(), rstd.data(), width, part);
  }
  void backward_weight(bool accumulate, Range columns) {
    layer_norm_backward_weight(dweight.data(), dbias.data(), dy.data(), x.data(), mean.data(),
                               rstd.data(), rows, width, accumulate, columns);
  }
  void rms_forward(Range part) {
    rms_norm_forward(y.data(), rstd.data(), x.data(), weight.data(), width, kEps, part);
  }
  void rms_backward_input(Range part) {
    rms_norm_backward_input(dx.data(), residual.data(), dy.data(), x.data(), weight.data(),
                            rstd.data(), width, part);
  }
  void rms_backward_weight(bool accumulate, Range columns) {
    rms_norm_backward_weight(dweight.data(), dy.data(), x.data(), rstd.data(), rows, width,
                             accumulate, columns);
  }

  std::int64_t rows, width;
  std::vector<T> x, dy, residual, weight, bias, y, dx;
  std::vector<A> mean, rstd, dweight, dbias;
};

/// The same in fp64, from the same inputs.
struct Expected {
  template <class T>
  Expected(const Case<T>& c, bool layer)
      : y(c.x.size()),
        dx(c.x.size()),
        mean(c.mean.size()),
        rstd(c.rstd.size()),
        dweight(c.weight.size()),
        dbias(c.weight.size()) {
    const auto x = widen(c.x);
    const auto dy = widen(c.dy);
    const auto residual = widen(c.residual);
    const auto weight = widen(c.weight);
    const auto bias = widen(c.bias);
    if (layer) {
      reference::layer_norm_forward(y.data(), mean.data(), rstd.data(), x.data(), weight.data(),
                                    bias.data(), c.rows, c.width, kEps);
      reference::layer_norm_backward_input(dx.data(), residual.data(), dy.data(), x.data(),
                                           weight.data(), mean.data(), rstd.data(), c.rows,
                                           c.width);
      reference::layer_norm_backward_weight(dweight.data(), dbias.data(), dy.data(), x.data(),
                                            mean.data(), rstd.data(), c.rows, c.width);
    } else {
      reference::rms_norm_forward(y.data(), rstd.data(), x.data(), weight.data(), c.rows, c.width,
                                  kEps);
      reference::rms_norm_backward_input(dx.data(), residual.data(), dy.data(), x.data(),
                                         weight.data(), rstd.data(), c.rows, c.width);
      reference::rms_norm_backward_weight(dweight.data(), dy.data(), x.data(), rstd.data(), c.rows,
                                          c.width);
    }
  }

  std::vector<double> y, dx, mean, rstd, dweight, dbias;
};

// A sum over a row of n elements passes n/32 additions in a lane and five folds, each within a
// unit of the sum of magnitudes; the arithmetic around it adds about ten roundings.
double row_units(std::int64_t width) { return static_cast<double>(width) / 32 + 16; }

// With |x| <= 3, |dy|, |weight|, |residual| <= 2 and n normalised values: a rounding of x or mean
// is magnified by rstd, so the error is a number of units times the scale
// (1 + 3 rstd)(1 + |n|) * 2 * 2 (forward: the weight only), squared |n| for the backward term
// n * mean(g n), where |n| <= 4 rstd.
template <class T>
void check_against_reference(const Case<T>& c, const Expected& want, bool layer) {
  const double units = row_units(c.width) * kUnit<T>;
  const auto scale = [&](std::size_t i) {
    const double rstd = want.rstd[i / static_cast<std::size_t>(c.width)];
    const double normed = 4 * rstd;
    return (1 + 3 * rstd) * (1 + normed);
  };
  if (layer) {
    expect_close(c.mean, want.mean, [&](std::size_t) { return 3 * units; });
  }
  // rstd = f(variance): relative error half that of the variance, itself at most `units` times
  // (1 + the effect of the mean's error), below 4 here.
  expect_close(c.rstd, want.rstd,
               [&](std::size_t r) { return 4 * units * want.rstd[r] * (1 + want.rstd[r]); });
  expect_close(c.y, want.y, [&](std::size_t i) { return 4 * units * scale(i); });
  expect_close(c.dx, want.dx, [&](std::size_t i) {
    const double rstd = want.rstd[i / static_cast<std::size_t>(c.width)];
    return 8 * units * scale(i) * (1 + 4 * rstd) * (1 + rstd);
  });
}

// Rows are added one by one: `rows` additions, each term with the errors of n (see above).
template <class T>
void check_weight_gradients(const Case<T>& c, const Expected& want, bool with_bias) {
  const double rows = static_cast<double>(c.rows);
  const double largest = c.rstd.empty() ? 0 : *std::max_element(want.rstd.begin(), want.rstd.end());
  const double term = 2 * 4 * largest;
  const double units = (rows + 4 * row_units(c.width) * (1 + 3 * largest)) * kUnit<T>;
  expect_close(c.dweight, want.dweight, [&](std::size_t) { return units * rows * term; });
  if (with_bias) {
    expect_close(c.dbias, want.dbias, [&](std::size_t) { return rows * kUnit<T> * rows * 2; });
  }
}

template <class T>
class Norm : public ::testing::Test {};
TYPED_TEST_SUITE(Norm, StorageTypes);

std::vector<std::int64_t> widths() {
  std::vector<std::int64_t> result = {100, 256, 768, 1031};
  for (std::int64_t width = 2; width <= 67; ++width) {
    result.push_back(width);
  }
  return result;
}

TYPED_TEST(Norm, LayerNormAgreesWithReferenceForEveryTail) {
  for (const std::int64_t width : widths()) {
    SCOPED_TRACE(width);
    Case<TypeParam> c(5, width);
    const Expected want(c, true);
    c.forward(Range{0, 5});
    c.backward_input(Range{0, 5});
    c.backward_weight(false, Range{0, width});
    check_against_reference(c, want, true);
    check_weight_gradients(c, want, true);
  }
}

TYPED_TEST(Norm, RmsNormAgreesWithReferenceForEveryTail) {
  for (const std::int64_t width : widths()) {
    SCOPED_TRACE(width);
    Case<TypeParam> c(5, width);
    const Expected want(c, false);
    c.rms_forward(Range{0, 5});
    c.rms_backward_input(Range{0, 5});
    c.rms_backward_weight(false, Range{0, width});
    check_against_reference(c, want, false);
    check_weight_gradients(c, want, false);
  }
}

TYPED_TEST(Norm, SplittingRowsAndColumnsChangesNoBit) {
  const std::int64_t rows = 23;
  const std::int64_t width = 615;
  for (const bool layer : {true, false}) {
    Case<TypeParam> whole(rows, width);
    Case<TypeParam> pieces(rows, width);
    const auto run = [&](Case<TypeParam>& c, const auto& cut) {
      cut(rows, [&](Range part) { layer ? c.forward(part) : c.rms_forward(part); });
      cut(rows, [&](Range part) { layer ? c.backward_input(part) : c.rms_backward_input(part); });
      cut(width, [&](Range part) {
        layer ? c.backward_weight(true, part) : c.rms_backward_weight(true, part);
      });
    };
    run(whole, [](std::int64_t n, const auto& body) { body(Range{0, n}); });
    run(pieces, [](std::int64_t n, const auto& body) { in_pieces(n, body); });
    EXPECT_TRUE(same_bits(whole.y, pieces.y));
    EXPECT_TRUE(same_bits(whole.dx, pieces.dx));
    EXPECT_TRUE(same_bits(whole.mean, pieces.mean));
    EXPECT_TRUE(same_bits(whole.rstd, pieces.rstd));
    EXPECT_TRUE(same_bits(whole.dweight, pieces.dweight));
    EXPECT_TRUE(same_bits(whole.dbias, pieces.dbias));
  }
}

TYPED_TEST(Norm, RowAloneEqualsRowAmongOthers) {
  // Misaligned by one element, too.
  const std::int64_t width = 77;
  Case<TypeParam> all(3, width);
  all.forward(Range{0, 3});
  Case<TypeParam> alone(1, width);
  alone.x = shifted(std::vector<TypeParam>(all.x.begin() + 2 * width, all.x.end()), 1);
  layer_norm_forward(alone.y.data(), alone.mean.data(), alone.rstd.data(), alone.x.data() + 1,
                     alone.weight.data(), alone.bias.data(), width, kEps, Range{0, 1});
  EXPECT_TRUE(same_bits(alone.y, std::vector<TypeParam>(all.y.begin() + 2 * width, all.y.end())));
}

TYPED_TEST(Norm, AccumulateAddsTheFreshGradientOnce) {
  const std::int64_t width = 71;
  Case<TypeParam> fresh(9, width);
  fresh.forward(Range{0, 9});
  Case<TypeParam> added = fresh;
  fresh.backward_weight(false, Range{0, width});
  const auto before = added.dweight;
  added.backward_weight(true, Range{0, width});
  for (std::size_t c = 0; c < before.size(); ++c) {
    EXPECT_EQ(added.dweight[c], before[c] + fresh.dweight[c]);
  }
}

TYPED_TEST(Norm, InputGradientMayReplaceTheResidual) {
  Case<TypeParam> apart(4, 45);
  apart.forward(Range{0, 4});
  Case<TypeParam> in_place = apart;
  apart.backward_input(Range{0, 4});
  layer_norm_backward_input(in_place.residual.data(), in_place.residual.data(), in_place.dy.data(),
                            in_place.x.data(), in_place.weight.data(), in_place.mean.data(),
                            in_place.rstd.data(), in_place.width, Range{0, 4});
  EXPECT_TRUE(same_bits(in_place.residual, apart.dx));
}

TYPED_TEST(Norm, WithoutResidualOrBiasNothingIsAdded) {
  Case<TypeParam> zero(4, 45);
  std::fill(zero.residual.begin(), zero.residual.end(), TypeParam{});
  std::fill(zero.bias.begin(), zero.bias.end(), TypeParam{});
  zero.forward(Range{0, 4});
  zero.backward_input(Range{0, 4});
  Case<TypeParam> none(4, 45);
  layer_norm_forward<TypeParam>(none.y.data(), none.mean.data(), none.rstd.data(), none.x.data(),
                                none.weight.data(), nullptr, 45, kEps, Range{0, 4});
  layer_norm_backward_input<TypeParam>(none.dx.data(), nullptr, none.dy.data(), none.x.data(),
                                       none.weight.data(), none.mean.data(), none.rstd.data(), 45,
                                       Range{0, 4});
  for (std::size_t i = 0; i < zero.y.size(); ++i) {
    EXPECT_EQ(widen(zero.y[i]), widen(none.y[i]));
    EXPECT_EQ(widen(zero.dx[i]), widen(none.dx[i]));
  }
}

}  // namespace
}  // namespace bayplan::kernels::test
