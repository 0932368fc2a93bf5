// Causal attention on packed rows [q | k | v], by blocks of query rows: a block's scores against
// all earlier keys fit in the workspace, backward recomputes them from the saved lse.
// One task per sample and key/value head; the heads of its group add to dk and dv in ascending
// order, their row blocks in descending order. bf16 is computed in fp32 on copies of the head.
// Shapes: qkv_BSW with W = (heads + 2 kv_heads) · head_dim, o_BS(AD), lse_BAS.
// Legend: a heads, k key/value heads, g heads per key/value head, d head_dim, s sequence.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "executor/ops/kernel_table.h"
#include "executor/ops/op_arguments.h"
#include "executor/ops/product.h"
#include "kernels/cross_entropy.h"
#include "planner/core/operators/tiling.h"

namespace bayplan::exec {
namespace {

template <class A>
constexpr DType kTypeOf = std::is_same_v<A, double> ? DType::kFp64 : DType::kFp32;

/// One head's [s, d] rows inside a packed array.
template <class T>
struct Head {
  T* rows = nullptr;
  std::int64_t stride = 0;
  T* row(std::int64_t r) const { return rows + r * stride; }
};

struct Sizes {
  std::int64_t b, s, a, k, g, d, packed, out;
  double scale;
  explicit Sizes(const OpCall& call) {
    const OperatorAttributes& attributes = call.op->attributes;
    const Shape& x = call.inputs[0].shape;
    b = x[0], s = x[1];
    a = attributes.heads, k = attributes.kv_heads, g = a / k, d = attributes.head_dim;
    packed = x.width(), out = a * d;
    scale = 1.0 / std::sqrt(static_cast<double>(d));
  }
};

/// Query, key and value heads in packed rows of sample `b`.
template <class T>
Head<T> query(T* packed, const Sizes& z, std::int64_t b, std::int64_t head) {
  return {packed + b * z.s * z.packed + head * z.d, z.packed};
}
template <class T>
Head<T> key(T* packed, const Sizes& z, std::int64_t b, std::int64_t kv) {
  return query(packed, z, b, z.a + kv);
}
template <class T>
Head<T> value(T* packed, const Sizes& z, std::int64_t b, std::int64_t kv) {
  return query(packed, z, b, z.a + z.k + kv);
}
template <class T>
Head<T> output(T* o, const Sizes& z, std::int64_t b, std::int64_t head) {
  return {o + b * z.s * z.out + head * z.d, z.out};
}

template <class A>
Matrix block(const Head<A>& head, std::int64_t first, std::int64_t rows, std::int64_t d) {
  return {const_cast<std::remove_const_t<A>*>(head.row(first)), rows, d, head.stride, false};
}
template <class A>
Matrix block_transposed(const Head<A>& head, std::int64_t rows, std::int64_t d) {
  return {const_cast<std::remove_const_t<A>*>(head.rows), d, rows, head.stride, true};
}

/// The arithmetic view of a head: itself, or a dense fp32 copy when storage is bf16.
template <class T>
class Operand {
  using A = kernels::accumulate_t<T>;
  static constexpr bool kCopies = !std::is_same_v<A, std::remove_const_t<T>>;

 public:
  explicit Operand(const Sizes& z) : copy_(kCopies ? z.s * z.d : 0), s_(z.s), d_(z.d) {}

  /// Reads `head` when copying; else refers to it.
  void load(const Head<const T>& head) {
    if constexpr (kCopies) {
      for (std::int64_t r = 0; r < s_; ++r) {
        kernels::cast(copy_.get() + r * d_, head.row(r), {0, d_});
      }
      view_ = {copy_.get(), d_};
    } else {
      view_ = {const_cast<A*>(head.rows), head.stride};
    }
  }
  /// Writes go to `head`, by store() when copying.
  void refer(const Head<T>& head) {
    if constexpr (kCopies) {
      view_ = {copy_.get(), d_};
    } else {
      view_ = head;
    }
  }
  void store(const Head<T>& head) const {
    if constexpr (kCopies) {
      for (std::int64_t r = 0; r < s_; ++r) {
        kernels::cast(head.row(r), copy_.get() + r * d_, {0, d_});
      }
    }
  }
  const Head<A>& view() const { return view_; }

 private:
  Temporary<A> copy_;
  std::int64_t s_, d_;
  Head<A> view_;
};

/// Softmax over the first `first + r + 1` of `width` columns of each row r, zero after them, in
/// place: the gradient of a cross-entropy whose label is in no column. Without `known_lse`, lse
/// is computed first.
template <class A>
void causal_softmax(A* scores, A* lse, std::int64_t rows, std::int64_t first, std::int64_t width,
                    bool known_lse) {
  const std::int32_t no_label = std::numeric_limits<std::int32_t>::max();
  for (std::int64_t r = 0; r < rows; ++r) {
    const kernels::LogitsShape shape{first + r + 1, width, 0};
    A* row = scores + r * width;
    if (!known_lse) {
      kernels::cross_entropy_forward(static_cast<A*>(nullptr), lse + r, static_cast<A*>(nullptr),
                                     row, &no_label, shape, {0, 1});
    }
    kernels::cross_entropy_backward(row, lse + r, &no_label, shape, A{1}, {0, 1});
  }
}

template <class A>
void forward_head(const Sizes& z, const Head<A>& q, const Head<A>& k, const Head<A>& v,
                  const Head<A>& o, A* lse, A* scores) {
  constexpr DType type = kTypeOf<A>;
  for (std::int64_t first = 0; first < z.s; first += kAttentionRowBlock) {
    const std::int64_t rows = std::min(kAttentionRowBlock, z.s - first);
    const std::int64_t keys = first + rows;
    const Matrix p = matrix(scores, rows, keys);
    multiply_block(type, p, block(q, first, rows, z.d), block_transposed(k, keys, z.d), z.scale,
                   0.0);
    causal_softmax(scores, lse + first, rows, first, keys, false);
    multiply_block(type, block(o, first, rows, z.d), p, block(v, 0, keys, z.d), 1.0, 0.0);
  }
}

template <class A>
struct HeadGradients {
  Head<A> dq, dk, dv;
  bool first = false;  // dk and dv hold nothing yet
};

/// row_dot: sum over the head of do · o, per row.
template <class A>
void backward_head(const Sizes& z, const Head<A>& q, const Head<A>& k, const Head<A>& v,
                   const Head<A>& d_o, const A* row_dot, A* lse, A* scores, A* d_scores,
                   const HeadGradients<A>& out) {
  constexpr DType type = kTypeOf<A>;
  // The last block reaches every key, so it can write dk and dv instead of adding.
  double beta = out.first ? 0.0 : 1.0;
  const std::int64_t last = (z.s - 1) / kAttentionRowBlock * kAttentionRowBlock;
  for (std::int64_t first = last; first >= 0; first -= kAttentionRowBlock) {
    const std::int64_t rows = std::min(kAttentionRowBlock, z.s - first);
    const std::int64_t keys = first + rows;
    const Matrix p = matrix(scores, rows, keys);
    const Matrix dp = matrix(d_scores, rows, keys);
    const Matrix p_t = transpose(scores, keys, rows);
    const Matrix dp_t = transpose(d_scores, keys, rows);
    const Matrix q_rows = block(q, first, rows, z.d), do_rows = block(d_o, first, rows, z.d);
    multiply_block(type, p, q_rows, block_transposed(k, keys, z.d), z.scale, 0.0);
    causal_softmax(scores, lse + first, rows, first, keys, true);
    multiply_block(type, block(out.dv, 0, keys, z.d), p_t, do_rows, 1.0, beta);
    multiply_block(type, dp, do_rows, block_transposed(v, keys, z.d), 1.0, 0.0);
    for (std::int64_t r = 0; r < rows; ++r) {
      const A dot = row_dot[first + r];
      const A* __restrict p_row = scores + r * keys;
      A* __restrict dp_row = d_scores + r * keys;
      for (std::int64_t c = 0; c < keys; ++c) dp_row[c] = p_row[c] * (dp_row[c] - dot);
    }
    multiply_block(type, block(out.dq, first, rows, z.d), dp, block(k, 0, keys, z.d), z.scale, 0.0);
    multiply_block(type, block(out.dk, 0, keys, z.d), dp_t, q_rows, z.scale, beta);
    beta = 1.0;
  }
}

float widen(kernels::bf16 x) { return kernels::to_float(x); }
float widen(float x) { return x; }
double widen(double x) { return x; }

/// In eight lanes, folded in a fixed order.
template <class T>
kernels::accumulate_t<T> dot(const T* x, const T* y, std::int64_t n) {
  using A = kernels::accumulate_t<T>;
  constexpr std::int64_t kLanes = 8;
  A lane[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) lane[l] += widen(x[i + l]) * widen(y[i + l]);
  }
  for (std::int64_t l = 0; i < n; ++i, ++l) lane[l] += widen(x[i]) * widen(y[i]);
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

template <class T>
void forward_task(const OpCall& call, const Sizes& z, std::int64_t b, std::int64_t kv) {
  using A = kernels::accumulate_t<T>;
  const T* packed = data<const T>(call.inputs[0]);
  const Temporary<A> scores(std::min(z.s, kAttentionRowBlock) * z.s);
  Operand<T> q(z), k(z), v(z), o(z);
  k.load(key(packed, z, b, kv));
  v.load(value(packed, z, b, kv));
  for (std::int64_t head = kv * z.g; head < (kv + 1) * z.g; ++head) {
    const Head<T> target = output(data<T>(call.outputs[0]), z, b, head);
    q.load(query(packed, z, b, head));
    o.refer(target);
    forward_head(z, q.view(), k.view(), v.view(), o.view(),
                 data<A>(call.statistics[0]) + (b * z.a + head) * z.s, scores.get());
    o.store(target);
  }
}

template <class T>
void backward_task(const OpCall& call, const Sizes& z, std::int64_t b, std::int64_t kv) {
  using A = kernels::accumulate_t<T>;
  const T* packed = data<const T>(call.inputs[0]);
  T* d_packed = data<T>(call.input_gradients[0].target);
  const std::int64_t block_elements = std::min(z.s, kAttentionRowBlock) * z.s;
  const Temporary<A> scores(block_elements), d_scores(block_elements), row_dot(z.s);
  Operand<T> q(z), k(z), v(z), d_o(z), dq(z), dk(z), dv(z);
  k.load(key(packed, z, b, kv));
  v.load(value(packed, z, b, kv));
  dk.refer(key(d_packed, z, b, kv));
  dv.refer(value(d_packed, z, b, kv));
  for (std::int64_t head = kv * z.g; head < (kv + 1) * z.g; ++head) {
    const Head<const T> o = output(data<const T>(call.outputs[0]), z, b, head);
    const Head<const T> gradient = output(data<const T>(call.output_gradients[0]), z, b, head);
    for (std::int64_t r = 0; r < z.s; ++r) row_dot.get()[r] = dot(gradient.row(r), o.row(r), z.d);
    q.load(query(packed, z, b, head));
    d_o.load(gradient);
    dq.refer(query(d_packed, z, b, head));
    backward_head(z, q.view(), k.view(), v.view(), d_o.view(), row_dot.get(),
                  data<A>(call.statistics[0]) + (b * z.a + head) * z.s, scores.get(),
                  d_scores.get(),
                  HeadGradients<A>{dq.view(), dk.view(), dv.view(), head == kv * z.g});
    dq.store(query(d_packed, z, b, head));
  }
  dk.store(key(d_packed, z, b, kv));
  dv.store(value(d_packed, z, b, kv));
}

void forward(OpCall& call) {
  const Sizes z(call);
  with_compute_type(call.precision.compute, [&]<class T>(T) {
    parallel_tasks(call.threads, z.b * z.k,
                   [&](std::int64_t i) { forward_task<T>(call, z, i / z.k, i % z.k); });
  });
}

void backward_input(OpCall& call) {
  const OpInputGradient& dx = call.input_gradients[0];
  if (!wants_gradient(dx)) return;
  const Sizes z(call);
  with_compute_type(call.precision.compute, [&]<class T>(T) {
    parallel_tasks(call.threads, z.b * z.k,
                   [&](std::int64_t i) { backward_task<T>(call, z, i / z.k, i % z.k); });
    add_residual<T>(call, dx);
  });
}

}  // namespace

OpKernel attention_kernel() { return {forward, backward_input, nullptr}; }

}  // namespace bayplan::exec
