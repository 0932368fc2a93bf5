#include "planner/program/unit_layout.h"

#include <algorithm>

#include "planner/core/check.h"

namespace bayplan {
namespace {

bool has_bit(std::uint8_t mask, std::size_t i) { return ((mask >> i) & 1u) != 0; }

std::int64_t tensor_bytes(const TensorShape& t, const Precision& p) {
  return t.shape.count() * dtype_size(element_dtype(t.element, p));
}

/// A range of scratch alive over the operator positions [first, last].
struct ScratchBlock {
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
  std::int64_t offset = 0;
};

/// Gives every block the lowest offset at which it meets no block alive at the same time.
/// Blocks must be ordered by `first`. Returns the extent.
std::int64_t place_blocks(std::vector<ScratchBlock>& blocks) {
  std::int64_t extent = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    ScratchBlock& b = blocks[i];
    std::vector<const ScratchBlock*> alive;
    for (std::size_t j = 0; j < i; ++j) {
      if (blocks[j].bytes > 0 && blocks[j].last >= b.first) alive.push_back(&blocks[j]);
    }
    std::sort(alive.begin(), alive.end(),
              [](const ScratchBlock* x, const ScratchBlock* y) { return x->offset < y->offset; });
    std::int64_t at = 0;
    for (const ScratchBlock* a : alive) {
      if (at + b.bytes <= a->offset) break;
      at = std::max(at, a->offset + a->bytes);
    }
    b.offset = at;
    extent = std::max(extent, at + b.bytes);
  }
  return extent;
}

/// Which tensors carry a gradient, and who reads what in backward.
struct GradientFlow {
  std::vector<bool> requires_gradient;     // per tensor
  std::vector<bool> runs_backward_input;   // per operator
  std::vector<bool> runs_backward_weight;  // per operator
};

GradientFlow gradient_flow(const UnitClass& unit) {
  GradientFlow flow;
  flow.requires_gradient.assign(unit.tensors.size(), false);
  for (std::int32_t t : unit.boundary_inputs)
    flow.requires_gradient[static_cast<std::size_t>(t)] = true;
  for (const Operator& op : unit.operators) {
    const OperatorSpec& spec = operator_spec(op.kind);
    bool trainable = false;
    for (std::int32_t p : op.parameters)
      trainable |= unit.parameters[static_cast<std::size_t>(p)].trainable;
    bool through = false;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      through |= has_bit(spec.differentiable_inputs, i) &&
                 flow.requires_gradient[static_cast<std::size_t>(op.inputs[i])];
    }
    for (std::int32_t t : op.outputs)
      flow.requires_gradient[static_cast<std::size_t>(t)] = trainable || through;
    flow.runs_backward_input.push_back(through);
    flow.runs_backward_weight.push_back(trainable);
  }
  return flow;
}

void mark(std::uint8_t mask, const std::vector<std::int32_t>& tensors, std::vector<bool>& needed) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (has_bit(mask, i)) needed[static_cast<std::size_t>(tensors[i])] = true;
  }
}

/// Bump placement of a region whose tensors all live equally long.
Placement append(Region region, std::int64_t bytes, std::int64_t& extent) {
  const Placement p{region, 0, extent};
  extent += round_up(bytes, kTensorAlignment);
  return p;
}

/// Of the tensors that backward needs, those that forward does not keep.
std::vector<bool> recomputed_tensors(const UnitClass& unit, Recompute recompute) {
  std::vector<bool> result(unit.tensors.size(), false);
  for (const Operator& op : unit.operators) {
    const bool again = recompute == Recompute::kFull ||
                       (recompute == Recompute::kSelective && op.kind == OperatorKind::kAttention);
    if (!again) continue;
    for (const auto* list : {&op.outputs, &op.statistics}) {
      for (std::int32_t t : *list) result[static_cast<std::size_t>(t)] = true;
    }
  }
  return result;
}

/// The operators that have to run again for the tensors in the recomputed regions, and the
/// parameters that they read.
void mark_reruns(const UnitClass& unit, UnitLayout& layout) {
  std::vector<bool> wanted(unit.tensors.size(), false);
  for (std::size_t t = 0; t < unit.tensors.size(); ++t) {
    const Region region = layout.values[t].region;
    wanted[t] = region == Region::kRecomputedForInput || region == Region::kRecomputedForWeight;
  }
  layout.reruns.assign(unit.operators.size(), false);
  layout.parameter_for_recompute.assign(unit.parameters.size(), false);
  for (std::size_t o = unit.operators.size(); o-- > 0;) {
    const Operator& op = unit.operators[o];
    const auto is_wanted = [&](std::int32_t t) { return wanted[static_cast<std::size_t>(t)]; };
    if (!std::any_of(op.outputs.begin(), op.outputs.end(), is_wanted) &&
        !std::any_of(op.statistics.begin(), op.statistics.end(), is_wanted)) {
      continue;
    }
    layout.reruns[o] = true;
    for (std::int32_t p : op.parameters)
      layout.parameter_for_recompute[static_cast<std::size_t>(p)] = true;
    for (std::int32_t t : op.inputs) {
      const auto i = static_cast<std::size_t>(t);
      if (layout.values[i].region == Region::kScratch) wanted[i] = true;
      BAYPLAN_CHECK(layout.values[i].region != Region::kBoundaryOutput,
                    "recompute through a unit's output");
    }
  }
}

void place_values(const UnitClass& unit, const Precision& precision,
                  const std::vector<bool>& for_input, const std::vector<bool>& for_weight,
                  const std::vector<bool>& recomputed, UnitLayout& layout) {
  const std::size_t n = unit.tensors.size();
  layout.values.assign(n, {});
  auto name_region = [&](const std::vector<std::int32_t>& tensors, Region region) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      layout.values[static_cast<std::size_t>(tensors[i])] = {region, static_cast<std::int32_t>(i),
                                                             0};
    }
  };
  name_region(unit.external_inputs, Region::kExternal);
  name_region(unit.boundary_inputs, Region::kBoundaryInput);
  name_region(unit.boundary_outputs, Region::kBoundaryOutput);
  if (unit.loss >= 0) layout.values[static_cast<std::size_t>(unit.loss)] = {Region::kLoss, 0, 0};

  std::vector<int> producer(n, -1);
  std::vector<int> last_use(n, -1);
  for (std::size_t o = 0; o < unit.operators.size(); ++o) {
    const Operator& op = unit.operators[o];
    for (std::int32_t t : op.inputs) last_use[static_cast<std::size_t>(t)] = static_cast<int>(o);
    for (const auto* list : {&op.outputs, &op.statistics}) {
      for (std::int32_t t : *list) {
        producer[static_cast<std::size_t>(t)] = static_cast<int>(o);
        last_use[static_cast<std::size_t>(t)] = static_cast<int>(o);
      }
    }
  }
  std::vector<ScratchBlock> blocks;
  std::vector<std::size_t> block_tensor;
  for (std::size_t o = 0; o < unit.operators.size(); ++o) {
    const Operator& op = unit.operators[o];
    for (const auto* list : {&op.outputs, &op.statistics}) {
      for (std::int32_t index : *list) {
        const auto t = static_cast<std::size_t>(index);
        if (layout.values[t].region != Region::kNone) continue;
        const std::int64_t bytes = tensor_bytes(layout.shapes[t], precision);
        if (recomputed[t] && for_weight[t]) {
          layout.values[t] =
              append(Region::kRecomputedForWeight, bytes, layout.recomputed_for_weight_bytes);
        } else if (recomputed[t] && for_input[t]) {
          layout.values[t] =
              append(Region::kRecomputedForInput, bytes, layout.recomputed_for_input_bytes);
        } else if (for_weight[t]) {
          layout.values[t] = append(Region::kSavedForWeight, bytes, layout.saved_for_weight_bytes);
        } else if (for_input[t]) {
          layout.values[t] = append(Region::kSavedForInput, bytes, layout.saved_for_input_bytes);
        } else {
          blocks.push_back({round_up(bytes, kTensorAlignment), producer[t], last_use[t], 0});
          block_tensor.push_back(t);
        }
      }
    }
  }
  layout.forward_scratch_bytes = place_blocks(blocks);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    layout.values[block_tensor[b]] = {Region::kScratch, 0, blocks[b].offset};
  }
}

/// Storage that one or more (aliased) tensor gradients share.
struct GradientStorage {
  Region region = Region::kScratch;
  std::int32_t index = 0;
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
  bool read_by_backward_weight = false;  // of a split backward: must outlive backward_input
  std::int64_t offset = 0;
};

/// Walks the operators backwards and decides where each gradient is written. Time runs from 0
/// (last operator) to n-1 (first).
class BackwardPlanner {
 public:
  BackwardPlanner(const UnitClass& unit, const UnitLayout& layout, const GradientFlow& flow,
                  const Precision& precision, bool split)
      : unit_(unit), layout_(layout), flow_(flow), precision_(precision), split_(split) {
    storage_of_.assign(unit.tensors.size(), -1);
    pending_uses_.assign(unit.tensors.size(), 0);
    processed_.assign(unit.operators.size(), false);
    producer_.assign(unit.tensors.size(), -1);
    for (std::size_t o = 0; o < unit.operators.size(); ++o) {
      const Operator& op = unit.operators[o];
      for (std::int32_t t : op.outputs)
        producer_[static_cast<std::size_t>(t)] = static_cast<int>(o);
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        if (takes_gradient(op, i)) ++pending_uses_[static_cast<std::size_t>(op.inputs[i])];
      }
    }
    for (std::size_t i = 0; i < unit.boundary_outputs.size(); ++i) {
      storage_of_[static_cast<std::size_t>(unit.boundary_outputs[i])] =
          add_storage(Region::kBoundaryOutputGradient, static_cast<std::int32_t>(i), 0, 0);
    }
  }

  BackwardLayout plan() {
    const std::size_t n = unit_.operators.size();
    std::vector<std::vector<SlotDraft>> drafts(n);
    std::vector<std::vector<int>> outputs(n);
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t o = n - 1 - r;
      outputs[o] = read_output_gradients(o, static_cast<int>(r));
      drafts[o] = plan_inputs(o, static_cast<int>(r));
      processed_[o] = true;
    }
    return resolve(drafts, outputs);
  }

 private:
  struct SlotDraft {
    GradientSlot::Action action = GradientSlot::Action::kNone;
    int target = -1;
    int residual = -1;
  };

  bool takes_gradient(const Operator& op, std::size_t input) const {
    return has_bit(operator_spec(op.kind).differentiable_inputs, input) &&
           flow_.requires_gradient[static_cast<std::size_t>(op.inputs[input])];
  }

  int add_storage(Region region, std::int32_t index, std::int64_t bytes, int time) {
    storages_.push_back({region, index, round_up(bytes, kTensorAlignment), time, time, false, 0});
    return static_cast<int>(storages_.size()) - 1;
  }
  GradientStorage& storage(int s) { return storages_[static_cast<std::size_t>(s)]; }

  int boundary_input_index(std::int32_t tensor) const {
    const auto it = std::find(unit_.boundary_inputs.begin(), unit_.boundary_inputs.end(), tensor);
    return it == unit_.boundary_inputs.end() ? -1
                                             : static_cast<int>(it - unit_.boundary_inputs.begin());
  }

  std::vector<int> read_output_gradients(std::size_t o, int time) {
    const Operator& op = unit_.operators[o];
    std::vector<int> result;
    for (std::int32_t t : op.outputs) {
      const int s = storage_of_[static_cast<std::size_t>(t)];
      result.push_back(s);
      if (s < 0) continue;
      storage(s).last = std::max(storage(s).last, time);
      if (split_ && flow_.runs_backward_weight[o] &&
          operator_spec(op.kind).backward_weight.output_gradient) {
        storage(s).read_by_backward_weight = true;
      }
    }
    return result;
  }

  /// True when nothing but `tensor` still needs the bytes of storage `s`.
  bool may_overwrite(int s, std::int32_t tensor) {
    if (storage(s).read_by_backward_weight) return false;
    for (std::size_t t = 0; t < storage_of_.size(); ++t) {
      if (storage_of_[t] != s || static_cast<std::int32_t>(t) == tensor) continue;
      if (producer_[t] >= 0 && !processed_[static_cast<std::size_t>(producer_[t])]) return false;
    }
    return true;
  }

  std::vector<SlotDraft> plan_inputs(std::size_t o, int time) {
    using Action = GradientSlot::Action;
    const Operator& op = unit_.operators[o];
    const OperatorSpec& spec = operator_spec(op.kind);
    std::vector<SlotDraft> slots(op.inputs.size());
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (!takes_gradient(op, i)) continue;
      const std::int32_t tensor = op.inputs[i];
      const auto t = static_cast<std::size_t>(tensor);
      const int earlier = storage_of_[t];
      const bool last = --pending_uses_[t] == 0;
      const int boundary = last ? boundary_input_index(tensor) : -1;
      const std::int64_t bytes = tensor_bytes(layout_.shapes[t], precision_);
      auto fresh = [&] {
        return boundary >= 0 ? add_storage(Region::kBoundaryInputGradient,
                                           static_cast<std::int32_t>(boundary), 0, time)
                             : add_storage(Region::kScratch, 0, bytes, time);
      };
      SlotDraft& slot = slots[i];
      if (spec.gradient_is_identity) {
        const int out = storage_of_[static_cast<std::size_t>(op.outputs[0])];
        if (earlier < 0 && boundary < 0) {
          slot.action = Action::kAlias;
          storage_of_[t] = out;
          continue;
        }
        slot = {Action::kCopyAdd, fresh(), earlier};
      } else if (earlier < 0) {
        slot = {Action::kWrite, fresh(), -1};
      } else {
        const bool in_place =
            boundary < 0 && spec.adds_residual_gradient && may_overwrite(earlier, tensor);
        slot = {Action::kAdd, in_place ? earlier : fresh(), earlier};
      }
      if (slot.residual >= 0)
        storage(slot.residual).last = std::max(storage(slot.residual).last, time);
      storage(slot.target).last = std::max(storage(slot.target).last, time);
      storage_of_[t] = slot.target;
    }
    return slots;
  }

  BackwardLayout resolve(const std::vector<std::vector<SlotDraft>>& drafts,
                         const std::vector<std::vector<int>>& outputs) {
    BackwardLayout result;
    std::vector<ScratchBlock> blocks;
    std::vector<std::size_t> block_storage;
    for (std::size_t s = 0; s < storages_.size(); ++s) {
      GradientStorage& g = storages_[s];
      if (g.region != Region::kScratch) continue;
      if (g.read_by_backward_weight) {
        g.region = Region::kGradientStash;
        g.offset = result.stash_bytes;
        result.stash_bytes += g.bytes;
      } else {
        blocks.push_back({g.bytes, g.first, g.last, 0});
        block_storage.push_back(s);
      }
    }
    result.scratch_bytes = place_blocks(blocks);  // storages are created in time order
    for (std::size_t b = 0; b < blocks.size(); ++b)
      storages_[block_storage[b]].offset = blocks[b].offset;
    auto placement = [&](int s) {
      if (s < 0) return Placement{};
      const GradientStorage& g = storage(s);
      return Placement{g.region, g.index, g.offset};
    };
    for (std::size_t o = 0; o < drafts.size(); ++o) {
      OperatorGradients gradients;
      for (const SlotDraft& d : drafts[o]) {
        gradients.inputs.push_back({d.action, placement(d.target), placement(d.residual)});
      }
      for (int s : outputs[o]) gradients.outputs.push_back(placement(s));
      result.operators.push_back(std::move(gradients));
    }
    return result;
  }

  const UnitClass& unit_;
  const UnitLayout& layout_;
  const GradientFlow& flow_;
  const Precision& precision_;
  bool split_;
  std::vector<GradientStorage> storages_;
  std::vector<int> storage_of_;    // per tensor
  std::vector<int> pending_uses_;  // per tensor
  std::vector<int> producer_;      // per tensor
  std::vector<bool> processed_;    // per operator
};

}  // namespace

UnitLayout lay_out_unit(const UnitClass& unit, const std::vector<TensorShape>& shapes,
                        const Precision& precision, int threads, Recompute recompute) {
  BAYPLAN_CHECK(shapes.size() == unit.tensors.size(), "one shape per tensor");
  UnitLayout layout;
  layout.shapes = shapes;
  const GradientFlow flow = gradient_flow(unit);
  layout.parameter_for_input.assign(unit.parameters.size(), false);
  layout.parameter_for_weight.assign(unit.parameters.size(), false);
  std::vector<bool> for_input(unit.tensors.size(), false);
  std::vector<bool> for_weight(unit.tensors.size(), false);
  for (std::size_t o = 0; o < unit.operators.size(); ++o) {
    const Operator& op = unit.operators[o];
    const OperatorSpec& spec = operator_spec(op.kind);
    auto mark_all = [&](const Needs& needs, std::vector<bool>& needed) {
      mark(needs.inputs, op.inputs, needed);
      mark(needs.outputs, op.outputs, needed);
      mark(needs.statistics, op.statistics, needed);
    };
    if (flow.runs_backward_input[o]) {
      mark(spec.backward_input.parameters, op.parameters, layout.parameter_for_input);
      mark_all(spec.backward_input, for_input);
      layout.has_backward_input = true;
    }
    if (flow.runs_backward_weight[o]) {
      mark(spec.backward_weight.parameters, op.parameters, layout.parameter_for_weight);
      mark_all(spec.backward_weight, for_weight);
    }
  }
  place_values(unit, precision, for_input, for_weight, recomputed_tensors(unit, recompute), layout);
  mark_reruns(unit, layout);

  auto bytes_of = [&](const std::vector<std::int32_t>& tensors) {
    std::vector<std::int64_t> bytes;
    for (std::int32_t t : tensors)
      bytes.push_back(tensor_bytes(shapes[static_cast<std::size_t>(t)], precision));
    return bytes;
  };
  layout.boundary_input_bytes = bytes_of(unit.boundary_inputs);
  layout.boundary_output_bytes = bytes_of(unit.boundary_outputs);
  layout.external_bytes = bytes_of(unit.external_inputs);
  for (std::int32_t t : unit.boundary_inputs) {
    layout.boundary_input_for_input.push_back(for_input[static_cast<std::size_t>(t)]);
    layout.boundary_input_for_weight.push_back(for_weight[static_cast<std::size_t>(t)]);
  }
  auto for_either = [&](const std::vector<std::int32_t>& tensors) {
    std::vector<bool> result;
    for (std::int32_t t : tensors) {
      result.push_back(for_input[static_cast<std::size_t>(t)] ||
                       for_weight[static_cast<std::size_t>(t)]);
    }
    return result;
  };
  layout.boundary_output_for_backward = for_either(unit.boundary_outputs);
  layout.external_for_backward = for_either(unit.external_inputs);

  layout.fused = BackwardPlanner(unit, layout, flow, precision, false).plan();
  layout.split = BackwardPlanner(unit, layout, flow, precision, true).plan();

  for (const Operator& op : unit.operators) {
    auto gather = [&](const std::vector<std::int32_t>& tensors) {
      std::vector<TensorShape> result;
      for (std::int32_t t : tensors) result.push_back(shapes[static_cast<std::size_t>(t)]);
      return result;
    };
    const std::vector<TensorShape> inputs = gather(op.inputs);
    const std::vector<TensorShape> outputs = gather(op.outputs);
    const std::vector<TensorShape> statistics = gather(op.statistics);
    for (const Phase phase : {Phase::kForward, Phase::kBackwardInput, Phase::kBackwardWeight}) {
      std::int64_t& most = layout.workspace_bytes[static_cast<std::size_t>(phase)];
      most = std::max(most,
                      operator_spec(op.kind)
                          .workspace(op, {inputs, outputs, statistics}, phase, precision, threads)
                          .value);
    }
  }
  for (std::int64_t& bytes : layout.workspace_bytes) bytes = round_up(bytes, kTensorAlignment);
  return layout;
}

}  // namespace bayplan
