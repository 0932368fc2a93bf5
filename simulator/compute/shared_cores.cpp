#include "simulator/compute/shared_cores.h"

#include <algorithm>
#include <cmath>

#include "planner/core/check.h"

namespace bayplan::sim {
namespace {

// Rates are fixed point, so that clocks stay integers; the relative error of a rate is below
// 1e-7 for nodes of up to a few hundred threads.
constexpr std::int64_t kRateOne = std::int64_t{1} << 24;
__extension__ using Int128 = __int128;

std::int64_t elapsed_work(std::int64_t time, std::int64_t rate) {
  return static_cast<std::int64_t>(Int128{time} * rate / kRateOne);
}

/// Smallest time after which elapsed_work() is at least `work`.
std::int64_t time_for(std::int64_t work, std::int64_t rate) {
  return static_cast<std::int64_t>((Int128{work} * kRateOne + rate - 1) / rate);
}

}  // namespace

SharedCores::SharedCores(const CpuNodeModel& model) : model_(model) {
  BAYPLAN_CHECK(model.cores > 0, "a node that shares cores has some");
  for (std::size_t l = 0; l < kLanes; ++l)
    lanes_[l].slowdown = std::exp2(static_cast<double>(l) / 4.0);
}

void SharedCores::advance(std::int64_t now) {
  const std::int64_t elapsed = now - now_;
  if (elapsed == 0) return;
  now_ = now;
  for (Lane& lane : lanes_) {
    if (!lane.tasks.empty()) lane.clock += elapsed_work(elapsed, lane.rate);
  }
}

void SharedCores::start(std::int64_t work, std::int32_t threads, double slowdown,
                        std::uint64_t key) {
  const double octaves = std::log2(std::max(slowdown, 1.0));
  const auto l = std::min(static_cast<std::size_t>(octaves * 4.0 + 0.5), kLanes - 1);
  Lane& lane = lanes_[l];
  const double adjusted = static_cast<double>(work) * std::max(slowdown, 1.0) / lane.slowdown;
  lane.tasks.push(
      {lane.clock + std::max<std::int64_t>(1, static_cast<std::int64_t>(adjusted + 0.5)), key,
       threads});
  running_ += threads;
  update_rates();
}

bool SharedCores::take_finished(std::uint64_t& key) {
  for (Lane& lane : lanes_) {
    if (lane.tasks.empty() || lane.tasks.top().time > lane.clock) continue;
    const Task task = lane.tasks.pop();
    key = task.key;
    running_ -= task.threads;
    update_rates();
    return true;
  }
  return false;
}

std::int64_t SharedCores::next_finish() const {
  std::int64_t next = kNever;
  for (const Lane& lane : lanes_) {
    if (lane.tasks.empty()) continue;
    const std::int64_t left = std::max<std::int64_t>(0, lane.tasks.top().time - lane.clock);
    next = std::min(next, now_ + time_for(left, lane.rate));
  }
  return next;
}

const std::array<std::int64_t, SharedCores::kLanes>& SharedCores::rates_with(std::int32_t threads) {
  const auto n = static_cast<std::size_t>(threads);
  if (rates_.size() <= n) rates_.resize(n + 1);
  std::array<std::int64_t, kLanes>& rates = rates_[n];
  if (rates[0] != 0) return rates;
  const std::int32_t busy = std::min(threads, model_.cores);
  double share = static_cast<double>(busy) / static_cast<double>(threads);
  if (threads > model_.cores) share /= model_.oversubscription;
  const auto k = static_cast<std::size_t>(busy) - 1;
  double crowding = model_.cores > 1 ? static_cast<double>(k) / (model_.cores - 1) : 0.0;
  if (!model_.crowding.empty()) crowding = model_.crowding[std::min(k, model_.crowding.size() - 1)];
  for (std::size_t l = 0; l < kLanes; ++l) {
    const double rate = share / (1.0 + (lanes_[l].slowdown - 1.0) * crowding);
    rates[l] = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(rate * static_cast<double>(kRateOne) + 0.5));
  }
  return rates;
}

void SharedCores::update_rates() {
  if (running_ == 0) return;
  const auto& rates = rates_with(running_);
  for (std::size_t l = 0; l < kLanes; ++l) lanes_[l].rate = rates[l];
}

}  // namespace bayplan::sim
