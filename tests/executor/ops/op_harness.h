// One operator call with its own memory: shapes from the operator table, seeded random values,
// results as fp64 tensors for comparison. For the tests of executor/ops.
#pragma once

#include <ATen/ATen.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/memory/allocator_hook_torch.h"
#include "executor/ops/op_kernels.h"
#include "planner/core/operator.h"

namespace bayplan::exec {

inline at::ScalarType torch_type(DType type) {
  if (type == DType::kFp64) return at::kDouble;
  if (type == DType::kFp32) return at::kFloat;
  if (type == DType::kBf16) return at::kBFloat16;
  return at::kInt;
}

/// What a call computed, byte for byte.
struct OpResults {
  std::vector<at::Tensor> outputs, statistics, input_gradients, parameter_gradients;
};

inline bool bitwise_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].defined()) continue;
    if (std::memcmp(a[i].data_ptr(), b[i].data_ptr(), a[i].nbytes()) != 0) return false;
  }
  return a.size() == b.size();
}
inline bool bitwise_equal(const OpResults& a, const OpResults& b) {
  return bitwise_equal(a.outputs, b.outputs) && bitwise_equal(a.statistics, b.statistics) &&
         bitwise_equal(a.input_gradients, b.input_gradients) &&
         bitwise_equal(a.parameter_gradients, b.parameter_gradients);
}

/// Largest difference relative to the largest expected magnitude.
inline double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  const at::Tensor a = actual.to(at::kDouble).reshape(-1), e = expected.to(at::kDouble).reshape(-1);
  return (a - e).abs().max().item<double>() / (e.abs().max().item<double>() + 1e-300);
}

class OpHarness {
 public:
  /// `inputs` are shapes; an index input is drawn below `index_limit`.
  OpHarness(OperatorKind kind, OperatorAttributes attributes, std::vector<TensorShape> inputs,
            BatchShape batch, DType compute, std::int64_t index_limit = 1)
      : precision_(precision_of(compute)), input_shapes_(std::move(inputs)) {
    op_.kind = kind;
    op_.name = std::string(operator_spec(kind).name);
    op_.attributes = attributes;
    at::Generator generator = at::detail::createCPUGenerator(17);
    const OperatorSpec& spec = operator_spec(kind);
    spec.infer(op_, input_shapes_, batch, output_shapes_, statistic_shapes_);
    for (const TensorShape& shape : input_shapes_) {
      inputs_.push_back(shape.element == ElementClass::kIndex
                            ? at::randint(index_limit, sizes(shape.shape), generator, at::kInt)
                            : random(shape.shape, generator));
    }
    for (const ParameterSpec& p : spec.parameters(op_)) {
      parameters_.push_back(random(p.shape, generator));
    }
    for (const TensorShape& shape : output_shapes_) {
      output_gradients_.push_back(
          shape.element == ElementClass::kLoss ? at::Tensor() : random(shape.shape, generator));
    }
    for (const TensorShape& shape : input_shapes_) {
      residuals_.push_back(shape.element == ElementClass::kIndex ? at::Tensor()
                                                                 : random(shape.shape, generator));
    }
    for (const at::Tensor& p : parameters_) {
      first_gradients_.push_back(
          at::randn(p.sizes(), generator, at::kDouble).to(torch_type(precision_.gradient)));
    }
  }

  OpRandom& random_numbers() { return random_numbers_; }
  const std::vector<at::Tensor>& inputs() const { return inputs_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const std::vector<at::Tensor>& output_gradients() const { return output_gradients_; }
  const std::vector<at::Tensor>& residuals() const { return residuals_; }
  const std::vector<at::Tensor>& first_gradients() const { return first_gradients_; }

  /// Forward, backward_input and backward_weight. With `add`, input gradients are added to
  /// residuals(). Parameter gradients start at first_gradients(). With `enforce`, each phase runs
  /// in exactly its declared workspace.
  OpResults run(int threads, bool add = false, bool enforce = false) {
    OpResults results;
    const DType compute = precision_.compute;
    const auto allocate = [&](const std::vector<TensorShape>& shapes) {
      std::vector<at::Tensor> tensors;
      for (const TensorShape& s : shapes) {
        tensors.push_back(
            at::zeros(sizes(s.shape), torch_type(element_dtype(s.element, precision_))));
      }
      return tensors;
    };
    results.outputs = allocate(output_shapes_);
    results.statistics = allocate(statistic_shapes_);
    OpCall call;
    call.op = &op_;
    call.precision = precision_;
    call.threads = threads;
    call.random = random_numbers_;
    call.inputs = arguments(inputs_, input_shapes_);
    call.outputs = arguments(results.outputs, output_shapes_);
    call.statistics = arguments(results.statistics, statistic_shapes_);
    for (const at::Tensor& p : parameters_) call.parameters.push_back(argument(p, compute));

    const OpKernel& kernel = op_kernel(op_.kind);
    phase(Phase::kForward, threads, enforce, [&] { kernel.forward(call); });

    for (const at::Tensor& g : output_gradients_) {
      call.output_gradients.push_back(g.defined() ? argument(g, compute) : OpTensor{});
    }
    const OperatorSpec& spec = operator_spec(op_.kind);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (((spec.differentiable_inputs >> i) & 1u) == 0) {
        results.input_gradients.emplace_back();
        call.input_gradients.push_back({});
        continue;
      }
      results.input_gradients.push_back(at::zeros_like(inputs_[i]));
      using Action = GradientSlot::Action;
      const Action action = spec.gradient_is_identity ? Action::kCopyAdd
                            : add                     ? Action::kAdd
                                                      : Action::kWrite;
      call.input_gradients.push_back({action, argument(results.input_gradients[i], compute),
                                      add ? residuals_[i].data_ptr() : nullptr});
    }
    for (const at::Tensor& g : first_gradients_) {
      results.parameter_gradients.push_back(g.clone());
      call.parameter_gradients.push_back(
          argument(results.parameter_gradients.back(), precision_.gradient));
    }
    if (kernel.backward_input != nullptr) {
      phase(Phase::kBackwardInput, threads, enforce, [&] { kernel.backward_input(call); });
    }
    if (kernel.backward_weight != nullptr) {
      phase(Phase::kBackwardWeight, threads, enforce, [&] { kernel.backward_weight(call); });
    }
    return results;
  }

 private:
  static std::vector<std::int64_t> sizes(const Shape& shape) {
    return {shape.dims.begin(), shape.dims.begin() + shape.rank};
  }
  at::Tensor random(const Shape& shape, at::Generator& generator) const {
    return at::randn(sizes(shape), generator, at::kDouble).to(torch_type(precision_.compute));
  }
  static Shape shape_of(const at::Tensor& t) {
    Shape shape;
    for (const std::int64_t d : t.sizes()) shape.dims[static_cast<std::size_t>(shape.rank++)] = d;
    return shape;
  }
  static OpTensor argument(const at::Tensor& t, DType type) {
    return {t.data_ptr(), shape_of(t), type};
  }
  std::vector<OpTensor> arguments(const std::vector<at::Tensor>& tensors,
                                  const std::vector<TensorShape>& shapes) const {
    std::vector<OpTensor> result;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      result.push_back(argument(tensors[i], element_dtype(shapes[i].element, precision_)));
    }
    return result;
  }
  template <class Body>
  void phase(Phase which, int threads, bool enforce, const Body& body) {
    if (!enforce) return body();
    const Bytes bytes = operator_spec(op_.kind).workspace(
        op_, {input_shapes_, output_shapes_, statistic_shapes_}, which, precision_, threads);
    install_allocator_hook();
    const auto memory = std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes.value) + 64);
    auto start = reinterpret_cast<std::uintptr_t>(memory.get());
    start = (start + 63) / 64 * 64;
    WorkspaceRegion region(reinterpret_cast<std::byte*>(start), bytes.value, {});
    const RegionScope scope(&region);
    body();
  }

  Precision precision_;
  Operator op_;
  OpRandom random_numbers_;
  std::vector<TensorShape> input_shapes_, output_shapes_, statistic_shapes_;
  std::vector<at::Tensor> inputs_, parameters_, output_gradients_, residuals_, first_gradients_;
};

}  // namespace bayplan::exec
