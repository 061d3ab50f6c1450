// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/training_footprint.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "kerf/base/sort_unique.h"
#include "kerf/device/kind.h"
#include "kerf/graph/has_backward.h"
#include "kerf/plan/loss_memory.h"
#include "kerf/plan/passes.h"
#include "kerf/plan/recompute.h"

namespace kerf {
namespace {

class TrainingWalk {
 public:
  TrainingWalk(const Graph& graph, const Plan& plan, const Profile& profile)
      : graph_(graph),
        plan_(plan),
        profile_(profile),
        shape_(step_shape(plan)),
        stage_of_(plan.stage_of_nodes()),
        blocks_(recompute_blocks(graph, plan.recomputed)),
        saved_(find_saved(graph, plan.micro_batch, is_accelerator_kind(plan.profile_kind),
                          number_regions())),
        alone_(plan.recomputed.empty()
                   ? SavedSets{}
                   : find_saved(graph, plan.micro_batch, is_accelerator_kind(plan.profile_kind),
                                std::vector<RegionNumber>(graph.num_nodes(), kNoRegion))),
        facts_(graph.storages().size()) {}

  TrainingFootprints run() {
    find_makers();
    find_leaving();
    find_kept();
    out_.passes = stage_footprints(graph_, stage_of_, plan_.num_stages(), plan_.micro_batch,
                                   profile_.workspaces(), kept_);
    out_.passes.resize(plan_.num_stages() * shape_.num_phases());
    find_senders();
    for (std::size_t s = 0; s < plan_.num_stages(); ++s) {
      out_.saved.push_back(hold_kept(StageId{s}));
      if (plan_.stages[s].has_backward) walk_backward(StageId{s});
      if (plan_.stages[s].has_backward && shape_.apart) hold_for_weights(StageId{s});
    }
    const std::vector<std::vector<GradientRoute>> routes = gradient_routes(plan_);
    for (std::size_t c = 0; c < routes.size(); ++c) hold_gradients(plan_.cuts[c], routes[c]);
    return std::move(out_);
  }

 private:
  struct StorageFacts {
    bool weight = false;
    NodeId maker;  // the first node that makes a value in it; invalid: weight or graph input
  };

  PassId pass(StageId stage, Phase phase) const { return pass_of(shape_, stage, phase); }
  Footprint& footprint(PassId id) { return out_.passes[id.index()]; }
  Bytes storage_bytes(StorageId id) const {
    return Bytes{graph_.storage(id).bytes.eval(plan_.micro_batch)};
  }
  Bytes value_bytes(ValueId id) const { return graph_.value(id).bytes(plan_.micro_batch); }
  bool has_gradient(ValueId id) const {
    const Value& value = graph_.value(id);
    return !value.scalar && value.requires_grad;
  }
  bool is_made_in(StorageId storage, StageId stage) const {
    const NodeId maker = facts_[storage.index()].maker;
    return maker.valid() && stage_of_[maker.index()] == stage;
  }

  // A block that is cut by a border is one in each stage.
  std::vector<RegionNumber> number_regions() const {
    std::map<std::pair<std::uint32_t, StageId>, RegionNumber> numbers;
    std::vector<RegionNumber> regions(graph_.num_nodes(), kNoRegion);
    for (std::size_t n = 0; n < regions.size(); ++n) {
      if (blocks_[n] == 0) continue;
      const auto next = static_cast<RegionNumber>(numbers.size());
      regions[n] = numbers.try_emplace({blocks_[n], stage_of_[n]}, next).first->second;
    }
    return regions;
  }

  void find_makers() {
    std::vector<bool> given(facts_.size());
    for (const Value& value : graph_.values()) {
      if (value.scalar) continue;
      StorageFacts& facts = facts_[value.storage.index()];
      facts.weight |= value.origin == Origin::weight;
      if (value.origin != Origin::node) {
        given[value.storage.index()] = true;
      } else if (!facts.maker.valid() || value.producer < facts.maker) {
        facts.maker = value.producer;
      }
    }
    for (std::size_t s = 0; s < facts_.size(); ++s) {
      if (given[s]) facts_[s].maker = NodeId{};
    }
  }

  // Storages that other stages or the caller use: they may be held longer.
  void find_leaving() {
    leaves_.resize(facts_.size());
    result_.resize(graph_.num_values());
    for (const Cut& cut : plan_.cuts) leaves_[graph_.value(cut.value).storage.index()] = true;
    for (const GraphOutput& output : graph_.outputs()) {
      for_each_value(output.leaf, [&](ValueId id) {
        result_[id.index()] = true;
        if (!graph_.value(id).scalar) leaves_[graph_.value(id).storage.index()] = true;
      });
    }
  }

  void find_senders() {
    sends_ = gradient_senders(plan_);
    loss_ = loss_memory(graph_, plan_.micro_batch);
  }

  // Does what the node's backward was given wait for its gradients of weights?
  bool waits(NodeId node) const {
    if (!shape_.apart || !sends_[stage_of_[node.index()].index()]) return false;
    const auto inputs = graph_.inputs_of(node);
    return has_backward(graph_, node) && std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) {
             return has_gradient(id) && graph_.value(id).origin == Origin::weight;
           });
  }

  void hold_for_weights(StageId stage) {
    Footprint& backward = footprint(pass(stage, Phase::backward));
    const PassId last = pass(stage, Phase::weight_gradient);
    if (!sends_[stage.index()]) {
      footprint(last).activations = backward.activations;
      return;
    }
    Bytes kept;
    Bytes most;
    for (const NodeId node : plan_.stage(stage).nodes) {
      if (!waits(node)) continue;
      for (const ValueId id : graph_.node(node).outputs) {
        if (id.valid() && has_gradient(id)) kept += value_bytes(id);
      }
      Bytes made = profile_.node(node).backward_workspace;
      for (const ValueId id : graph_.inputs_of(node)) {
        if (has_gradient(id) && graph_.value(id).origin == Origin::weight) made += value_bytes(id);
      }
      most = std::max(most, made);
    }
    footprint(last).activations = most;
    if (kept.count > 0) backward.held.push_back({kept, {last}});
  }

  void find_kept() {
    kept_.storages.resize(plan_.num_stages());
    kept_.own.resize(graph_.num_nodes());
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      for (const SavedTensor& tensor : saved_.of(NodeId{n})) {
        if (!tensor.value.valid()) {
          kept_.own[n] += tensor.bytes;
          continue;
        }
        const StorageId storage = graph_.value(tensor.value).storage;
        if (storage.valid() && !facts_[storage.index()].weight) {
          kept_.storages[stage_of_[n].index()].push_back(storage);
        }
      }
    }
    const Phase last = shape_.apart ? Phase::weight_gradient : Phase::backward;
    for (std::size_t s = 0; s < plan_.num_stages(); ++s) {
      sort_unique(kept_.storages[s]);
      kept_.until.push_back(pass(StageId{s}, last));
      if (!plan_.stages[s].has_backward) kept_.storages[s].clear();
    }
  }

  // Received tensors that a backward needs are received for it too, and what its nodes keep for
  // themselves is held until then. Returns all that is kept.
  Bytes hold_kept(StageId stage) {
    Bytes sum;
    if (!plan_.stage(stage).has_backward) return sum;
    Footprint& last = footprint(kept_.until[stage.index()]);
    Bytes own;
    for (const NodeId node : plan_.stage(stage).nodes) own += kept_.own[node.index()];
    for (const StorageId storage : kept_.storages[stage.index()]) {
      if (is_made_in(storage, stage)) sum += storage_bytes(storage);
    }
    for (const ReceivedValue& value : out_.passes[stage.index()].received) {
      if (!kept_.has(stage, graph_.value(value.value).storage)) continue;
      last.received.push_back(value);
      sum += value.bytes;
    }
    if (own.count > 0) {
      out_.passes[stage.index()].held.push_back({own, {kept_.until[stage.index()]}});
    }
    return sum + own;
  }

  // By node of a stage: what is released once its backward has run, and what a block adds.
  struct Changes {
    std::unordered_map<std::size_t, Bytes> released;
    std::unordered_map<std::size_t, Bytes> block_starts;  // in reverse order: at its last node
    std::unordered_map<std::size_t, Bytes> block_ends;    // at its first node
  };

  Changes find_changes(StageId stage) const {
    Changes changes;
    std::unordered_map<std::uint32_t, std::vector<NodeId>> by_block;
    std::unordered_set<std::size_t> met;
    for (const NodeId node : plan_.stage(stage).nodes) {
      if (blocks_[node.index()] != 0) by_block[blocks_[node.index()]].push_back(node);
      if (shape_.apart) continue;
      changes.released[node.index()] += kept_.own[node.index()];
      for (const SavedTensor& tensor : saved_.of(node)) {
        if (!tensor.value.valid()) continue;
        const StorageId storage = graph_.value(tensor.value).storage;
        if (!storage.valid() || !is_made_in(storage, stage) || leaves_[storage.index()]) continue;
        if (met.insert(storage.index()).second) {
          changes.released[node.index()] += storage_bytes(storage);
        }
      }
    }
    for (const auto& [block, nodes] : by_block) {
      const Bytes bytes = made_again(stage, nodes);
      changes.block_starts[nodes.back().index()] = bytes;
      changes.block_ends[nodes.front().index()] = bytes;
    }
    return changes;
  }

  // What a block has when it was computed again: all that its nodes keep when nothing is.
  Bytes made_again(StageId stage, const std::vector<NodeId>& nodes) const {
    Bytes sum;
    std::unordered_set<std::size_t> seen;
    std::unordered_set<std::size_t> inside;
    for (const NodeId node : nodes) inside.insert(node.index());
    for (const NodeId node : nodes) {
      for (const SavedTensor& tensor : alone_.of(node)) {
        if (!tensor.value.valid()) {
          sum += tensor.bytes;
          continue;
        }
        const StorageId storage = graph_.value(tensor.value).storage;
        if (!storage.valid() || !is_made_in(storage, stage)) continue;
        if (!inside.contains(facts_[storage.index()].maker.index())) continue;
        if (seen.insert(storage.index()).second) sum += storage_bytes(storage);
      }
    }
    return sum;
  }

  void walk_backward(StageId stage) {
    const Changes changes = find_changes(stage);
    const auto at = [](const std::unordered_map<std::size_t, Bytes>& map, NodeId node) {
      const auto found = map.find(node.index());
      return found == map.end() ? Bytes{} : found->second;
    };
    const bool adds_up = plan_.n_microbatches > 1;
    std::unordered_set<std::size_t> alive;  // values whose gradients are there
    Bytes live;
    Bytes most =
        loss_.node.valid() && stage_of_[loss_.node.index()] == stage ? loss_.bytes : Bytes{};
    const std::vector<NodeId>& nodes = plan_.stage(stage).nodes;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      live += at(changes.block_starts, *node);
      if (has_backward(graph_, *node)) {
        Bytes passing = profile_.node(*node).backward_workspace;
        // The gradient that the caller gives for a result. Those from other stages are received.
        for (const ValueId id : graph_.node(*node).outputs) {
          if (!id.valid() || !result_[id.index()] || !has_gradient(id)) continue;
          if (alive.insert(id.index()).second) live += value_bytes(id);
        }
        for (const ValueId id : graph_.inputs_of(*node)) {
          if (!has_gradient(id)) continue;
          if (graph_.value(id).origin == Origin::weight) {
            if (adds_up) passing += value_bytes(id);
          } else if (alive.insert(id.index()).second) {
            live += value_bytes(id);
          } else {
            passing += value_bytes(id);
          }
        }
        most = std::max(most, live + passing);
        const bool kept = waits(*node);
        for (const ValueId id : graph_.node(*node).outputs) {
          if (id.valid() && alive.erase(id.index()) > 0 && !kept) live -= value_bytes(id);
        }
      }
      live -= at(changes.released, *node);
      live -= at(changes.block_ends, *node);
    }
    footprint(pass(stage, Phase::backward)).activations = most;
  }

  // Each stage that used a tensor has its gradient until the backward that waits for it took it.
  void hold_gradients(const Cut& cut, const std::vector<GradientRoute>& routes) {
    for (const auto [giver, taker] : routes) {
      const PassId from = pass(giver, Phase::backward);
      const PassId to = pass(taker, Phase::backward);
      footprint(from).held.push_back({cut.bytes, {to}});
      footprint(to).received.push_back({cut.value, cut.bytes, from});
      if (shape_.apart && !sends_[taker.index()]) {
        footprint(to).held.push_back({cut.bytes, {pass(taker, Phase::weight_gradient)}});
      }
    }
  }

  const Graph& graph_;
  const Plan& plan_;
  const Profile& profile_;
  StepShape shape_;
  std::vector<StageId> stage_of_;
  std::vector<std::uint32_t> blocks_;  // by node
  SavedSets saved_;
  SavedSets alone_;                  // what nodes of blocks keep once they run again
  std::vector<StorageFacts> facts_;  // by storage
  std::vector<bool> leaves_;         // by storage
  std::vector<bool> result_;         // by value
  std::vector<bool> sends_;          // by stage: a gradient to another
  LossMemory loss_;
  KeptSets kept_;
  TrainingFootprints out_;
};

}  // namespace

std::vector<bool> gradient_senders(const Plan& plan) {
  std::vector<bool> sends(plan.num_stages());
  for (const Cut& cut : plan.cuts) {
    for (const StageId user : cut.gradients) sends[user.index()] = true;
  }
  return sends;
}

TrainingFootprints training_footprints(const Graph& graph, const Plan& plan,
                                       const Profile& profile) {
  return TrainingWalk(graph, plan, profile).run();
}

}  // namespace kerf
