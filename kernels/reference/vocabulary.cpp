// Embedding and cross-entropy in fp64.
#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.h"

namespace bayplan::kernels::reference {
namespace {

std::int64_t position_of(const EmbeddingShape& shape, std::int64_t token) {
  return shape.positions != nullptr ? shape.positions[token] : token % shape.seq;
}

bool holds(const EmbeddingShape& shape, std::int64_t id) {
  return id >= shape.vocabulary.begin && id < shape.vocabulary.end;
}

}  // namespace

void embedding_forward(double* out, const double* wte, const double* wpe, const std::int32_t* ids,
                       const EmbeddingShape& shape, std::int64_t tokens) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < shape.width; ++c) {
      double value = 0;
      if (holds(shape, ids[t])) {
        value += wte[(ids[t] - shape.vocabulary.begin) * shape.width + c];
      }
      if (wpe != nullptr) {
        value += wpe[position_of(shape, t) * shape.width + c];
      }
      out[t * shape.width + c] = value;
    }
  }
}

void embedding_backward_weight(double* dwte, double* dwpe, const double* dout,
                               const std::int32_t* ids, const EmbeddingShape& shape,
                               std::int64_t tokens) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < shape.width; ++c) {
      const double value = dout[t * shape.width + c];
      if (holds(shape, ids[t])) {
        dwte[(ids[t] - shape.vocabulary.begin) * shape.width + c] += value;
      }
      dwpe[position_of(shape, t) * shape.width + c] += value;
    }
  }
}

void cross_entropy_forward(double* loss, double* lse, const double* logits,
                           const std::int32_t* labels, const LogitsShape& shape,
                           std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const double* row = logits + r * shape.stride;
    const double maximum = *std::max_element(row, row + shape.columns);
    long double sum = 0;  // 50,000 additions in double would show in the last digits
    for (std::int64_t c = 0; c < shape.columns; ++c) {
      sum += std::exp(row[c] - maximum);
    }
    lse[r] = static_cast<double>(maximum + std::log(sum));
    const std::int64_t column = labels[r] - shape.first_class;
    const bool here = labels[r] >= 0 && column >= 0 && column < shape.columns;
    loss[r] = labels[r] == kIgnoreLabel ? 0.0 : lse[r] - (here ? row[column] : 0.0);
  }
}

void cross_entropy_backward(double* logits, const double* lse, const std::int32_t* labels,
                            const LogitsShape& shape, double seed, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < shape.stride; ++c) {
      double& value = logits[r * shape.stride + c];
      if (labels[r] == kIgnoreLabel || c >= shape.columns) {
        value = 0;
      } else {
        const double label = labels[r] == c + shape.first_class ? 1.0 : 0.0;
        value = (std::exp(value - lse[r]) - label) * seed;
      }
    }
  }
}

}  // namespace bayplan::kernels::reference
