// Softmax cross-entropy over rows of logits, fused, with the gradient written over the logits.
// T in {float, double, bf16} for logits. Works on a vocabulary-parallel shard too: the caller
// combines the shards' lse and hands the global one to the backward.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace bayplan::kernels {

/// Rows with this label have loss 0 and gradient 0.
inline constexpr std::int32_t kIgnoreLabel = -1;

/// Logits [rows, stride], of which columns [0, columns) are classes first_class, first_class + 1,
/// ... and the rest is vocabulary padding: never read, its gradient is written as zero.
struct LogitsShape {
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  std::int64_t first_class = 0;  ///< 0 unless the vocabulary is split among ranks
};

/// lse[r] = log(sum of exp(logits[r])), label_logit[r] = logits[r, labels[r]] (0 if the label is
/// ignored or belongs to another shard), loss[r] = lse[r] - label_logit[r] (0 if ignored).
///   loss, label_logit [rows] out, either may be null · lse [rows] out · labels [rows] in
/// A row's exponentials are summed in accumulate_t<T> over blocks of 2048 columns, the blocks in
/// double. A NaN logit gives NaN. Add the losses with sum_ascending() (optim.h).
template <class T>
void cross_entropy_forward(accumulate_t<T>* loss, accumulate_t<T>* lse,
                           accumulate_t<T>* label_logit, const T* logits,
                           const std::int32_t* labels, const LogitsShape& shape, Range rows);

/// In place: logits[r, c] = (exp(logits[r, c] - lse[r]) - [c is the label]) * seed; 0 in rows
/// whose label is ignored and in padding columns.
///   logits [rows, stride] in/out · lse [rows] in · labels [rows] in
///   seed: gradient of the total with respect to each row's loss, e.g. 1 / tokens
template <class T>
void cross_entropy_backward(T* logits, const accumulate_t<T>* lse, const std::int32_t* labels,
                            const LogitsShape& shape, accumulate_t<T> seed, Range rows);

}  // namespace bayplan::kernels
