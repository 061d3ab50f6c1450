// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// One operator call as a rule of the batch flow sees it: arguments by their place in the schema,
// and what is known of the tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kerf/graph/batch_flow/batch_state.h"
#include "kerf/graph/graph.h"

namespace kerf {

// "aten.add_.Tensor" is the operator "add": in place or not, the same rule holds. "aten.where.self"
// has the overload "self".
std::string_view operator_name(std::string_view op);
std::string_view overload_name(std::string_view op);

class Call {
 public:
  Call(const Graph& graph, NodeId node, const std::vector<BatchState>& states)
      : graph_(graph), node_(node), states_(states) {}

  const Graph& graph() const { return graph_; }
  NodeId id() const { return node_; }
  const Node& node() const { return graph_.node(node_); }
  const Value& value(ValueId id) const { return graph_.value(id); }
  const BatchState& state(ValueId id) const { return states_[id.index()]; }
  int rank(ValueId id) const { return static_cast<int>(value(id).shape.size()); }

  // Null when it was left out or is none.
  const Argument* argument(std::size_t position, std::string_view name) const;
  std::optional<ValueId> tensor(std::size_t position, std::string_view name) const;
  // A list of tensors; nothing when the argument is no such list. Invalid ids stand for none.
  std::optional<std::vector<ValueId>> tensors(std::size_t position, std::string_view name) const;
  std::optional<Expr> size(std::size_t position, std::string_view name) const;
  std::optional<std::vector<Expr>> sizes(std::size_t position, std::string_view name) const;
  // Numbers that do not depend on B; nothing when left out, and when they do.
  std::optional<std::int64_t> integer(std::size_t position, std::string_view name) const;
  std::optional<std::vector<std::int64_t>> integers(std::size_t position,
                                                    std::string_view name) const;
  bool flag(std::size_t position, std::string_view name, bool otherwise) const;

  // Is any plain argument an expression in B?
  bool has_batch_number() const;

  // A dimension as Python counts it, from the back when negative; nothing when out of range.
  static std::optional<int> dimension(std::int64_t dim, int rank);

  BatchState unknown(std::string_view why) const { return BatchState::unknown(node_, why); }
  BatchState mixed(std::string_view why) const { return BatchState::mixed(node_, why); }

 private:
  const Graph& graph_;
  NodeId node_;
  const std::vector<BatchState>& states_;
};

}  // namespace kerf
