// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/graph/attribute.h"
#include "kerf/graph/condition.h"
#include "kerf/graph/node.h"

namespace kerf {

// What a builder, a parser or a pass fills in. Nodes stand in an order in which the model can run.
struct GraphData {
  std::string name;
  bool training = false;
  // The batch size of the example; 0 when the graph is static, i.e. no size depends on B.
  std::int64_t example_batch = 0;
  std::vector<std::string> notes;     // what a user should know, e.g. why the batch is static
  std::vector<Condition> conditions;  // on B; all hold for the example
  std::vector<Attribute> attributes;  // what the model's code read of its modules

  std::vector<Scope> scopes;  // scope 0, the model, must be there
  std::vector<Storage> storages;
  std::vector<Value> values;
  std::vector<Weight> weights;
  std::vector<GraphInput> inputs;
  std::vector<Node> nodes;
  std::vector<GraphOutput> outputs;
  std::string in_spec;   // how the call's arguments nest: JSON, read by the Python face
  std::string out_spec;  // how the result nests

  friend bool operator==(const GraphData&, const GraphData&) = default;
};

struct Edge {
  NodeId from;
  NodeId to;
  friend auto operator<=>(const Edge&, const Edge&) = default;
};

// A frozen, verified dataflow graph. Copying is cheap (the content is shared and immutable), so all
// functions take it by const reference and values may hold it. Safe to read from any thread.
//
// Edges are of two kinds, and planners, verifier and executor honour both:
//   data   the consumer uses a value of the producer;
//   order  both touch one memory and one of them writes: a reader before the next writer, a writer
//          before its readers, writers in sequence.
class Graph {
 public:
  Graph();  // empty: one scope, nothing else

  // Verifies `data` (graph/verify.h) and derives edges. Throws Error(invalid_graph).
  // `order_edges = false` leaves memory out of account: for tests that show why it must not be.
  static Graph freeze(GraphData data, bool order_edges = true);

  const GraphData& data() const { return content_->data; }
  const std::string& name() const { return data().name; }
  bool is_static() const { return data().example_batch == 0; }

  std::size_t num_nodes() const { return data().nodes.size(); }
  std::size_t num_values() const { return data().values.size(); }
  const std::vector<Node>& nodes() const { return data().nodes; }
  const std::vector<Value>& values() const { return data().values; }
  const std::vector<Weight>& weights() const { return data().weights; }
  const std::vector<GraphInput>& inputs() const { return data().inputs; }
  const std::vector<GraphOutput>& outputs() const { return data().outputs; }
  const std::vector<Scope>& scopes() const { return data().scopes; }
  const std::vector<Storage>& storages() const { return data().storages; }
  const std::vector<Condition>& conditions() const { return data().conditions; }
  const Node& node(NodeId id) const { return data().nodes[id.index()]; }
  const Value& value(ValueId id) const { return data().values[id.index()]; }
  const Storage& storage(StorageId id) const { return data().storages[id.index()]; }
  const Scope& scope(ScopeId id) const { return data().scopes[id.index()]; }

  NodeId find_node(std::string_view name) const;  // invalid when absent; linear time

  // Distinct values a node uses, in order of first use; weights and graph inputs included.
  std::span<const ValueId> inputs_of(NodeId id) const;
  // Distinct nodes that use a value, ascending.
  std::span<const NodeId> consumers(ValueId id) const;
  // Data and order edges together, distinct, ascending.
  std::span<const NodeId> predecessors(NodeId id) const;
  std::span<const NodeId> successors(NodeId id) const;
  // The order edges alone, ascending.
  const std::vector<Edge>& order_edges() const { return content_->order_edges; }

  // Memory a node reads or changes; where memory is written, everything it may alias included.
  // Ascending.
  std::span<const StorageId> reads(NodeId id) const;
  std::span<const StorageId> writes(NodeId id) const;
  // Is this memory ever changed by a node?
  bool is_written(StorageId id) const;

  // Groups of two or more nodes that must stay in one stage, ascending by first node: they see each
  // other's writes through different names of one memory, which a copy to another device would
  // break. (A write whose result is only used through its own output may be cut: see Program.)
  // Whatever lies between two nodes of a group is in it too: contracting the groups makes no cycle.
  const std::vector<std::vector<NodeId>>& glued() const { return content_->glued; }

  // "lm_head (GPT2LMHeadModel), model.py:12" and the like, for messages.
  std::string describe(NodeId id) const;

  // Covers operators, arguments, shapes, scopes, weight names and conditions; never source lines,
  // notes, attributes, devices or weight values. 32 hex digits.
  const std::string& hash() const { return content_->hash; }

  friend bool operator==(const Graph& a, const Graph& b) {
    return a.content_ == b.content_ || a.data() == b.data();
  }

 private:
  template <class T>
  struct Rows {  // compressed rows: row i is items[starts[i] .. starts[i+1])
    std::vector<std::uint32_t> starts;
    std::vector<T> items;
    std::span<const T> row(std::size_t i) const {
      return {items.data() + starts[i], items.data() + starts[i + 1]};
    }
  };
  struct Content {
    GraphData data;
    Rows<ValueId> inputs;
    Rows<NodeId> consumers;
    Rows<NodeId> predecessors;
    Rows<NodeId> successors;
    Rows<StorageId> reads;
    Rows<StorageId> writes;
    std::vector<bool> written;
    std::vector<Edge> order_edges;
    std::vector<std::vector<NodeId>> glued;
    std::string hash;
  };
  friend class GraphDerivation;
  explicit Graph(std::shared_ptr<const Content> content) : content_(std::move(content)) {}

  std::shared_ptr<const Content> content_;
};

}  // namespace kerf
