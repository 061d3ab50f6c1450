// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/derive_needs.h"

#include <algorithm>
#include <set>

namespace kerf::derive {
namespace {

// Memory and what becomes of it in the stage that it belongs to.
struct Ownership {
  bool weight = false;
  bool outside = false;  // the caller's, or a weight
  NodeId first;          // that makes a value in it
  StageId owner;         // invalid: nobody's
  NodeId last;           // of the owner that touches it
  Kept kept;             // what others need of the owner's values
};

class Needs {
 public:
  Needs(const Graph& graph, const Flow& flow, std::int64_t micro_batch, const Reserved& reserved)
      : graph_(graph),
        flow_(flow),
        micro_batch_(micro_batch),
        reserved_(reserved),
        memory_(graph.storages().size()),
        needs_(flow.num_stages()) {}

  std::vector<StageNeeds> run(std::span<const Bytes> workspace) {
    find_owners();
    find_received();
    find_kept();
    find_activations(workspace);
    for (StageNeeds& stage : needs_) sum_up(stage);
    return std::move(needs_);
  }

 private:
  Bytes bytes_of(StorageId id) const { return {graph_.storage(id).bytes.eval(micro_batch_)}; }
  Ownership& memory_of(ValueId id) { return memory_[graph_.value(id).storage.index()]; }
  bool is_tensor(ValueId id) const { return !graph_.value(id).scalar; }
  // Made by the stage that the memory belongs to.
  bool is_owners(ValueId id) {
    return memory_of(id).owner.valid() && memory_of(id).owner == flow_.maker[id.index()];
  }

  template <class Visit>
  void for_each_tensor(Visit&& visit) {
    for (std::size_t v = 0; v < graph_.num_values(); ++v) {
      if (is_tensor(ValueId{v})) visit(ValueId{v}, graph_.values()[v]);
    }
  }

  void find_owners() {
    for_each_tensor([&](ValueId id, const Value& value) {
      Ownership& memory = memory_of(id);
      memory.weight = memory.weight || value.origin == Origin::weight;
      memory.outside = memory.outside || value.origin != Origin::node;
      if (value.origin != Origin::node) return;
      memory.first = memory.first.valid() ? std::min(memory.first, value.producer) : value.producer;
    });
    for (Ownership& memory : memory_) {
      if (memory.outside || !memory.first.valid()) continue;
      memory.owner = flow_.stage_of[memory.first.index()];
    }
  }

  void find_received() {
    for_each_tensor([&](ValueId id, const Value& value) {
      for (const StageId user : flow_.users[id.index()]) {
        StageNeeds& needs = needs_[user.index()];
        if (value.origin == Origin::weight) {
          needs.weights.push_back(value.storage);
        } else {
          needs.received.push_back({id, flow_.maker[id.index()], value.bytes(micro_batch_)});
          needs.inputs += value.bytes(micro_batch_);
        }
      }
    });
  }

  void find_kept() {
    for_each_tensor([&](ValueId id, const Value& value) {
      const std::vector<StageId>& users = flow_.users[id.index()];
      const bool result = flow_.result[id.index()];
      Ownership& memory = memory_of(id);
      if (value.origin != Origin::node || memory.weight || (users.empty() && !result)) return;
      if (is_owners(id)) {
        memory.kept.users.insert(memory.kept.users.end(), users.begin(), users.end());
        memory.kept.result = memory.kept.result || result;
        return;
      }
      const Bytes bytes = std::min(value.bytes(micro_batch_), bytes_of(value.storage));
      needs_[flow_.maker[id.index()].index()].kept.push_back({bytes, users, result});
    });
    for (std::size_t stage = 0; stage < reserved_.storages.size(); ++stage) {
      for (const StorageId storage : reserved_.storages[stage]) {
        Ownership& memory = memory_[storage.index()];
        Kept& kept = memory.kept;
        const bool own = memory.owner == StageId{stage};
        (own ? kept.users : kept.sharers).push_back(reserved_.until[stage]);
      }
    }
    for (std::size_t s = 0; s < memory_.size(); ++s) {
      Kept& kept = memory_[s].kept;
      if (kept.users.empty() && !kept.result) continue;
      std::sort(kept.users.begin(), kept.users.end());
      kept.users.erase(std::unique(kept.users.begin(), kept.users.end()), kept.users.end());
      kept.bytes = bytes_of(StorageId{s});
      needs_[memory_[s].owner.index()].kept.push_back(kept);
    }
  }

  void find_last_touches() {
    const auto touch = [&](ValueId id, NodeId node) {
      if (!is_tensor(id) || !is_owners(id)) return;
      Ownership& memory = memory_of(id);
      if (flow_.stage_of[node.index()] != memory.owner) return;
      memory.last = memory.last.valid() ? std::max(memory.last, node) : node;
    };
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      for (const NamedArgument& argument : graph_.nodes()[n].args) {
        for_each_value(argument.value, [&](ValueId id) { touch(id, NodeId{n}); });
      }
    }
    for_each_tensor([&](ValueId id, const Value& value) {
      if (value.origin == Origin::node) touch(id, value.producer);
    });
  }

  // By node: what it allocates, clones included.
  std::vector<Bytes> find_allocated() {
    std::vector<Bytes> allocated(graph_.num_nodes());
    for (std::size_t s = 0; s < memory_.size(); ++s) {
      if (memory_[s].owner.valid()) allocated[memory_[s].first.index()] += bytes_of(StorageId{s});
    }
    for (std::size_t n = 0; n < reserved_.own.size(); ++n) allocated[n] += reserved_.own[n];
    std::set<std::pair<StageId, StorageId>> cloned;
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      for (const ValueId id : graph_.nodes()[n].written) {
        if (!is_tensor(id) || !memory_of(id).owner.valid()) continue;
        if (memory_of(id).owner == flow_.stage_of[n]) continue;
        const StorageId storage = graph_.value(id).storage;
        if (cloned.emplace(flow_.stage_of[n], storage).second) allocated[n] += bytes_of(storage);
      }
    }
    return allocated;
  }

  // What is no longer live after each node.
  std::vector<Bytes> find_released() {
    find_last_touches();
    std::vector<Bytes> released(graph_.num_nodes());
    for (std::size_t s = 0; s < memory_.size(); ++s) {
      const Ownership& memory = memory_[s];
      const bool leaves = !memory.kept.users.empty() || memory.kept.result;
      if (memory.owner.valid() && !leaves) released[memory.last.index()] += bytes_of(StorageId{s});
    }
    return released;
  }

  // The nodes of a stage run in the graph's order.
  void find_activations(std::span<const Bytes> workspace) {
    const std::vector<Bytes> allocated = find_allocated();
    const std::vector<Bytes> released = find_released();
    std::vector<Bytes> live(needs_.size());
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      Bytes& now = live[flow_.stage_of[n].index()];
      Bytes& most = needs_[flow_.stage_of[n].index()].activations;
      now += allocated[n];
      most = std::max(most, workspace.empty() ? now : now + workspace[n]);
      now -= released[n];
    }
  }

  void sum_up(StageNeeds& stage) {
    std::sort(stage.weights.begin(), stage.weights.end());
    stage.weights.erase(std::unique(stage.weights.begin(), stage.weights.end()),
                        stage.weights.end());
    for (const StorageId id : stage.weights) stage.weight_bytes += bytes_of(id);
    // What only a backward needs stays; the rest goes to other stages or to the caller.
    for (const Kept& kept : stage.kept) {
      bool leaves = kept.result;
      for (const StageId user : kept.users) leaves = leaves || user.index() < needs_.size();
      if (leaves) stage.outputs += kept.bytes;
    }
  }

  const Graph& graph_;
  const Flow& flow_;
  std::int64_t micro_batch_;
  const Reserved& reserved_;
  std::vector<Ownership> memory_;  // by storage
  std::vector<StageNeeds> needs_;  // by stage
};

}  // namespace

std::vector<StageNeeds> derive_needs(const Graph& graph, const Flow& flow, std::int64_t micro_batch,
                                     std::span<const Bytes> workspace, const Reserved& reserved) {
  return Needs(graph, flow, micro_batch, reserved).run(workspace);
}

}  // namespace kerf::derive
