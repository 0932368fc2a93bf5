// Token and position embedding: gather, and its transpose. T in {float, double, bf16}. The
// vocabulary range serves vocabulary-parallel shards: ids outside it belong to another rank.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace bayplan::kernels {

/// The lookup that forward and backward share.
struct EmbeddingShape {
  std::int64_t width = 0;
  std::int64_t seq = 0;                     ///< position of token t is t % seq ...
  const std::int32_t* positions = nullptr;  ///< ... unless given here, [tokens]
  Range vocabulary;                         ///< ids that wte holds, row 0 being vocabulary.begin
};

/// out[t] = wte[ids[t] - vocabulary.begin] + wpe[position of t].
///   out [tokens, width] · wte [vocabulary, width] · wpe [positions, width] or null · ids [tokens]
/// An id outside the vocabulary range contributes zero. out must not overlap the tables.
template <class T>
void embedding_forward(T* out, const T* wte, const T* wpe, const std::int32_t* ids,
                       const EmbeddingShape& shape, Range tokens);

/// dwte[ids[t] - vocabulary.begin] += dout[t] and dwpe[position of t] += dout[t], t ascending
/// over all tokens, for the columns given (split by columns: threads then never share an element).
///   dwte, dwpe accumulate_t<T> in/out, either may be null · dout [tokens, width]
template <class T>
void embedding_backward_weight(accumulate_t<T>* dwte, accumulate_t<T>* dwpe, const T* dout,
                               const std::int32_t* ids, const EmbeddingShape& shape,
                               std::int64_t tokens, Range columns);

}  // namespace bayplan::kernels
