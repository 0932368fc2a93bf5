// Activations, rotary embedding and random numbers in fp64, one element at a time.
#include <cmath>
#include <numbers>

#include "kernels/reference/reference.h"

namespace bayplan::kernels::reference {
namespace {

// Elements 4 k to 4 k + 3 are the words of the block whose counter is {k, step, operator}.
std::uint32_t philox_word(const PhiloxStream& stream, std::uint64_t element) {
  const std::uint64_t block = element / 4;
  const auto words = philox4x32_10(
      {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), stream.step,
       stream.operator_id},
      {static_cast<std::uint32_t>(stream.seed), static_cast<std::uint32_t>(stream.seed >> 32)});
  return words[element % 4];
}

}  // namespace

// In long double, because 1 + tanh(u) cancels for negative x.
double gelu_tanh(double x) {
  const long double z = x;
  const long double u =
      std::sqrt(2.0L / std::numbers::pi_v<long double>) * (z + 0.044715L * z * z * z);
  return static_cast<double>(0.5L * z * (1.0L + std::tanh(u)));
}

double gelu_tanh_derivative(double x) {
  const long double z = x;
  const long double k = std::sqrt(2.0L / std::numbers::pi_v<long double>);
  const long double tanh_u = std::tanh(k * (z + 0.044715L * z * z * z));
  const long double du = k * (1.0L + 3.0L * 0.044715L * z * z);
  return static_cast<double>(0.5L * (1.0L + tanh_u) + 0.5L * z * (1.0L - tanh_u * tanh_u) * du);
}

double silu(double x) { return x / (1.0 + std::exp(-x)); }

double silu_derivative(double x) {
  const double s = 1.0 / (1.0 + std::exp(-x));
  return s + x * s * (1.0 - s);
}

void rope(double* out, const double* x, const RopeShape& shape, std::int64_t tokens, double theta,
          double direction) {
  const std::int64_t half = shape.head_dim / 2;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t position = shape.positions != nullptr ? shape.positions[t] : t % shape.seq;
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const double* from = x + t * shape.x_stride + head * shape.head_dim;
      double* to = out + t * shape.out_stride + head * shape.head_dim;
      for (std::int64_t i = 0; i < half; ++i) {
        const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_dim);
        const double angle = direction * static_cast<double>(position) * std::pow(theta, exponent);
        const double a = from[i];
        const double b = from[i + half];
        to[i] = a * std::cos(angle) - b * std::sin(angle);
        to[i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
}

double philox_uniform(const PhiloxStream& stream, std::uint64_t element) {
  return std::ldexp(static_cast<double>(philox_word(stream, element) >> 8), -24);
}

double philox_normal(const PhiloxStream& stream, std::uint64_t element) {
  const std::uint64_t even = element & ~std::uint64_t{1};
  const double u = std::ldexp(static_cast<double>(philox_word(stream, even)) + 1.0, -32);
  const double w = std::ldexp(static_cast<double>(philox_word(stream, even + 1)), -32);
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * w;
  return radius * (element == even ? std::cos(angle) : std::sin(angle));
}

}  // namespace bayplan::kernels::reference
