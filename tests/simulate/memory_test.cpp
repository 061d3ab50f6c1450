// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory engine against brute force: every state that the schedule can be in under any timing
// is visited, and what is live in it is counted afresh from the graph.
#include "kerf/simulate/memory.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kerf/device/devices.h"
#include "kerf/graph/text.h"
#include "kerf/simulate/make_plan.h"
#include "tests/simulate/random_plan.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

class BruteForce {
 public:
  BruteForce(const Problem& problem, const Plan& plan)
      : problem_(problem),
        graph_(problem.graph),
        plan_(plan),
        stage_of_(plan.stage_of_nodes()),
        schedule_(make_schedule(plan)),
        peak_(plan.cluster.num_devices()) {}

  // The most that each device has live beside its weights.
  std::vector<std::int64_t> run() {
    std::set<std::vector<std::size_t>> seen;
    std::vector<std::vector<std::size_t>> open{std::vector<std::size_t>(schedule_.size())};
    while (!open.empty()) {
      const std::vector<std::size_t> done = open.back();
      open.pop_back();
      if (!seen.insert(done).second) continue;
      for (std::size_t d = 0; d < done.size(); ++d) {
        const std::int64_t held = held_bytes(d, done);
        peak_[d] = std::max(peak_[d], held);
        if (!can_run(d, done)) continue;
        peak_[d] = std::max(peak_[d], held + running_bytes(d, schedule_[d][done[d]]));
        std::vector<std::size_t> next = done;
        ++next[d];
        open.push_back(std::move(next));
      }
    }
    return peak_;
  }

 private:
  bool has_run(StageId stage, int microbatch, const std::vector<std::size_t>& done) const {
    const std::size_t d = plan_.stage(stage).device.index();
    for (std::size_t i = 0; i < done[d]; ++i) {
      if (schedule_[d][i].stage == stage && schedule_[d][i].microbatch == microbatch) return true;
    }
    return false;
  }

  bool can_run(std::size_t d, const std::vector<std::size_t>& done) const {
    if (done[d] == schedule_[d].size()) return false;
    const Task& task = schedule_[d][done[d]];
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      if (stage_of_[n] != task.stage) continue;
      for (const NodeId before : graph_.predecessors(NodeId{n})) {
        const StageId stage = stage_of_[before.index()];
        if (stage != task.stage && !has_run(stage, task.microbatch, done)) return false;
      }
    }
    return true;
  }

  bool is_weight(StorageId storage) const {
    for (const Weight& weight : graph_.weights()) {
      if (graph_.value(weight.value).storage == storage) return true;
    }
    return false;
  }
  // The stage that allocates a storage; invalid for graph inputs and weights.
  StageId maker(StorageId storage) const {
    StageId stage;
    NodeId first;
    for (const Value& value : graph_.values()) {
      if (value.scalar || value.storage != storage) continue;
      if (value.origin != Origin::node) return {};
      if (!first.valid() || value.producer < first) {
        first = value.producer;
        stage = stage_of_[first.index()];
      }
    }
    return stage;
  }
  bool is_result(ValueId id) const {
    bool found = false;
    for (const GraphOutput& output : graph_.outputs()) {
      for_each_value(output.leaf, [&](ValueId other) { found |= other == id; });
    }
    return found;
  }
  int group_of(StageId stage) const {
    return plan_.cluster.device(plan_.stage(stage).device).memory_group;
  }

  // Stages on the device that use a tensor from another memory, in order.
  std::vector<StageId> local_users(std::size_t d, ValueId id) const {
    const Value& value = graph_.value(id);
    std::set<StageId> users;
    if (value.scalar || value.origin == Origin::weight) return {};
    if (value.origin == Origin::node) {
      const StageId from = stage_of_[value.producer.index()];
      if (group_of(from) == plan_.cluster.devices[d].memory_group) return {};
    }
    for (const NodeId user : graph_.consumers(id)) {
      const StageId stage = stage_of_[user.index()];
      if (plan_.stage(stage).device.index() == d) users.insert(stage);
    }
    return {users.begin(), users.end()};
  }

  // Is a value, made by a task that has run, still wanted?
  bool wanted(ValueId id, int microbatch, const std::vector<std::size_t>& done) const {
    if (is_result(id)) return true;
    for (const NodeId user : graph_.consumers(id)) {
      const StageId stage = stage_of_[user.index()];
      if (stage == stage_of_[graph_.value(id).producer.index()]) continue;
      if (!has_run(stage, microbatch, done)) return true;
    }
    return false;
  }

  std::int64_t held_bytes(std::size_t d, const std::vector<std::size_t>& done) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < done[d]; ++i) {
      const Task& task = schedule_[d][i];
      std::set<StorageId> storages;
      for (std::size_t v = 0; v < graph_.num_values(); ++v) {
        const ValueId id{v};
        const Value& value = graph_.value(id);
        const std::vector<StageId> users = local_users(d, id);
        if (users.size() > 1 && users.front() == task.stage &&
            !has_run(users.back(), task.microbatch, done)) {
          sum += value.bytes(plan_.micro_batch).count;
        }
        if (value.scalar || value.origin != Origin::node) continue;
        if (stage_of_[value.producer.index()] != task.stage || is_weight(value.storage)) continue;
        if (!wanted(id, task.microbatch, done)) continue;
        const std::int64_t storage = graph_.storage(value.storage).bytes.eval(plan_.micro_batch);
        if (maker(value.storage) == task.stage) {
          if (storages.insert(value.storage).second) sum += storage;
        } else {
          sum += std::min(storage, value.bytes(plan_.micro_batch).count);
        }
      }
    }
    return sum;
  }

  // Buffers for what is received, and the worst moment of the stage's nodes.
  std::int64_t running_bytes(std::size_t d, const Task& task) const {
    std::int64_t received = 0;
    for (std::size_t v = 0; v < graph_.num_values(); ++v) {
      const std::vector<StageId> users = local_users(d, ValueId{v});
      if (!users.empty() && users.front() == task.stage) {
        received += graph_.values()[v].bytes(plan_.micro_batch).count;
      }
    }
    std::int64_t worst = 0;
    std::int64_t copies = 0;
    std::set<StorageId> cloned;
    for (const NodeId node : plan_.stage(task.stage).nodes) {
      for (const ValueId id : graph_.node(node).written) {
        const StorageId storage = graph_.value(id).storage;
        if (!storage.valid() || !maker(storage).valid() || maker(storage) == task.stage) continue;
        if (!cloned.insert(storage).second) continue;
        copies += graph_.storage(storage).bytes.eval(plan_.micro_batch);
      }
      std::int64_t live = copies + problem_.profile.node(node).workspace().count;
      for (std::size_t s = 0; s < graph_.storages().size(); ++s) {
        if (is_live(StorageId{s}, node, task.stage)) {
          live += graph_.storages()[s].bytes.eval(plan_.micro_batch);
        }
      }
      worst = std::max(worst, live);
    }
    return received + worst;
  }

  // Allocated by this stage at or before the node, and still to be used at or after it.
  bool is_live(StorageId storage, NodeId node, StageId stage) const {
    if (maker(storage) != stage || is_weight(storage)) return false;
    bool allocated = false;
    bool needed = false;
    for (std::size_t v = 0; v < graph_.num_values(); ++v) {
      const Value& value = graph_.values()[v];
      if (value.scalar || value.storage != storage) continue;
      if (stage_of_[value.producer.index()] != stage) continue;
      allocated |= value.producer <= node;
      needed |= value.producer >= node || is_result(ValueId{v});
      for (const NodeId user : graph_.consumers(ValueId{v})) {
        needed |= stage_of_[user.index()] != stage || user >= node;
      }
    }
    return allocated && needed;
  }

  const Problem& problem_;
  const Graph& graph_;
  const Plan& plan_;
  std::vector<StageId> stage_of_;
  Schedule schedule_;
  std::vector<std::int64_t> peak_;
};

TEST(TheMemoryEngine, EqualsBruteForceOverAllTimings) {
  int several_stages = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    Problem problem = random_problem(seed, {.graph = {.num_nodes = 10, .decorate = false},
                                            .num_devices = 1 + seed % 3,
                                            .shared_memory = seed % 2 == 0});
    if (!problem.graph.is_static()) problem.n_microbatches = static_cast<int>(1 + seed % 3);
    problem.profile.batch = problem.micro_batch();
    const Plan plan = random_plan(problem, seed);
    std::set<DeviceId> used;
    for (const Stage& stage : plan.stages) used.insert(stage.device);
    several_stages += used.size() < plan.num_stages() ? 1 : 0;
    const std::vector<std::int64_t> brute = BruteForce(problem, plan).run();
    for (std::size_t d = 0; d < brute.size(); ++d) {
      EXPECT_EQ(plan.memory[d].activations.count, brute[d]) << "seed " << seed << " device " << d;
    }
  }
  EXPECT_GT(several_stages, 50);
}

// Stage 0 can be done with all micro-batches before stage 1 takes the first.
TEST(TheMemoryEngine, HoldsOutputsOfEveryMicroBatchInFlight) {
  Problem problem;
  problem.graph = parse_graph(R"(kerf-graph 1.0
graph "two"
batch 4
input %x: f32[B, 1] = "args.0"
weight @w: f32[5] = parameter "w"
%a: f32[B, 10] = aten.expand.default(%x, @w)
%b: f32[B, 100] = aten.expand.default(%a, @w)
%c: f32[B, 1] = aten.sum.default(%b)
output "c" = %c
)");
  problem.n_microbatches = 4;
  problem.cluster = parse_devices("2xcuda");
  Rng rng(1);
  problem.profile = random_profile(rng, problem.graph, 1);
  for (NodeCost& cost : problem.profile.nodes) cost.peak = Bytes{0};
  const auto stage = [](std::initializer_list<int> nodes) {
    std::vector<NodeId> all;
    for (const int node : nodes) all.emplace_back(node);
    return all;
  };
  const Plan apart =
      make_plan(problem, {stage({0}), stage({1, 2})}, {DeviceId{0}, DeviceId{1}}, "hand");
  EXPECT_EQ(apart.memory[0].weights, Bytes{20});
  EXPECT_EQ(apart.memory[0].activations, Bytes{3 * 40 + 40 + 4})
      << "three held, one made, its input";
  EXPECT_EQ(apart.memory[1].activations, Bytes{3 * 4 + 40 + 400 + 4}) << "results, input, b and c";
  EXPECT_EQ(apart.memory[1].predicted, Bytes{20 + 3 * 4 + 40 + 400 + 4});

  // On one device the order is a0 a1 b0 a2 b1 a3 b2 b3: each a waits for one task of another.
  const Plan together =
      make_plan(problem, {stage({0}), stage({1, 2})}, {DeviceId{0}, DeviceId{0}}, "hand");
  EXPECT_EQ(together.memory[0].weights, Bytes{20}) << "one storage, once";
  EXPECT_EQ(together.memory[0].activations, Bytes{2 * 4 + 2 * 40 + 400 + 4})
      << "in b2: two results, its a and the next one, b and c";
}

TEST(TheMemoryEngine, CountsAMemoryThatDevicesShareOnce) {
  Problem problem;
  problem.graph = parse_graph(R"(kerf-graph 1.0
graph "tied"
batch 1
input %x: f32[B, 1] = "args.0"
weight @w: f32[100] = parameter "embed", "head"
%a: f32[B, 10] = aten.expand.default(%x, @w)
%b: f32[B, 10] = aten.expand.default(%a, @w)
output "b" = %b
)");
  Rng rng(1);
  problem.profile = random_profile(rng, problem.graph, 1);
  for (NodeCost& cost : problem.profile.nodes) cost.peak = Bytes{0};
  const std::vector<std::vector<NodeId>> stages{{NodeId{0}}, {NodeId{1}}};
  problem.cluster = parse_devices("cuda:0,cuda:0");
  const Plan shared = make_plan(problem, stages, {DeviceId{0}, DeviceId{1}}, "hand");
  EXPECT_EQ(shared.memory[0].predicted, Bytes{400 + (40 + 4) + 40}) << "a is passed, not copied";
  EXPECT_EQ(shared.memory[1].predicted, shared.memory[0].predicted);
  problem.cluster = parse_devices("cuda:0,cuda:1");
  const Plan apart = make_plan(problem, stages, {DeviceId{0}, DeviceId{1}}, "hand");
  EXPECT_EQ(apart.memory[0].predicted, Bytes{400 + 40 + 4});
  EXPECT_EQ(apart.memory[1].predicted, Bytes{400 + 40 + 40});
}

}  // namespace
}  // namespace kerf
