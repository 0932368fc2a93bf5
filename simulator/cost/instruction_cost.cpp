#include "simulator/cost/instruction_cost.h"

#include <algorithm>
#include <cmath>

#include "planner/cost/operator_cost.h"
#include "planner/program/dispatch.h"

namespace bayplan::sim {
namespace {

/// How much of `threads` cores a call of `seconds` (one thread) makes use of.
double thread_efficiency(const Calibration& calibration, OperatorKind kind, int threads,
                         double seconds) {
  const ThreadEfficiency* nearest = nullptr;
  for (const ThreadEfficiency& e : calibration.threads) {
    if (e.kind != kind) continue;
    if (nearest == nullptr || std::abs(e.threads - threads) < std::abs(nearest->threads - threads))
      nearest = &e;
  }
  if (nearest == nullptr) return 1.0;
  const double from = std::log(nearest->short_time.value);
  const double to = std::log(nearest->long_time.value);
  if (!(to > from) || seconds <= 0.0) return nearest->short_call;
  const double share = std::clamp((std::log(seconds) - from) / (to - from), 0.0, 1.0);
  return nearest->short_call + share * (nearest->long_call - nearest->short_call);
}

/// Speed-up of a call by `threads` threads, less the slowdown by crowding: the node applies that
/// to whatever runs, and the measured efficiency has it in already.
double thread_speedup(const Calibration& calibration, OperatorKind kind, int threads,
                      const CoreTime& time) {
  if (threads <= 1) return 1.0;
  double crowding = 0.0;
  if (!calibration.crowding.empty()) {
    crowding =
        calibration
            .crowding[std::min(static_cast<std::size_t>(threads), calibration.crowding.size()) - 1];
  }
  const double slowdown = 1.0 + (time.busy.value / time.alone.value - 1.0) * crowding;
  return threads * slowdown * thread_efficiency(calibration, kind, threads, time.alone.value);
}

/// Bytes read plus bytes written.
double moved_bytes(const Access& access) {
  return static_cast<double>(access.bytes) * (access.mode == AccessMode::kUpdate ? 2.0 : 1.0);
}

}  // namespace

StreamRates stream_rates(const Calibration& calibration, DType dtype) {
  for (const StreamRates& r : calibration.streams) {
    if (r.dtype == dtype) return r;
  }
  return calibration.streams.empty() ? StreamRates{} : calibration.streams.front();
}

/// ProgramConsumer that picks the formula of each kind.
struct InstructionCoster {
  const InstructionCosts& costs;
  int rank_class;
  using Time = InstructionCosts::PhaseTime;

  const InstructionCosts::UnitTimes& unit(const Instruction& i) const {
    const ProgramUnit& u = costs.program_->units[i.unit.index()];
    return costs.units_[static_cast<std::size_t>(u.layout)];
  }

  ComputeCost on_initialize(const InstructionList& list, const Instruction& i) const {
    return costs.finish(costs.streamed(costs.touched(list, i)));
  }
  ComputeCost on_load_micro_batch(const InstructionList& list, const Instruction& i) const {
    return costs.finish(costs.streamed(costs.touched(list, i)));
  }
  ComputeCost on_unit_compute(const InstructionList& list, const Instruction& i) const {
    const auto& times = unit(i);
    Time time;
    if (i.kind == InstructionKind::kForward) time = times.forward;
    if (i.kind == InstructionKind::kRecompute) time = times.recompute;
    if (i.kind == InstructionKind::kBackward) time = times.fused_input;
    if (i.kind == InstructionKind::kBackwardInput) time = times.split_input;
    if (i.kind == InstructionKind::kBackward || i.kind == InstructionKind::kBackwardWeight) {
      InstructionCosts::add(time, times.backward_weight);
      InstructionCosts::add(time, costs.streamed(costs.zeroed_seconds(rank_class, list, i)));
    }
    return costs.finish(time);
  }
  ComputeCost on_send(const InstructionList&, const Instruction&) const { return {}; }
  ComputeCost on_recv(const InstructionList&, const Instruction&) const { return {}; }
  ComputeCost on_collective(const InstructionList&, const Instruction&) const { return {}; }
  ComputeCost on_transfer(const InstructionList& list, const Instruction& i) const {
    if (costs.device_.device->device_class == DeviceClass::kCpu) {
      const bool copies = i.purpose != Purpose::kCheckpoint;
      return costs.finish(copies ? costs.streamed(costs.touched(list, i)) : Time{});
    }
    double bytes = 0.0;
    for (std::int32_t a = i.accesses.begin; a < i.accesses.end; ++a) {
      const Access& access = list.accesses[static_cast<std::size_t>(a)];
      if (access.mode == AccessMode::kRead) bytes += static_cast<double>(access.bytes);
    }
    ComputeCost cost;
    cost.time = to_picoseconds(Seconds(costs.device_.host_link.latency.value +
                                       bytes / costs.device_.host_link.bandwidth.value));
    return cost;
  }
  ComputeCost on_release(const InstructionList&, const Instruction&) const { return {}; }
  ComputeCost on_gradient_norm(const InstructionList& list, const Instruction& i) const {
    return costs.finish(costs.streamed(costs.norm_seconds(rank_class, list, i)));
  }
  ComputeCost on_accumulate(const InstructionList& list, const Instruction& i) const {
    return costs.finish(costs.streamed(costs.touched(list, i)));
  }
  ComputeCost on_optimizer_step(const InstructionList& list, const Instruction& i) const {
    const bool on_gpu_host =
        i.stream == Stream::kHost && costs.device_.device->device_class == DeviceClass::kGpu;
    if (on_gpu_host && costs.device_.host_bandwidth.value > 0.0) {
      ComputeCost cost;
      cost.time =
          to_picoseconds(Seconds(costs.bytes_moved(list, i) / costs.device_.host_bandwidth.value));
      return cost;
    }
    return costs.finish(costs.streamed(costs.update_seconds(rank_class, list, i)));
  }
  ComputeCost on_end_step(const InstructionList&, const Instruction&) const { return {}; }
};

InstructionCosts::InstructionCosts(const Program& program, const DeviceCosts& device)
    : program_(&program), device_(device) {
  if (device.calibration != nullptr) {
    rates_ = stream_rates(*device.calibration, program.job.precision.compute);
  }
  for (const UnitLayout& layout : program.layouts) {
    const auto views = operators_of(
        program.graph.classes[static_cast<std::size_t>(layout.unit_class)], layout.shapes);
    UnitTimes times;
    for (std::size_t o = 0; o < views.size(); ++o) {
      add(times.forward, time_phase(views[o], Phase::kForward));
      if (layout.reruns[o]) add(times.recompute, time_phase(views[o], Phase::kForward));
      add_backward_input(times.fused_input, views[o], layout.fused.operators[o]);
      add_backward_input(times.split_input, views[o], layout.split.operators[o]);
      if (!views[o].op->parameters.empty()) {
        add(times.backward_weight, time_phase(views[o], Phase::kBackwardWeight));
      }
    }
    units_.push_back(times);
  }
}

InstructionCosts::PhaseTime InstructionCosts::time_phase(const OperatorView& view,
                                                         Phase phase) const {
  const Precision& precision = program_->job.precision;
  PhaseTime time;
  time.calls = 1;
  if (device_.calibration != nullptr) {
    if (const auto core = calibrated_time(*device_.calibration, view, phase, precision)) {
      if (core->alone.value == 0.0) return time;
      const double speedup =
          thread_speedup(*device_.calibration, view.op->kind, program_->threads_per_rank, *core);
      time.busy = core->busy.value / speedup;
      time.alone = core->alone.value / speedup;
      return time;
    }
  }
  time.busy = time.alone = roofline_time(*device_.device, view, phase, precision).value;
  return time;
}

/// What backward_input does follows from the layout's gradient slots: an identity moves or adds a
/// tensor, as its forward does, and some gradients take no work at all.
void InstructionCosts::add_backward_input(PhaseTime& to, const OperatorView& view,
                                          const OperatorGradients& gradients) const {
  int moves = 0;
  bool computes = false;
  for (const GradientSlot& slot : gradients.inputs) {
    moves += slot.action == GradientSlot::Action::kCopyAdd ? 1 : 0;
    computes |=
        slot.action == GradientSlot::Action::kWrite || slot.action == GradientSlot::Action::kAdd;
  }
  if (computes) add(to, time_phase(view, Phase::kBackwardInput));
  for (int m = 0; m < moves; ++m) add(to, time_phase(view, Phase::kForward));
}

void InstructionCosts::add(PhaseTime& to, const PhaseTime& more) {
  to.busy += more.busy;
  to.alone += more.alone;
  to.calls += more.calls;
}

InstructionCosts::PhaseTime InstructionCosts::streamed(double busy_seconds) const {
  const double slowdown =
      device_.calibration != nullptr ? device_.calibration->memory_slowdown : 1.0;
  return {busy_seconds, busy_seconds / slowdown, busy_seconds > 0.0 ? 1 : 0};
}

ComputeCost InstructionCosts::finish(PhaseTime time) const {
  const bool cpu = device_.device->device_class == DeviceClass::kCpu;
  if (cpu && device_.calibration != nullptr) {
    time.busy += device_.calibration->instruction.value;
    time.alone += device_.calibration->instruction.value;
  }
  ComputeCost cost;
  cost.time = to_picoseconds(Seconds(time.alone));
  cost.slowdown = time.alone > 0.0 ? std::max(1.0, time.busy / time.alone) : 1.0;
  cost.threads = cpu ? std::max(program_->threads_per_rank, 1) : 1;
  if (!cpu) cost.issue = to_picoseconds(device_.device->launch * static_cast<double>(time.calls));
  return cost;
}

/// Bytes that the instruction reads and writes.
double InstructionCosts::bytes_moved(const InstructionList& list,
                                     const Instruction& instruction) const {
  double bytes = 0.0;
  for (std::int32_t a = instruction.accesses.begin; a < instruction.accesses.end; ++a) {
    const Access& access = list.accesses[static_cast<std::size_t>(a)];
    bytes += moved_bytes(access);
  }
  return bytes;
}

/// The same over the memory's rate.
double InstructionCosts::touched(const InstructionList& list,
                                 const Instruction& instruction) const {
  const double bytes = bytes_moved(list, instruction);
  const DeviceSpec& device = *device_.device;
  if (device_.calibration != nullptr) return bytes / device_.calibration->fill_bytes;
  return std::max(bytes / (device.memory_bandwidth.value * device.memory_efficiency),
                  device.launch.value);
}

/// The first backward of a step clears the gradients that it accumulates into.
double InstructionCosts::zeroed_seconds(int rank_class, const InstructionList& list,
                                        const Instruction& instruction) const {
  const RankClass& c = program_->classes[static_cast<std::size_t>(rank_class)];
  double bytes = 0.0;
  for (std::int32_t a = instruction.accesses.begin; a < instruction.accesses.end; ++a) {
    const Access& access = list.accesses[static_cast<std::size_t>(a)];
    const BufferRole role = c.buffers[access.buffer.index()].role;
    const bool gradients = role == BufferRole::kGradients || role == BufferRole::kUnitGradients;
    if (gradients && access.mode == AccessMode::kWrite) bytes += static_cast<double>(access.bytes);
  }
  const DeviceSpec& device = *device_.device;
  const double rate = device_.calibration != nullptr
                          ? device_.calibration->fill_bytes
                          : device.memory_bandwidth.value * device.memory_efficiency;
  return bytes / rate;
}

double InstructionCosts::gradient_elements(int rank_class, const InstructionList& list,
                                           const Instruction& instruction) const {
  const RankClass& c = program_->classes[static_cast<std::size_t>(rank_class)];
  double bytes = 0.0;
  for (std::int32_t a = instruction.accesses.begin; a < instruction.accesses.end; ++a) {
    const Access& access = list.accesses[static_cast<std::size_t>(a)];
    if (c.buffers[access.buffer.index()].role == BufferRole::kGradients)
      bytes += static_cast<double>(access.bytes);
  }
  return bytes / static_cast<double>(dtype_size(program_->job.precision.gradient));
}

double InstructionCosts::update_seconds(int rank_class, const InstructionList& list,
                                        const Instruction& instruction) const {
  if (device_.calibration == nullptr || rates_.update_elements <= 0.0)
    return touched(list, instruction);
  // Every update streams through memory: another optimizer than the measured AdamW takes time in
  // proportion to the bytes that it moves.
  const RankClass& c = program_->classes[static_cast<std::size_t>(rank_class)];
  const Precision& precision = program_->job.precision;
  const double elements = gradient_elements(rank_class, list, instruction);
  double moved = 0.0;
  for (std::int32_t a = instruction.accesses.begin; a < instruction.accesses.end; ++a) {
    const Access& access = list.accesses[static_cast<std::size_t>(a)];
    if (c.buffers[access.buffer.index()].role != BufferRole::kScalars) moved += moved_bytes(access);
  }
  // Gradient read; master (or the weights) and two moments updated; weights beside a master
  // written.
  const double measured =
      elements *
      static_cast<double>(dtype_size(precision.gradient) + 3 * 2 * dtype_size(precision.state) +
                          (precision.has_master ? dtype_size(precision.compute) : 0));
  return elements / rates_.update_elements * (measured > 0.0 ? moved / measured : 1.0);
}

double InstructionCosts::norm_seconds(int rank_class, const InstructionList& list,
                                      const Instruction& instruction) const {
  if (device_.calibration == nullptr || rates_.norm_elements <= 0.0)
    return touched(list, instruction);
  return gradient_elements(rank_class, list, instruction) / rates_.norm_elements;
}

ComputeCost InstructionCosts::operator()(int rank_class, const InstructionList& list,
                                         const Instruction& instruction) const {
  const InstructionCoster coster{*this, rank_class};
  return dispatch(coster, list, instruction);
}

}  // namespace bayplan::sim
