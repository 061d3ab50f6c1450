// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What follows from a graph's records: nearly linear in nodes and edges. Glue is in
// derive_glue.cpp.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "kerf/base/error.h"
#include "kerf/base/hash.h"
#include "kerf/base/sort_unique.h"
#include "kerf/graph/derive_impl.h"
#include "kerf/graph/renumber.h"
#include "kerf/graph/text_impl.h"

namespace kerf {
namespace {

template <class Rows>
void end_row(Rows& rows) {
  rows.starts.push_back(static_cast<std::uint32_t>(rows.items.size()));
}

template <class Rows, class T>
void add_row(Rows& rows, const std::vector<T>& items) {
  rows.items.insert(rows.items.end(), items.begin(), items.end());
  end_row(rows);
}

// Row j of the result lists the rows of `rows` that hold j, ascending.
template <class Rows, class Result>
void transpose(const Rows& rows, std::size_t count, Result& result) {
  using Item = typename decltype(result.items)::value_type;
  result.starts.assign(count + 1, 0);
  for (const auto item : rows.items) ++result.starts[item.index() + 1];
  std::partial_sum(result.starts.begin(), result.starts.end(), result.starts.begin());
  result.items.resize(rows.items.size());
  std::vector<std::uint32_t> next(result.starts.begin(), result.starts.end() - 1);
  for (std::size_t i = 0; i + 1 < rows.starts.size(); ++i) {
    for (const auto item : rows.row(i)) result.items[next[item.index()]++] = Item(i);
  }
}

}  // namespace

GraphDerivation::GraphDerivation(GraphData data, bool order_edges)
    : with_order_edges_(order_edges) {
  content_.data = std::move(data);
}

Graph GraphDerivation::run() {
  renumber();
  derive_inputs();
  derive_memory();
  if (with_order_edges_) derive_order_edges();
  derive_adjacency();
  if (with_order_edges_) derive_glue();
  derive_hash();
  return Graph(std::make_shared<const Content>(std::move(content_)));
}

// A canonical numbering makes equality and the text form exact, whoever built the graph.
void GraphDerivation::renumber() {
  if (!is_in_order()) renumber_values(content_.data);
  note_origins();
  renumber_storages();
}

// Are values numbered as inputs, weights and results come? Files and tracers do so.
bool GraphDerivation::is_in_order() const {
  const GraphData& data = content_.data;
  std::size_t next = 0;
  bool in_order = true;
  const auto check = [&](ValueId id) {
    if (id.valid()) in_order = in_order && id.index() == next++;
  };
  for (const GraphInput& input : data.inputs) check(input.value);
  for (const Weight& weight : data.weights) check(weight.value);
  for (const Node& node : data.nodes) {
    for (const ValueId id : node.outputs) check(id);
  }
  return in_order;
}

void GraphDerivation::note_origins() {
  GraphData& data = content_.data;
  const auto note = [&](ValueId id, Origin origin, NodeId producer, std::size_t position) {
    Value& value = data.values[id.index()];
    value.origin = origin;
    value.producer = producer;
    value.position = static_cast<std::uint32_t>(position);
  };
  for (std::size_t i = 0; i < data.inputs.size(); ++i) {
    note(data.inputs[i].value, Origin::input, {}, i);
  }
  for (std::size_t i = 0; i < data.weights.size(); ++i) {
    note(data.weights[i].value, Origin::weight, {}, i);
  }
  for (std::size_t n = 0; n < data.nodes.size(); ++n) {
    const std::vector<ValueId>& outputs = data.nodes[n].outputs;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (outputs[k].valid()) note(outputs[k], Origin::node, NodeId(n), k);
    }
  }
}

void GraphDerivation::renumber_storages() {
  GraphData& data = content_.data;
  std::vector<StorageId> new_storage(data.storages.size());
  std::vector<Storage> storages;
  for (Value& value : data.values) {
    if (!value.storage.valid()) continue;
    StorageId& mapped = new_storage[value.storage.index()];
    if (!mapped.valid()) {
      mapped = StorageId(storages.size());
      storages.push_back(data.storages[value.storage.index()]);
    }
    value.storage = mapped;
  }
  data.storages = std::move(storages);
}

void GraphDerivation::derive_inputs() {
  GraphData& data = content_.data;
  std::vector<NodeId> last_user(data.values.size());
  std::vector<std::uint32_t> mention(data.values.size());  // position among all nodes' inputs
  auto& inputs = content_.inputs;
  inputs.starts.assign(1, 0);
  for (std::size_t n = 0; n < data.nodes.size(); ++n) {
    const NodeId node(n);
    for (const NamedArgument& argument : data.nodes[n].args) {
      for_each_value(argument.value, [&](ValueId id) {
        if (last_user[id.index()] == node) return;
        last_user[id.index()] = node;
        mention[id.index()] = static_cast<std::uint32_t>(inputs.items.size());
        inputs.items.push_back(id);
      });
    }
    end_row(inputs);
    // The order of mention, so that equal graphs list them alike.
    const auto by_mention = [&](ValueId a, ValueId b) {
      return mention[a.index()] < mention[b.index()];
    };
    for (auto* list : {&data.nodes[n].written, &data.nodes[n].may_alias}) {
      std::sort(list->begin(), list->end(), by_mention);
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
  }
  transpose(inputs, data.values.size(), content_.consumers);
}

std::uint32_t GraphDerivation::alias_class(StorageId id) {
  return find_root(alias_parent_, static_cast<std::uint32_t>(id.index()));
}

// Each output may share memory with each input that is named so: all of them are one class, which
// the first output stands for.
void GraphDerivation::unite_aliases(const Node& node) {
  const auto storage_of = [&](ValueId id) {
    return id.valid() ? content_.data.values[id.index()].storage : StorageId{};
  };
  const auto stored = [&](ValueId id) { return storage_of(id).valid(); };
  const auto first = std::find_if(node.outputs.begin(), node.outputs.end(), stored);
  if (first == node.outputs.end() ||
      std::none_of(node.may_alias.begin(), node.may_alias.end(), stored)) {
    return;
  }
  for (const auto* list : {&node.may_alias, &node.outputs}) {
    for (const ValueId id : *list) {
      if (!stored(id)) continue;
      unite(alias_parent_, static_cast<std::uint32_t>(storage_of(*first).index()),
            static_cast<std::uint32_t>(storage_of(id).index()));
    }
  }
}

void GraphDerivation::derive_memory() {
  const GraphData& data = content_.data;
  alias_parent_.resize(data.storages.size());
  std::iota(alias_parent_.begin(), alias_parent_.end(), 0U);
  const auto storage_of = [&](ValueId id) { return data.values[id.index()].storage; };
  for (const Node& node : data.nodes) unite_aliases(node);
  class_written_.assign(data.storages.size(), false);
  for (const Node& node : data.nodes) {
    for (const ValueId id : node.written) {
      if (storage_of(id).valid()) class_written_[alias_class(storage_of(id))] = true;
    }
  }
  content_.written.resize(data.storages.size());
  std::unordered_map<std::uint32_t, std::vector<StorageId>> members;  // looked up, never walked
  for (std::size_t s = 0; s < data.storages.size(); ++s) {
    const std::uint32_t root = alias_class(StorageId(s));
    content_.written[s] = class_written_[root];
    if (class_written_[root]) members[root].push_back(StorageId(s));
  }

  // Where nothing is ever written, aliasing has no consequences and is left out.
  content_.reads.starts.assign(1, 0);
  content_.writes.starts.assign(1, 0);
  std::vector<StorageId> touched;
  std::vector<std::uint32_t> classes;  // each brings its members once
  const auto add_touched = [&](auto& rows, const auto& ids) {
    touched.clear();
    classes.clear();
    for (const ValueId id : ids) {
      if (!storage_of(id).valid()) continue;
      const std::uint32_t root = alias_class(storage_of(id));
      if (class_written_[root]) {
        classes.push_back(root);
      } else {
        touched.push_back(storage_of(id));
      }
    }
    sort_unique(classes);
    for (const std::uint32_t root : classes) {
      const std::vector<StorageId>& all = members.at(root);
      touched.insert(touched.end(), all.begin(), all.end());
    }
    sort_unique(touched);
    add_row(rows, touched);
  };
  for (std::size_t n = 0; n < data.nodes.size(); ++n) {
    add_touched(content_.reads, content_.inputs.row(n));
    add_touched(content_.writes, data.nodes[n].written);
  }
}

// For every written class, the nodes that read or write it, ascending. Other classes stay empty.
std::vector<std::vector<GraphDerivation::Access>> GraphDerivation::accesses_by_class() {
  const GraphData& data = content_.data;
  std::vector<std::vector<Access>> accesses(data.storages.size());
  for (std::size_t n = 0; n < data.nodes.size(); ++n) {
    const auto note = [&](StorageId storage, bool writes) {
      const std::uint32_t memory = alias_class(storage);
      if (!class_written_[memory]) return;
      auto& list = accesses[memory];
      if (list.empty() || list.back().node != NodeId(n)) list.push_back({NodeId(n), false});
      list.back().writes = list.back().writes || writes;
    };
    for (const StorageId storage : content_.reads.row(n)) note(storage, false);
    for (const StorageId storage : content_.writes.row(n)) note(storage, true);
  }
  return accesses;
}

void GraphDerivation::derive_order_edges() {
  for (const auto& accesses : accesses_by_class()) {
    NodeId last_writer;
    std::vector<NodeId> readers;  // since the last write
    for (const auto& [node, writes] : accesses) {
      if (last_writer.valid()) content_.order_edges.push_back({last_writer, node});
      if (!writes) {
        readers.push_back(node);
        continue;
      }
      for (const NodeId reader : readers) content_.order_edges.push_back({reader, node});
      readers.clear();
      last_writer = node;
    }
  }
  sort_unique(content_.order_edges);
}

void GraphDerivation::derive_adjacency() {
  const GraphData& data = content_.data;
  std::vector<Edge> by_target = content_.order_edges;
  std::sort(by_target.begin(), by_target.end(),
            [](const Edge& a, const Edge& b) { return a.to < b.to; });
  auto edge = by_target.begin();
  content_.predecessors.starts.assign(1, 0);
  std::vector<NodeId> before;
  for (std::size_t n = 0; n < data.nodes.size(); ++n) {
    before.clear();
    for (const ValueId id : content_.inputs.row(n)) {
      const Value& value = data.values[id.index()];
      if (value.origin == Origin::node) before.push_back(value.producer);
    }
    for (; edge != by_target.end() && edge->to == NodeId(n); ++edge) before.push_back(edge->from);
    sort_unique(before);
    add_row(content_.predecessors, before);
  }
  transpose(content_.predecessors, data.nodes.size(), content_.successors);
}

void GraphDerivation::derive_hash() {
  Hasher hasher;
  hash_graph(content_.data, hasher);
  content_.hash = hasher.hex();
}

}  // namespace kerf
