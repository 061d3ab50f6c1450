// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/saved/saved.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "kerf/base/error.h"
#include "kerf/graph/has_backward.h"
#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

// What a call without a rule may keep. A block that runs as Python may keep indices and masks too;
// what it keeps of its own is not known.
void keep_all(SavedCall& call) {
  const bool is_block = call.node().op == "opaque";
  const auto may_be_kept = [&](ValueId id) {
    return id.valid() && (is_block || is_floating(call.value(id).dtype));
  };
  for (const ValueId id : call.graph().inputs_of(call.id())) {
    if (may_be_kept(id)) call.keep_before(id);
  }
  for (const ValueId id : call.node().outputs) {
    if (may_be_kept(id)) call.keep(id);
  }
}

class Finder {
 public:
  Finder(const Graph& graph, std::int64_t batch, bool accelerator,
         std::span<const RegionNumber> regions)
      : graph_(graph), batch_(batch), accelerator_(accelerator), regions_(regions) {
    const RegionNumber last =
        regions.empty() ? kNoRegion : *std::max_element(regions.begin(), regions.end());
    has_gradients_.resize(static_cast<std::size_t>(last + 1));
    for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
      if (regions[n] != kNoRegion && has_backward(graph, NodeId{n})) {
        has_gradients_[static_cast<std::size_t>(regions[n])] = true;
      }
    }
  }

  SavedSets run() {
    SavedSets sets;
    sets.starts.reserve(graph_.num_nodes() + 1);
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      add(NodeId{n}, sets);
      sets.starts.push_back(static_cast<std::uint32_t>(sets.tensors.size()));
    }
    sets.ops_without_rule.assign(without_rule_.begin(), without_rule_.end());
    return sets;
  }

 private:
  void add(NodeId id, SavedSets& sets) {
    const Node& node = graph_.node(id);
    SavedCall call(graph_, id, batch_, accelerator_, sets.tensors);
    const RegionNumber region = regions_[id.index()];
    if (region != kNoRegion) {
      if (has_gradients_[static_cast<std::size_t>(region)]) keep_from_outside(call, region);
    } else if (!has_backward(graph_, id)) {
      return;
    } else {
      const SavedRule rule = rules_.find(node.op);
      if (rule != nullptr) rule(call);
      const bool is_known = rule != nullptr && !call.gave_up();
      if (!is_known || call.estimated()) without_rule_.insert(node.op);
      if (!is_known) keep_all(call);
    }
  }

  void keep_from_outside(SavedCall& call, RegionNumber region) const {
    for (const ValueId id : graph_.inputs_of(call.id())) {
      const Value& value = graph_.value(id);
      const bool is_inside =
          value.origin == Origin::node && regions_[value.producer.index()] == region;
      if (!is_inside) call.keep(id);
    }
  }

  const Graph& graph_;
  std::int64_t batch_;
  bool accelerator_;
  std::span<const RegionNumber> regions_;
  const SavedRules& rules_ = SavedRules::all();
  std::vector<bool> has_gradients_;  // by region
  std::set<std::string> without_rule_;
};

// Whose memory a storage is.
enum class Owner : std::uint8_t { nodes, input, weight };

// Adds up what nodes keep, storages once.
class Union {
 public:
  Union(const Graph& graph, std::int64_t batch)
      : graph_(graph),
        batch_(batch),
        owners_(graph.storages().size(), Owner::nodes),
        counted_in_(graph.storages().size(), 0) {
    for (const Weight& weight : graph.weights()) own(weight.value, Owner::weight);
    for (const GraphInput& input : graph.inputs()) own(input.value, Owner::input);
  }

  void add(std::span<const SavedTensor> tensors) {
    for (const SavedTensor& tensor : tensors) {
      sum_.made += tensor.bytes;
      if (tensor.value.valid()) add_storage(graph_.value(tensor.value).storage);
    }
  }
  const SavedBytes& sum() const { return sum_; }
  void start_again() {
    sum_ = {};
    ++round_;
  }

 private:
  void own(ValueId id, Owner owner) {
    const StorageId storage = graph_.value(id).storage;
    if (storage.valid()) owners_[storage.index()] = owner;
  }

  void add_storage(StorageId id) {
    if (!id.valid() || counted_in_[id.index()] == round_) return;
    counted_in_[id.index()] = round_;
    const Owner owner = owners_[id.index()];
    if (owner == Owner::weight) return;
    const Bytes bytes{graph_.storage(id).bytes.eval(batch_)};
    (owner == Owner::input ? sum_.inputs : sum_.made) += bytes;
  }

  const Graph& graph_;
  std::int64_t batch_;
  std::vector<Owner> owners_;              // by storage
  std::vector<std::uint32_t> counted_in_;  // by storage: the last round that counted it
  std::uint32_t round_ = 1;
  SavedBytes sum_;
};

}  // namespace

std::span<const SavedTensor> SavedSets::of(NodeId node) const {
  return {tensors.data() + starts[node.index()], tensors.data() + starts[node.index() + 1]};
}

bool has_saved_rule(std::string_view op) { return SavedRules::all().find(op) != nullptr; }

SavedSets find_saved(const Graph& graph, std::int64_t batch, bool accelerator,
                     std::span<const RegionNumber> regions) {
  KERF_CHECK(regions.size() == graph.num_nodes(), "a region or none for every node");
  return Finder(graph, batch, accelerator, regions).run();
}

SavedSets find_saved(const Graph& graph, std::int64_t batch, bool accelerator) {
  return find_saved(graph, batch, accelerator, traced_regions(graph));
}

SavedBytes saved_bytes(const Graph& graph, const SavedSets& sets, std::int64_t batch) {
  Union all(graph, batch);
  all.add(sets.tensors);
  return all.sum();
}

SavedBytes saved_bytes(const Graph& graph, const SavedSets& sets, std::int64_t batch,
                       std::span<const NodeId> nodes) {
  Union some(graph, batch);
  for (const NodeId node : nodes) some.add(sets.of(node));
  return some.sum();
}

std::vector<Bytes> saved_alone(const Graph& graph, const SavedSets& sets, std::int64_t batch) {
  std::vector<Bytes> bytes(graph.num_nodes());
  Union one(graph, batch);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    one.start_again();
    one.add(sets.of(NodeId{n}));
    bytes[n] = one.sum().total();
  }
  return bytes;
}

}  // namespace kerf
