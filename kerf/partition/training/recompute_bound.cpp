// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/training/recompute_bound.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "kerf/base/infinity.h"
#include "kerf/device/kind.h"
#include "kerf/graph/has_backward.h"
#include "kerf/plan/recompute.h"
#include "kerf/profile/saved/saved.h"

namespace kerf::partition {
namespace {

// By stage: the most micro-batches whose forward has begun and whose last phase has not ended.
std::vector<std::int64_t> most_live(const Plan& plan) {
  const StepShape shape = step_shape(plan);
  const Phase last = shape.apart ? Phase::weight_gradient : Phase::backward;
  std::vector<std::int64_t> live(plan.num_stages(), 0);
  std::vector<std::int64_t> most(plan.num_stages(), 0);
  for (const std::vector<Task>& tasks : make_schedule(plan)) {
    for (const Task& task : tasks) {
      const std::size_t s = task.stage.index();
      if (task.phase == Phase::forward) most[s] = std::max(most[s], ++live[s]);
      if (task.phase == last) --live[s];
    }
  }
  return most;
}

// Who keeps what when nothing is computed again: a storage that a stage made, or what one node has
// by itself.
struct Kept {
  std::int64_t bytes = 0;
  std::uint32_t stage = 0;
  // Each node that keeps it, with the node that made the value it keeps.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> by = {};
  bool received = false;  // a value of it was made by another stage: it stays
};

std::vector<Kept> find_kept(const Problem& problem, const Plan& plan,
                            const std::vector<StageId>& stage_of) {
  const Graph& graph = problem.graph;
  const SavedSets saved =
      find_saved(graph, plan.micro_batch, is_accelerator_kind(plan.profile_kind),
                 std::vector<RegionNumber>(graph.num_nodes(), kNoRegion));
  // What is given stays anyway: weights, inputs of the graph, and views of them.
  std::vector<bool> given(graph.storages().size());
  for (const Value& value : graph.values()) {
    if (!value.scalar && value.origin != Origin::node) given[value.storage.index()] = true;
  }
  std::map<std::pair<StageId, StorageId>, Kept> storages;
  std::vector<Kept> all;
  for (std::uint32_t n = 0; n < graph.num_nodes(); ++n) {
    const StageId stage = stage_of[n];
    if (!plan.stage(stage).has_backward) continue;
    const auto number = static_cast<std::uint32_t>(stage.index());
    for (const SavedTensor& tensor : saved.of(NodeId{n})) {
      if (!tensor.value.valid()) {
        all.push_back({tensor.bytes.count, number, {{n, n}}});
        continue;
      }
      const Value& value = graph.value(tensor.value);
      if (!value.storage.valid() || given[value.storage.index()]) continue;
      Kept& kept = storages[{stage, value.storage}];
      kept.bytes = graph.storage(value.storage).bytes.eval(plan.micro_batch);
      kept.stage = number;
      kept.by.emplace_back(n, static_cast<std::uint32_t>(value.producer.index()));
      kept.received = kept.received || stage_of[value.producer.index()] != stage;
    }
  }
  for (auto& [where, kept] : storages) all.push_back(std::move(kept));
  return all;
}

// Parts taken in part, those that free most per time first.
double fractional_cover(std::span<const BlockPart> parts, std::int64_t wanted) {
  double left = static_cast<double>(wanted);
  double time = 0;
  for (const BlockPart& part : parts) {
    if (left <= 0) break;
    const double freed = static_cast<double>(part.freed);
    time += part.time * std::min(1.0, left / freed);
    left -= freed;
  }
  return left > 0 ? kInfinity : time;
}

}  // namespace

BlockFigures::BlockFigures(const Problem& problem, const Plan& bare, std::vector<std::string> names)
    : plan_(bare),
      names_(std::move(names)),
      blocks_(problem.graph.num_nodes()),
      parts_(static_cast<std::size_t>(bare.cluster.num_memory_groups()),
             std::vector<BlockPart>(names_.size())),
      overlaps_(names_.size()) {
  const std::vector<StageId> stage_of = bare.stage_of_nodes();
  for (std::size_t n = 0; n < problem.graph.num_nodes(); ++n) {
    const NodeId node{n};
    const double speed = bare.cluster.device(bare.stage(stage_of[n]).device).speed;
    nodes_.push_back({static_cast<std::uint32_t>(stage_of[n].index()),
                      problem.forward_time(node).count / speed, has_backward(problem.graph, node)});
  }
  for (std::uint32_t b = 0; b < names_.size(); ++b) {
    const auto has = recompute_blocks(problem.graph, std::span(&names_[b], 1));
    for (std::size_t n = 0; n < has.size(); ++n) {
      if (has[n] == 0) continue;
      blocks_[n].push_back(b);
      if (blocks_[n].size() == 1) continue;
      for (const std::uint32_t other : blocks_[n]) overlaps_[other] = true;
    }
  }
  const auto part = [&](std::uint32_t stage, std::uint32_t block) -> BlockPart& {
    const int memory = bare.cluster.device(bare.stages[stage].device).memory_group;
    return parts_[static_cast<std::size_t>(memory)][block];
  };
  // A block that shares nodes with others may not have them all: what runs again for sure are nodes
  // with a backward, and each is counted once.
  std::set<std::pair<std::uint32_t, std::uint32_t>> runs;  // block and stage with a backward
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    for (const std::uint32_t b : blocks_[n]) {
      if (nodes_[n].backward) runs.emplace(b, nodes_[n].stage);
    }
  }
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    for (const std::uint32_t b : blocks_[n]) {
      const bool sure =
          nodes_[n].backward || (!overlaps_[b] && runs.contains({b, nodes_[n].stage}));
      if (!sure) continue;
      part(nodes_[n].stage, b).time += nodes_[n].time / static_cast<double>(blocks_[n].size());
    }
  }
  const std::vector<std::int64_t> live = most_live(bare);
  for (const Kept& kept : find_kept(problem, bare, stage_of)) {
    std::map<std::uint32_t, std::size_t> inside;  // by block: of those who keep it
    for (const auto& [keeper, maker] : kept.by) {
      for (const std::uint32_t b : blocks_[keeper]) {
        const std::vector<std::uint32_t>& makers = blocks_[maker];
        inside[b] += std::binary_search(makers.begin(), makers.end(), b) ? 1 : 0;
      }
    }
    for (const auto& [b, count] : inside) {
      const bool all = count == kept.by.size() && !kept.received;
      if (count > 0) part(kept.stage, b).freed += kept.bytes * (all ? live[kept.stage] : 1);
    }
  }
}

double BlockFigures::added_time(std::span<const std::size_t> blocks) const {
  constexpr auto kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> place(names_.size(), kNone);
  for (std::size_t i = 0; i < blocks.size(); ++i) place[blocks[i]] = i;
  std::vector<std::size_t> first(nodes_.size(), kNone);
  std::set<std::pair<std::size_t, std::uint32_t>> again;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    for (const std::uint32_t b : blocks_[n]) first[n] = std::min(first[n], place[b]);
    if (first[n] != kNone && nodes_[n].backward) again.emplace(first[n], nodes_[n].stage);
  }
  double time = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (again.contains({first[n], nodes_[n].stage})) time += nodes_[n].time;
  }
  return time;
}

double BlockFigures::least_time(std::span<const std::int64_t> wanted) const {
  double time = 0;
  for (std::size_t g = 0; g < parts_.size(); ++g) time += cheapest_cover(parts_[g], wanted[g]);
  return time;
}

// Takes one part after the other, and of all choices keeps those that no other beats in both time
// and bytes. Parts that free the same make few.
double cheapest_cover(std::span<const BlockPart> parts, std::int64_t wanted) {
  constexpr std::size_t kMostChoices = 4096;
  if (wanted <= 0) return 0;
  std::vector<BlockPart> useful(parts.begin(), parts.end());
  std::erase_if(useful, [](const BlockPart& part) { return part.freed <= 0; });
  std::stable_sort(useful.begin(), useful.end(), [](const BlockPart& a, const BlockPart& b) {
    return static_cast<double>(a.freed) * b.time > static_cast<double>(b.freed) * a.time;
  });
  std::vector<BlockPart> choices{{}};
  for (const BlockPart& part : useful) {
    const std::size_t before = choices.size();
    for (std::size_t c = 0; c < before; ++c) {
      if (choices[c].freed >= wanted) continue;
      choices.push_back(
          {choices[c].time + part.time, std::min(wanted, choices[c].freed + part.freed)});
    }
    std::sort(choices.begin(), choices.end(), [](const BlockPart& a, const BlockPart& b) {
      return std::pair(-a.freed, a.time) < std::pair(-b.freed, b.time);
    });
    double least = kInfinity;
    std::erase_if(choices, [&](const BlockPart& choice) {
      const bool beaten = choice.time >= least;
      least = std::min(least, choice.time);
      return beaten;
    });
    if (choices.size() > kMostChoices) return fractional_cover(useful, wanted);
  }
  return choices.front().freed >= wanted ? choices.front().time : kInfinity;
}

}  // namespace kerf::partition
