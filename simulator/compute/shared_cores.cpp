#include "simulator/compute/shared_cores.h"

#include <algorithm>

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
}

void SharedCores::advance(std::int64_t now) {
  const std::int64_t elapsed = now - now_;
  if (elapsed == 0) return;
  now_ = now;
  for (Lane& lane : lanes_) {
    if (!lane.tasks.empty()) lane.clock += elapsed_work(elapsed, lane.rate);
  }
}

void SharedCores::start(std::int64_t work, std::int32_t threads, Contention contention,
                        std::uint64_t key) {
  Lane& lane = lanes_[static_cast<std::size_t>(contention)];
  lane.tasks.push({lane.clock + work, key, threads});
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

void SharedCores::update_rates() {
  const std::int32_t threads = std::max(running_, 1);
  const std::int32_t busy = std::min(threads, model_.cores);
  double share = static_cast<double>(busy) / static_cast<double>(threads);
  if (threads > model_.cores) share /= model_.oversubscription;
  for (std::size_t c = 0; c < lanes_.size(); ++c) {
    double slowdown = 1.0;
    if (const auto& table = model_.slowdown[c]; !table.empty()) {
      slowdown = table[std::min(table.size(), static_cast<std::size_t>(busy)) - 1];
    }
    const double rate = share / slowdown * static_cast<double>(kRateOne);
    lanes_[c].rate = std::max<std::int64_t>(1, static_cast<std::int64_t>(rate + 0.5));
  }
}

}  // namespace bayplan::sim
