// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// From the definitions in docs/concepts.md (training, memory). The engine walks through a backward
// with a set of live gradients; here every gradient, block and kept tensor is an interval of the
// backward's positions, and the peak is read off their sums.
#include <algorithm>
#include <map>

#include "kerf/device/kind.h"
#include "kerf/plan/recompute.h"
#include "kerf/profile/saved/saved.h"
#include "kerf/verify/unroll.h"

namespace kerf::derive {
namespace {

class Training {
 public:
  Training(const Graph& graph, const Flow& flow, const Unrolled& unrolled, const Plan& plan,
           const Profile* profile)
      : graph_(graph),
        flow_(flow),
        unrolled_(unrolled),
        plan_(plan),
        profile_(profile),
        blocks_(recompute_blocks(graph, plan.recomputed)) {}

  TrainingNeeds run() {
    find_facts();
    find_saved_sets();
    reserve();
    TrainingNeeds needs;
    std::vector<Bytes> workspace;
    if (profile_ != nullptr) workspace = profile_->workspaces();
    needs.passes = derive_needs(graph_, flow_, plan_.micro_batch, workspace, reserved_);
    needs.passes.resize(unrolled_.plan.stages.size());
    needs.saved.resize(flow_.num_stages());
    for (std::size_t s = 0; s < flow_.num_stages(); ++s) {
      if (!unrolled_.has_backward[s]) continue;
      needs.saved[s] = keep(StageId{s}, needs.passes);
      needs.passes[unrolled_.backward(StageId{s})].activations = find_peak(StageId{s});
      if (unrolled_.apart) wait_for_weights(StageId{s}, needs.passes);
    }
    for (std::size_t i = 0; i < unrolled_.gradients_from.size(); ++i) {
      const auto& [value, user] = unrolled_.gradients_from[i];
      const StageId from{unrolled_.backward(user)};
      const StageId to{unrolled_.backward(unrolled_.gradients_to[i])};
      needs.passes[from.index()].kept.push_back({bytes_of(value), {to}});
      needs.passes[to.index()].received.push_back({value, from, bytes_of(value)});
      const StageId taker = unrolled_.gradients_to[i];
      if (!unrolled_.apart || has_earlier(taker)) continue;
      needs.passes[to.index()].kept.push_back({bytes_of(value), {reserved_.until[taker.index()]}});
    }
    return needs;
  }

 private:
  Bytes bytes_of(ValueId id) const { return graph_.value(id).bytes(plan_.micro_batch); }
  Bytes bytes_of(StorageId id) const {
    return Bytes{graph_.storage(id).bytes.eval(plan_.micro_batch)};
  }
  StageId stage_of(NodeId node) const { return flow_.stage_of[node.index()]; }
  bool has_backward(NodeId node) const { return needs_gradient(graph_, graph_.node(node)); }

  void find_facts() {
    const std::size_t storages = graph_.storages().size();
    weight_.resize(storages);
    outside_.resize(storages);
    shared_.resize(storages);
    maker_.resize(storages);
    for (std::size_t v = 0; v < graph_.num_values(); ++v) {
      const Value& value = graph_.values()[v];
      if (value.scalar) continue;
      const std::size_t s = value.storage.index();
      if (value.origin == Origin::weight) weight_[s] = true;
      if (value.origin != Origin::node) outside_[s] = true;
      if (flow_.result[v] || (flow_.maker[v].valid() && !flow_.users[v].empty())) shared_[s] = true;
      if (value.origin != Origin::node) continue;
      maker_[s] = maker_[s].valid() ? std::min(maker_[s], value.producer) : value.producer;
    }
  }
  // The stage that allocated it; invalid: nobody did.
  StageId owner(StorageId id) const {
    return outside_[id.index()] || !maker_[id.index()].valid() ? StageId{}
                                                               : stage_of(maker_[id.index()]);
  }

  void find_saved_sets() {
    const DeviceKind* const kind = find_device_kind(plan_.profile_kind);
    const bool accelerator = kind != nullptr && !kind->host;
    std::vector<RegionNumber> regions(graph_.num_nodes(), kNoRegion);
    const std::vector<RegionNumber> none = regions;
    const auto stages = static_cast<RegionNumber>(flow_.num_stages());
    for (std::size_t n = 0; n < regions.size(); ++n) {
      if (blocks_[n] == 0) continue;
      regions[n] = static_cast<RegionNumber>(blocks_[n] - 1) * stages +
                   static_cast<RegionNumber>(flow_.stage_of[n].index());
    }
    saved_ = find_saved(graph_, plan_.micro_batch, accelerator, regions);
    whole_ = find_saved(graph_, plan_.micro_batch, accelerator, none);
  }

  void reserve() {
    const std::size_t stages = flow_.num_stages();
    reserved_.storages.resize(stages);
    reserved_.own.resize(graph_.num_nodes());
    for (std::size_t s = 0; s < stages; ++s) {
      reserved_.until.emplace_back(s + stages * (unrolled_.apart ? 2 : 1));
    }
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      for (const SavedTensor& tensor : saved_.of(NodeId{n})) {
        if (!tensor.value.valid()) reserved_.own[n] += tensor.bytes;
        const StorageId id =
            tensor.value.valid() ? graph_.value(tensor.value).storage : StorageId{};
        if (!id.valid() || weight_[id.index()]) continue;
        const std::size_t stage = stage_of(NodeId{n}).index();
        if (unrolled_.has_backward[stage]) reserved_.storages[stage].insert(id);
      }
    }
  }

  // What stays for the backward, counted; and the pass that frees it hears of it.
  Bytes keep(StageId stage, std::vector<StageNeeds>& passes) const {
    const StageId until = reserved_.until[stage.index()];
    Bytes own;
    for (const NodeId node : plan_.stage(stage).nodes) own += reserved_.own[node.index()];
    if (own.count > 0) passes[stage.index()].kept.push_back({own, {until}});
    Bytes sum = own;
    for (const StorageId id : reserved_.storages[stage.index()]) {
      if (owner(id) == stage) sum += bytes_of(id);
    }
    for (const Arrival& arrival : passes[stage.index()].received) {
      const StorageId id = graph_.value(arrival.value).storage;
      if (!reserved_.storages[stage.index()].contains(id)) continue;
      passes[until.index()].received.push_back(arrival);
      sum += arrival.bytes;
    }
    return sum;
  }

  // Does another stage wait for a gradient that this one makes?
  bool has_earlier(StageId stage) const {
    return std::any_of(unrolled_.gradients_from.begin(), unrolled_.gradients_from.end(),
                       [&](const auto& item) { return item.second == stage; });
  }

  bool has_gradient(ValueId id) const {
    return id.valid() && !graph_.value(id).scalar && graph_.value(id).requires_grad;
  }

  // Of the node's weights that are trained.
  Bytes trained(NodeId node) const {
    Bytes sum;
    for (const ValueId id : graph_.inputs_of(node)) {
      if (has_gradient(id) && graph_.value(id).origin == Origin::weight) sum += bytes_of(id);
    }
    return sum;
  }

  bool is_delayed(NodeId node) const {
    return unrolled_.apart && has_backward(node) && trained(node).count > 0 &&
           has_earlier(stage_of(node));
  }

  void wait_for_weights(StageId stage, std::vector<StageNeeds>& passes) const {
    const StageId last = reserved_.until[stage.index()];
    StageNeeds& backward = passes[unrolled_.backward(stage)];
    if (!has_earlier(stage)) {
      passes[last.index()].activations = backward.activations;
      return;
    }
    Bytes given;
    for (const NodeId node : plan_.stage(stage).nodes) {
      if (!is_delayed(node)) continue;
      const Bytes workspace =
          profile_ == nullptr ? Bytes{} : profile_->node(node).backward_workspace;
      Bytes& most = passes[last.index()].activations;
      most = std::max(most, trained(node) + workspace);
      for (const ValueId id : graph_.node(node).outputs) {
        if (has_gradient(id)) given += bytes_of(id);
      }
    }
    if (given.count > 0) backward.kept.push_back({given, {last}});
  }

  // A loss of all results with gradients, in front of the last node that makes one, unless one of
  // them is a loss already.
  Bytes find_loss(StageId stage) const {
    NodeId last;
    Bytes sum;
    for (std::size_t v = 0; v < graph_.num_values(); ++v) {
      const Value& value = graph_.values()[v];
      if (!flow_.result[v] || value.origin != Origin::node || !has_gradient(ValueId{v})) continue;
      if (value.shape.empty()) return {};
      sum += bytes_of(ValueId{v}) * 3;
      last = last.valid() ? std::max(last, value.producer) : value.producer;
    }
    return last.valid() && stage_of(last) == stage ? sum : Bytes{};
  }

  // Positions count from the stage's last node to its first. A block is computed at the position of
  // its last node and gone after that of its first.
  Bytes find_peak(StageId stage) const {
    const std::vector<NodeId>& nodes = plan_.stage(stage).nodes;
    const std::size_t count = nodes.size();
    std::map<NodeId, std::size_t> at;
    for (std::size_t i = 0; i < count; ++i) at[nodes[i]] = count - 1 - i;
    std::vector<Bytes> change(count + 1);
    std::vector<Bytes> passing(count);
    const auto add = [&](std::size_t first, std::size_t last, Bytes bytes) {
      change[first] += bytes;
      if (last + 1 < change.size()) change[last + 1] -= bytes;
    };
    add_gradients(stage, at, add, passing);
    add_blocks(stage, at, add);
    if (!unrolled_.apart) add_released(stage, at, change);
    Bytes most = find_loss(stage);
    Bytes live;
    for (std::size_t i = 0; i < count; ++i) {
      live += change[i];
      if (has_backward(nodes[count - 1 - i])) most = std::max(most, live + passing[i]);
    }
    return most;
  }

  template <class Add>
  void add_gradients(StageId stage, const std::map<NodeId, std::size_t>& at, Add&& add,
                     std::vector<Bytes>& passing) const {
    std::map<ValueId, std::vector<std::size_t>> parts;  // where parts of a gradient are made
    for (const auto& [node, position] : at) {
      if (!has_backward(node)) continue;
      if (profile_ != nullptr) passing[position] += profile_->node(node).backward_workspace;
      for (const ValueId id : graph_.node(node).outputs) {
        if (!id.valid() || graph_.value(id).scalar || !graph_.value(id).requires_grad) continue;
        if (flow_.result[id.index()]) parts[id].push_back(position);
      }
      std::set<ValueId> used;
      for (const NamedArgument& argument : graph_.node(node).args) {
        for_each_value(argument.value, [&](ValueId id) { used.insert(id); });
      }
      for (const ValueId id : used) {
        const Value& value = graph_.value(id);
        if (value.scalar || !value.requires_grad) continue;
        if (value.origin != Origin::weight) {
          parts[id].push_back(position);
        } else if (plan_.n_microbatches > 1) {
          passing[position] += bytes_of(id);
        }
      }
    }
    for (auto& [id, positions] : parts) {
      std::sort(positions.begin(), positions.end());
      const Value& value = graph_.value(id);
      const bool made_here = flow_.maker[id.index()] == stage;
      const std::size_t last = made_here ? at.at(value.producer) : at.size();
      const bool stays = made_here && is_delayed(value.producer);
      add(positions.front(), stays ? at.size() : last, bytes_of(id));
      for (std::size_t i = 1; i < positions.size(); ++i) {
        // The caller's part of a result is there beside no other: it comes with the maker.
        if (made_here && positions[i] == last) continue;
        passing[positions[i]] += bytes_of(id);
      }
    }
  }

  template <class Add>
  void add_blocks(StageId stage, const std::map<NodeId, std::size_t>& at, Add&& add) const {
    std::map<std::uint32_t, std::vector<NodeId>> members;
    for (const auto& [node, position] : at) {
      if (blocks_[node.index()] != 0) members[blocks_[node.index()]].push_back(node);
    }
    for (const auto& [block, nodes] : members) {
      Bytes bytes;
      std::set<StorageId> seen;
      for (const NodeId node : nodes) {
        for (const SavedTensor& tensor : whole_.of(node)) {
          if (!tensor.value.valid()) bytes += tensor.bytes;
          const StorageId id =
              tensor.value.valid() ? graph_.value(tensor.value).storage : StorageId{};
          if (!id.valid() || owner(id) != stage) continue;
          const bool inside = blocks_[maker_[id.index()].index()] == block;
          if (inside && seen.insert(id).second) bytes += bytes_of(id);
        }
      }
      add(at.at(nodes.back()), at.at(nodes.front()), bytes);
    }
  }

  // What was kept is gone after the first node, in the stage's own order, that kept it.
  void add_released(StageId stage, const std::map<NodeId, std::size_t>& at,
                    std::vector<Bytes>& change) const {
    std::set<StorageId> seen;
    for (const auto& [node, position] : at) {  // ascending
      Bytes bytes = reserved_.own[node.index()];
      for (const SavedTensor& tensor : saved_.of(node)) {
        const StorageId id =
            tensor.value.valid() ? graph_.value(tensor.value).storage : StorageId{};
        if (!id.valid() || owner(id) != stage || shared_[id.index()]) continue;
        if (seen.insert(id).second) bytes += bytes_of(id);
      }
      change[position + 1] -= bytes;
    }
  }

  const Graph& graph_;
  const Flow& flow_;
  const Unrolled& unrolled_;
  const Plan& plan_;
  const Profile* profile_;
  std::vector<std::uint32_t> blocks_;            // by node
  std::vector<bool> weight_, outside_, shared_;  // by storage
  std::vector<NodeId> maker_;                    // by storage: the first
  SavedSets saved_;
  SavedSets whole_;  // where nothing is computed again
  Reserved reserved_;
};

}  // namespace

TrainingNeeds derive_training_needs(const Graph& graph, const Flow& flow, const Unrolled& unrolled,
                                    const Plan& plan, const Profile* profile) {
  return Training(graph, flow, unrolled, plan, profile).run();
}

}  // namespace kerf::derive
