// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/footprint.h"

#include <algorithm>
#include <set>

#include "kerf/base/sort_unique.h"

namespace kerf {
namespace {

// Where a storage comes from, and what its values are.
struct StorageFacts {
  bool weight = false;
  NodeId maker;  // first node that makes a value in it; invalid: graph input or weight
  std::vector<ValueId> values;  // made by nodes
};

class FootprintWalk {
 public:
  FootprintWalk(const Graph& graph, std::span<const StageId> stage_of, std::size_t num_stages,
                std::int64_t micro_batch, std::span<const Bytes> workspace, const KeptSets& kept)
      : graph_(graph),
        stage_of_(stage_of),
        micro_batch_(micro_batch),
        workspace_(workspace),
        kept_(kept),
        facts_(graph.storages().size()),
        result_(graph.num_values()),
        footprints_(num_stages) {
    collect_facts();
  }

  std::vector<Footprint> run() {
    find_received();
    for (std::size_t s = 0; s < facts_.size(); ++s) find_held(StorageId{s});
    find_activations();
    return std::move(footprints_);
  }

 private:
  StageId stage_of(NodeId node) const { return stage_of_[node.index()]; }
  Footprint& footprint(StageId stage) { return footprints_[stage.index()]; }
  Bytes storage_bytes(StorageId id) const {
    return Bytes{graph_.storage(id).bytes.eval(micro_batch_)};
  }

  void collect_facts() {
    std::vector<bool> given(facts_.size());
    for (std::size_t i = 0; i < graph_.num_values(); ++i) {
      const Value& value = graph_.values()[i];
      if (value.scalar) continue;
      StorageFacts& facts = facts_[value.storage.index()];
      if (value.origin == Origin::node) {
        facts.values.emplace_back(i);
        if (!facts.maker.valid() || value.producer < facts.maker) facts.maker = value.producer;
      } else {
        given[value.storage.index()] = true;
        facts.weight |= value.origin == Origin::weight;
      }
    }
    for (std::size_t s = 0; s < facts_.size(); ++s) {
      if (given[s]) facts_[s].maker = NodeId{};
    }
    for (const GraphOutput& output : graph_.outputs()) {
      for_each_value(output.leaf, [&](ValueId id) { result_[id.index()] = true; });
    }
  }

  void find_received() {
    for (std::size_t i = 0; i < graph_.num_values(); ++i) {
      const Value& value = graph_.values()[i];
      if (value.scalar) continue;
      const StageId from = value.origin == Origin::node ? stage_of(value.producer) : StageId{};
      std::vector<StageId> users;
      for (const NodeId consumer : graph_.consumers(ValueId{i})) {
        if (stage_of(consumer) != from) users.push_back(stage_of(consumer));
      }
      sort_unique(users);
      for (const StageId user : users) {
        if (value.origin == Origin::weight) {
          footprint(user).weights.push_back(value.storage);
        } else {
          footprint(user).received.push_back({ValueId{i}, value.bytes(micro_batch_), from});
        }
      }
    }
    for (Footprint& each : footprints_) sort_unique(each.weights);
  }

  // Stages other than its own that use the value.
  std::vector<StageId> users_elsewhere(ValueId id) const {
    const StageId own = stage_of(graph_.value(id).producer);
    std::vector<StageId> users;
    for (const NodeId consumer : graph_.consumers(id)) {
      if (stage_of(consumer) != own) users.push_back(stage_of(consumer));
    }
    return users;
  }

  void find_held(StorageId storage) {
    const StorageFacts& facts = facts_[storage.index()];
    if (facts.weight) return;
    HeldItem own{storage_bytes(storage), {}, false};
    for (std::size_t s = 0; s < kept_.storages.size(); ++s) {
      if (!kept_.has(StageId{s}, storage)) continue;
      const bool made_here = facts.maker.valid() && stage_of(facts.maker) == StageId{s};
      (made_here ? own.users : own.keepers).push_back(kept_.until[s]);
    }
    for (const ValueId id : facts.values) {
      std::vector<StageId> users = users_elsewhere(id);
      if (users.empty() && !result_[id.index()]) continue;
      const StageId stage = stage_of(graph_.value(id).producer);
      if (facts.maker.valid() && stage == stage_of(facts.maker)) {
        own.users.insert(own.users.end(), users.begin(), users.end());
        own.result |= result_[id.index()];
        continue;
      }
      sort_unique(users);
      const Bytes bytes = std::min(graph_.value(id).bytes(micro_batch_), own.bytes);
      footprint(stage).held.push_back({bytes, std::move(users), result_[id.index()]});
    }
    if (own.users.empty() && !own.result) return;
    sort_unique(own.users);
    footprint(stage_of(facts.maker)).held.push_back(std::move(own));
  }

  // The last node of the maker's stage that touches the storage; invalid: it outlives the stage.
  NodeId last_touch(StorageId storage) const {
    const StorageFacts& facts = facts_[storage.index()];
    const StageId own = stage_of(facts.maker);
    if (kept_.has(own, storage)) return {};
    NodeId last = facts.maker;
    for (const ValueId id : facts.values) {
      if (stage_of(graph_.value(id).producer) != own) continue;
      if (result_[id.index()]) return {};
      last = std::max(last, graph_.value(id).producer);
      for (const NodeId consumer : graph_.consumers(id)) {
        if (stage_of(consumer) != own) return {};
        last = std::max(last, consumer);
      }
    }
    return last;
  }

  // A stage that writes to memory of another one clones the storage first, and keeps the clone to
  // its end. (Memory of the caller is never cloned: all its users are in one stage.)
  void add_clones(std::vector<Bytes>& allocated) const {
    std::vector<std::set<StorageId>> cloned(footprints_.size());
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      for (const ValueId id : graph_.nodes()[n].written) {
        const StorageId storage = graph_.value(id).storage;
        if (!storage.valid() || !facts_[storage.index()].maker.valid()) continue;
        if (stage_of(facts_[storage.index()].maker) == stage_of_[n]) continue;
        if (cloned[stage_of_[n].index()].insert(storage).second) {
          allocated[n] += storage_bytes(storage);
        }
      }
    }
  }

  // One pass over the graph; each stage's nodes come up in the order in which it runs them.
  void find_activations() {
    std::vector<Bytes> allocated(graph_.num_nodes());
    std::vector<Bytes> released(graph_.num_nodes());
    for (std::size_t s = 0; s < facts_.size(); ++s) {
      if (!facts_[s].maker.valid()) continue;
      allocated[facts_[s].maker.index()] += storage_bytes(StorageId{s});
      const NodeId last = last_touch(StorageId{s});
      if (last.valid()) released[last.index()] += storage_bytes(StorageId{s});
    }
    add_clones(allocated);
    for (std::size_t n = 0; n < kept_.own.size(); ++n) allocated[n] += kept_.own[n];
    std::vector<Bytes> live(footprints_.size());
    for (std::size_t i = 0; i < graph_.num_nodes(); ++i) {
      const std::size_t stage = stage_of_[i].index();
      live[stage] += allocated[i];
      const Bytes extra = workspace_.empty() ? Bytes{0} : workspace_[i];
      footprints_[stage].activations =
          std::max(footprints_[stage].activations, live[stage] + extra);
      live[stage] -= released[i];
    }
  }

  const Graph& graph_;
  std::span<const StageId> stage_of_;
  std::int64_t micro_batch_;
  std::span<const Bytes> workspace_;
  const KeptSets& kept_;
  std::vector<StorageFacts> facts_;  // by storage
  std::vector<bool> result_;         // by value
  std::vector<Footprint> footprints_;
};

}  // namespace

bool KeptSets::has(StageId stage, StorageId storage) const {
  if (storages.empty()) return false;
  const std::vector<StorageId>& own_storages = storages[stage.index()];
  return std::binary_search(own_storages.begin(), own_storages.end(), storage);
}

std::vector<Footprint> stage_footprints(const Graph& graph, std::span<const StageId> stage_of,
                                        std::size_t num_stages, std::int64_t micro_batch,
                                        std::span<const Bytes> workspace, const KeptSets& kept) {
  return FootprintWalk(graph, stage_of, num_stages, micro_batch, workspace, kept).run();
}

}  // namespace kerf
