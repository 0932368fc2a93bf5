// Simulated instructions per second, engine against a naive one: a std::priority_queue of
// heap-allocated callbacks over maps, the usual first version of such a program. Both prepare and
// simulate the same program, in the same run, and must find the same step time.
// Counters, from medians over rounds: instructions_per_second, and vs_naive (above 1: ours is
// faster). The time column is ours.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "models/build_model.h"
#include "models/clusters.h"
#include "models/registry.h"
#include "planner/core/check.h"
#include "planner/program/lower.h"
#include "simulator/cost/cost_model.h"
#include "simulator/engine/simulate.h"

namespace bayplan {
namespace {

struct Subject {
  Program program;
  Cluster cluster;
};

/// A GPT of 96 layers on `stages` pipeline stages and `replicas` replicas, 1F1B, ZeRO 1.
Subject make_subject(const std::string& cluster_name, int stages, int replicas, int micro_batches) {
  auto model = resolve_model("gpt:hidden=1024,layers=96,heads=16,seq=128");
  BAYPLAN_CHECK(model.ok(), "the model is a valid shape");
  const ModelGraph graph = build_model(model->architecture, false);
  auto cluster = resolve_cluster(cluster_name);
  BAYPLAN_CHECK(cluster.ok(), cluster_name);
  Plan plan;
  plan.mesh.pp = stages;
  plan.mesh.dp = replicas;
  plan.job.seq = 128;
  plan.job.global_batch = std::int64_t{micro_batches} * replicas;
  plan.stages = even_stages(graph, stages, 1);
  plan.replicas.assign(static_cast<std::size_t>(replicas), {micro_batches});
  auto program = lower(plan, graph, *cluster);
  BAYPLAN_CHECK(program.ok(), program.ok() ? "" : program.error().message);
  return {std::move(*program), std::move(*cluster)};
}

const Subject& gpu_subject() {
  static const Subject subject = make_subject("16x8xh200", 16, 8, 64);
  return subject;
}

const Subject& cpu_subject() {
  static const Subject subject = make_subject("localhost:16", 16, 1, 64);
  return subject;
}

/// One callback per event, state in maps. Unit costs; streams, waits and rendezvous as the engine.
class NaiveEngine {
 public:
  explicit NaiveEngine(const Program& program) : program_(program) { connect(); }

  /// The time at which everything is done.
  std::int64_t run() {
    for (auto& [key, task] : tasks_) {
      if (task->pending == 0) arrive(task, 0);
    }
    std::int64_t now = 0;
    while (!events_.empty()) {
      const auto event = events_.top();
      events_.pop();
      now = event->time;
      event->action(now);
    }
    return now;
  }

 private:
  struct Task {
    int pending = 0;
    int meetings = 0;  // that have not happened yet
    std::int64_t cost = 0;
    std::vector<std::shared_ptr<struct Meeting>> joins;
    std::vector<std::shared_ptr<Task>> next;
  };
  struct Event {
    std::int64_t time;
    std::int64_t number;
    std::function<void(std::int64_t)> action;
  };
  struct Later {
    bool operator()(const std::shared_ptr<Event>& a, const std::shared_ptr<Event>& b) const {
      return std::tie(a->time, a->number) > std::tie(b->time, b->number);
    }
  };

  void connect();

  void schedule(std::int64_t time, std::function<void(std::int64_t)> action) {
    events_.push(std::make_shared<Event>(Event{time, number_++, std::move(action)}));
  }
  void arrive(const std::shared_ptr<Task>& task, std::int64_t now);
  void finish(const std::shared_ptr<Task>& task, std::int64_t now) {
    for (const auto& next : task->next) {
      if (--next->pending == 0) arrive(next, now);
    }
  }

  const Program& program_;
  std::map<std::pair<int, int>, std::shared_ptr<Task>> tasks_;  // (rank, instruction)
  std::priority_queue<std::shared_ptr<Event>, std::vector<std::shared_ptr<Event>>, Later> events_;
  std::int64_t number_ = 0;
};

struct Meeting {
  std::size_t arrived = 0;
  std::vector<std::function<void(std::int64_t)>> members;
};

void NaiveEngine::arrive(const std::shared_ptr<Task>& task, std::int64_t now) {
  if (task->joins.empty()) {
    schedule(now + task->cost, [this, task](std::int64_t t) { finish(task, t); });
    return;
  }
  for (const auto& meeting : task->joins) {
    if (++meeting->arrived < meeting->members.size()) continue;
    schedule(now + 1, [meeting](std::int64_t t) {
      for (const auto& member : meeting->members) member(t);
    });
  }
}

void NaiveEngine::connect() {
  std::map<std::string, std::shared_ptr<Meeting>> meetings;
  for (int rank = 0; rank < program_.world_size(); ++rank) {
    const InstructionList& list = program_.list(rank, ProgramKind::kTrainStep);
    std::map<Stream, std::shared_ptr<Task>> last;
    std::map<std::string, int> count;
    std::vector<std::shared_ptr<Task>> of(list.instructions.size());
    for (std::size_t i = 0; i < list.instructions.size(); ++i) {
      const Instruction& in = list.instructions[i];
      const bool joins = i > 0 && in.fuse >= 0 && list.instructions[i - 1].fuse == in.fuse;
      std::shared_ptr<Task> task = joins ? of[i - 1] : std::make_shared<Task>();
      of[i] = task;
      if (!joins) {
        tasks_[{rank, static_cast<int>(i)}] = task;
        task->cost =
            in.kind == InstructionKind::kRelease || in.kind == InstructionKind::kEndStep ? 0 : 1;
        if (last[in.stream]) {
          last[in.stream]->next.push_back(task);
          ++task->pending;
        }
        last[in.stream] = task;
      }
      for (std::int32_t w = in.waits.begin; w < in.waits.end; ++w) {
        of[list.waits[static_cast<std::size_t>(w)].index()]->next.push_back(task);
        ++task->pending;
      }
      if (!is_matched(in.kind)) continue;
      std::string key;
      if (is_collective(in.kind)) {
        key = "g" + std::to_string(in.group.value) + "." +
              std::to_string(group_members(program_, in.group, rank)[0]);
      } else {
        const int peer = peer_rank(program_, rank, in.peer_stage);
        const bool gradient =
            in.kind == InstructionKind::kSendGradient || in.kind == InstructionKind::kRecvGradient;
        key = (gradient ? "b" : "f") + std::to_string(is_send(in.kind) ? rank : peer) + "." +
              std::to_string(is_send(in.kind) ? peer : rank) + "." + std::to_string(in.unit.value);
      }
      key += "#" + std::to_string(count[key]++);
      auto& meeting = meetings[key];
      if (!meeting) meeting = std::make_shared<Meeting>();
      ++task->meetings;
      task->joins.push_back(meeting);
      std::weak_ptr<Task> weak = task;
      meeting->members.push_back([this, weak](std::int64_t t) {
        const auto member = weak.lock();
        if (--member->meetings == 0) finish(member, t);
      });
    }
  }
}

constexpr int kRounds = 9;

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// One iteration is one round of each contestant.
void contest(benchmark::State& state, const Subject& subject, const sim::CostModel& costs,
             bool record, bool against_naive) {
  sim::SimulateOptions options;
  options.record = record;
  options.record_memory = record;
  options.interval = false;
  std::vector<double> ours, naive;
  std::int64_t instructions = 0;
  for (auto _ : state) {
    std::int64_t step = 0;
    std::int64_t naive_step = 0;
    ours.push_back(seconds([&] {
      const auto result = sim::simulate(subject.program, subject.cluster, costs, options);
      BAYPLAN_CHECK(result.ok(), result.ok() ? "" : result.error().message);
      instructions = result->events;
      step = result->timeline.step_times.back().value;
    }));
    state.SetIterationTime(ours.back());
    if (!against_naive) continue;
    naive.push_back(seconds([&] { naive_step = NaiveEngine(subject.program).run(); }));
    ::malloc_trim(0);  // its million freed blocks would be sorted at our expense
    BAYPLAN_CHECK(step == naive_step, "both find the same step time");
  }
  state.counters["instructions_per_second"] = static_cast<double>(instructions) / median(ours);
  if (against_naive) state.counters["vs_naive"] = median(naive) / median(ours);
}

void BM_Simulate(benchmark::State& state) {
  contest(state, gpu_subject(), sim::unit_costs(), false, true);
}

void BM_SimulateWithTimeline(benchmark::State& state) {
  contest(state, gpu_subject(), sim::unit_costs(), true, true);
}

/// 16 ranks that share 2 cores: every start and end changes everybody's speed.
void BM_SimulateSharedCores(benchmark::State& state) {
  sim::CostModel costs = sim::unit_costs();
  costs.compute = [](int, const InstructionList&, const Instruction& i) {
    sim::ComputeCost cost;
    cost.time =
        Picoseconds(i.kind == InstructionKind::kRelease ? 0 : 1'000'000 + 1000 * i.micro_batch);
    return cost;
  };
  costs.nodes.resize(1);
  costs.nodes[0].cores = 2;
  contest(state, cpu_subject(), costs, false, false);
}

BENCHMARK(BM_Simulate)->UseManualTime()->Iterations(kRounds)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SimulateWithTimeline)
    ->UseManualTime()
    ->Iterations(kRounds)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SimulateSharedCores)
    ->UseManualTime()
    ->Iterations(kRounds)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace bayplan
