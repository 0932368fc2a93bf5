// Embedding lookup and its transpose. The transpose splits by columns, never by tokens: repeated
// ids then need no atomics and every element is one ascending chain of additions.
#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/cpu/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd-inl.h"

#ifndef BAYPLAN_KERNELS_CPU_EMBEDDING_TABLE_
#define BAYPLAN_KERNELS_CPU_EMBEDDING_TABLE_
namespace bayplan::kernels {
namespace {
template <class T>
struct EmbeddingTable {
  decltype(&embedding_forward<T>) forward;
  decltype(&embedding_backward_weight<T>) backward_weight;
};

inline std::int64_t position_of(const EmbeddingShape& shape, std::int64_t token) {
  return shape.positions != nullptr ? shape.positions[token] : token % shape.seq;
}

/// Row of wte, or -1 when the id belongs to another shard.
inline std::int64_t row_of(const EmbeddingShape& shape, std::int64_t id) {
  const bool here = id >= shape.vocabulary.begin && id < shape.vocabulary.end;
  return here ? id - shape.vocabulary.begin : -1;
}
}  // namespace
}  // namespace bayplan::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bayplan::kernels::HWY_NAMESPACE {
namespace {

template <class T>
void forward(T* out, const T* wte, const T* wpe, const std::int32_t* ids,
             const EmbeddingShape& shape, Range tokens) {
  const Compute<T> d;
  for (std::int64_t t = tokens.begin; t < tokens.end; ++t) {
    const std::int64_t row = row_of(shape, ids[t]);
    const T* token_row = row < 0 ? nullptr : wte + row * shape.width;
    const T* position_row = wpe == nullptr ? nullptr : wpe + position_of(shape, t) * shape.width;
    T* to = out + t * shape.width;
    if (token_row != nullptr && position_row == nullptr) {
      std::copy(token_row, token_row + shape.width, to);
      continue;
    }
    for_vectors(d, 0, shape.width, [&](std::int64_t c, auto access) HWY_ATTR {
      auto value = hn::Zero(d);
      if (token_row != nullptr) {
        value = access.load(d, token_row + c);
      }
      if (position_row != nullptr) {
        value = hn::Add(value, access.load(d, position_row + c));
      }
      access.store(d, value, to + c);
    });
  }
}

template <class T>
void backward_weight(accumulate_t<T>* dwte, accumulate_t<T>* dwpe, const T* dout,
                     const std::int32_t* ids, const EmbeddingShape& shape, std::int64_t tokens,
                     Range columns) {
  using A = accumulate_t<T>;
  const Compute<T> d;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t row = row_of(shape, ids[t]);
    const T* from = dout + t * shape.width;
    const auto add_to = [&](A* gradient_row) HWY_ATTR {
      for_vectors(d, columns.begin, columns.end, [&](std::int64_t c, auto access) HWY_ATTR {
        const auto sum = hn::Add(access.load(d, gradient_row + c), access.load(d, from + c));
        access.store(d, sum, gradient_row + c);
      });
    };
    if (dwte != nullptr && row >= 0) {
      add_to(dwte + row * shape.width);
    }
    if (dwpe != nullptr) {
      add_to(dwpe + position_of(shape, t) * shape.width);
    }
  }
}

template <class T>
constexpr EmbeddingTable<T> make_table() {
  return {&forward<T>, &backward_weight<T>};
}
BAYPLAN_TARGET_TABLES(EmbeddingTable, embedding_table)

}  // namespace
}  // namespace bayplan::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bayplan::kernels {
BAYPLAN_EXPORT_TABLES(EmbeddingTable, embedding_table)

template <class T>
void embedding_forward(T* out, const T* wte, const T* wpe, const std::int32_t* ids,
                       const EmbeddingShape& shape, Range tokens) {
  embedding_table<T>().forward(out, wte, wpe, ids, shape, tokens);
}

template <class T>
void embedding_backward_weight(accumulate_t<T>* dwte, accumulate_t<T>* dwpe, const T* dout,
                               const std::int32_t* ids, const EmbeddingShape& shape,
                               std::int64_t tokens, Range columns) {
  embedding_table<T>().backward_weight(dwte, dwpe, dout, ids, shape, tokens, columns);
}

BAYPLAN_INSTANTIATE(embedding_forward)
BAYPLAN_INSTANTIATE(embedding_backward_weight)

}  // namespace bayplan::kernels
#endif
