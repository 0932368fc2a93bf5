#include "planner/formats/tensor_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "planner/core/check.h"

namespace bayplan {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are read in place");

/// Bytes of a tensor that are in memory at once; a multiple of every element's size.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

double value_of(double x) { return x; }
double value_of(float x) { return x; }
double value_of(Half x) { return half_value(x.bits); }
double value_of(Brain x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

struct Apart {
  double absolute = 0.0;
  double relative = 0.0;
};

template <class T>
Apart apart(T x, T y) {
  const double a = value_of(x);
  const double b = value_of(y);
  if (a == b || (std::isnan(a) && std::isnan(b))) return {};
  if (!std::isfinite(a) || !std::isfinite(b)) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return {kInfinity, kInfinity};
  }
  // Halves, so that no difference of finite numbers overflows before it is divided.
  const double half = std::abs(0.5 * a - 0.5 * b);
  const double relative = half / (0.5 * std::max(std::abs(a), std::abs(b)));
  return {2.0 * half, relative};
}

/// Exact below 2^53; a double cannot tell larger neighbours apart before they are subtracted.
Apart apart(std::int64_t x, std::int64_t y) {
  if (x == y) return {};
  const std::uint64_t distance =
      x > y ? static_cast<std::uint64_t>(x) - static_cast<std::uint64_t>(y)
            : static_cast<std::uint64_t>(y) - static_cast<std::uint64_t>(x);
  const auto absolute = static_cast<double>(distance);
  return {absolute,
          absolute / std::max(std::abs(static_cast<double>(x)), std::abs(static_cast<double>(y)))};
}
Apart apart(std::int32_t x, std::int32_t y) { return apart(std::int64_t{x}, std::int64_t{y}); }

template <class T>
void widen(TensorDifference& out, const char* a, const char* b, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += static_cast<std::int64_t>(sizeof(T))) {
    T x;
    T y;
    std::memcpy(&x, a + i, sizeof(T));
    std::memcpy(&y, b + i, sizeof(T));
    const Apart d = apart(x, y);
    out.max_abs = std::max(out.max_abs, d.absolute);
    out.max_rel = std::max(out.max_rel, d.relative);
  }
}

void widen(TensorDifference& out, const char* a, const char* b, std::int64_t bytes) {
  switch (out.dtype) {
    case DType::kFp64:
      return widen<double>(out, a, b, bytes);
    case DType::kFp32:
      return widen<float>(out, a, b, bytes);
    case DType::kFp16:
      return widen<Half>(out, a, b, bytes);
    case DType::kBf16:
      return widen<Brain>(out, a, b, bytes);
    case DType::kInt64:
      return widen<std::int64_t>(out, a, b, bytes);
    case DType::kInt32:
      return widen<std::int32_t>(out, a, b, bytes);
    case DType::kUint8:
      break;
  }
  BAYPLAN_CHECK(false, "a type that the header's reader refuses");
}

/// A file that is read at given places.
class TensorFile {
 public:
  explicit TensorFile(const std::string& path) : path_(path), file_(path, std::ios::binary) {}

  Status read(std::int64_t at, std::vector<char>& out) {
    file_.seekg(at);
    file_.read(out.data(), static_cast<std::streamsize>(out.size()));
    if (file_) return {};
    return Error{"unreadable-file", fmt::format("cannot read {} bytes at byte {}", out.size(), at),
                 path_, "check the file and the disk"};
  }

 private:
  std::string path_;
  std::ifstream file_;
};

std::string description(const SafetensorsTensor& t) {
  return fmt::format("{} [{}]", safetensors_dtype_name(t.dtype), fmt::join(t.shape, ", "));
}

}  // namespace

double half_value(std::uint16_t bits) {
  // 1 sign, 5 exponent (bias 15) and 10 fraction bits (IEEE 754-2019, binary16).
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double magnitude = 0.0;
  if (exponent == 31) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

Result<StateDifference> compare_safetensors(const std::string& a, const std::string& b) {
  BAYPLAN_TRY(header_a, read_safetensors_header(a));
  BAYPLAN_TRY(header_b, read_safetensors_header(b));
  StateDifference result;
  std::vector<std::pair<const SafetensorsTensor*, const SafetensorsTensor*>> both;
  auto x = header_a.tensors.begin();
  auto y = header_b.tensors.begin();
  while (x != header_a.tensors.end() || y != header_b.tensors.end()) {
    if (y == header_b.tensors.end() || (x != header_a.tensors.end() && x->name < y->name)) {
      result.only_in_a.push_back((x++)->name);
    } else if (x == header_a.tensors.end() || y->name < x->name) {
      result.only_in_b.push_back((y++)->name);
    } else {
      if (x->dtype != y->dtype || x->shape != y->shape) {
        return Error{"different-tensor",
                     fmt::format("'{}' is {} in {} and {} here", x->name, description(*x), a,
                                 description(*y)),
                     b, "compare states of the same model and precision"};
      }
      both.emplace_back(&*x++, &*y++);
    }
  }
  TensorFile file_a(a);
  TensorFile file_b(b);
  std::vector<char> piece_a;
  std::vector<char> piece_b;
  for (const auto& [in_a, in_b] : both) {
    TensorDifference& difference = result.tensors.emplace_back();
    difference.name = in_a->name;
    difference.dtype = in_a->dtype;
    difference.shape = in_a->shape;
    const std::int64_t bytes = in_a->end - in_a->begin;
    for (std::int64_t done = 0; done < bytes; done += kPieceBytes) {
      const auto n = static_cast<std::size_t>(std::min(kPieceBytes, bytes - done));
      piece_a.resize(n);
      piece_b.resize(n);
      BAYPLAN_RETURN_IF_ERROR(file_a.read(in_a->begin + done, piece_a));
      BAYPLAN_RETURN_IF_ERROR(file_b.read(in_b->begin + done, piece_b));
      widen(difference, piece_a.data(), piece_b.data(), static_cast<std::int64_t>(n));
    }
  }
  return result;
}

}  // namespace bayplan
