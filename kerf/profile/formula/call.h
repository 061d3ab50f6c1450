// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the forward formulas see of a node.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kerf/graph/arguments.h"
#include "kerf/graph/graph.h"
#include "kerf/profile/formula/op_cost.h"

namespace kerf::formula {

double product(const std::vector<double>& sizes);

// Argument positions are those of the operator's schema; sizes are evaluated at the batch.
class Call {
 public:
  Call(const Graph& graph, NodeId id, const Setting& setting)
      : graph_(graph), node_(graph.node(id)), id_(id), setting_(setting) {}

  NodeId id() const { return id_; }
  const Node& node() const { return node_; }
  bool on_host() const { return setting_.host; }
  std::span<const ValueId> inputs() const { return graph_.inputs_of(id_); }
  const Value& value(ValueId id) const { return graph_.value(id); }
  bool is_tensor(ValueId id) const { return id.valid() && !value(id).scalar; }

  // nullptr when the argument is absent.
  const Argument* argument(std::size_t position, std::string_view name = {}) const {
    return find_argument(node_, position, name);
  }
  std::vector<ValueId> tensors(std::size_t position, std::string_view name = {}) const;
  // The first of them; invalid when there is none.
  ValueId tensor(std::size_t position, std::string_view name = {}) const;
  bool flag(std::size_t position, std::string_view name) const;      // false when absent
  double number(std::size_t position, std::string_view name) const;  // 0 when absent

  // Empty when it is no tensor.
  std::vector<double> shape(std::size_t position, std::string_view name = {}) const;
  std::vector<double> shape(ValueId id) const;
  double elements(ValueId id) const;
  double output_elements() const;
  double input_elements() const;

  Bytes bytes(ValueId id) const;
  Bytes output_bytes() const;
  Bytes touched() const;

 private:
  const Graph& graph_;
  const Node& node_;
  NodeId id_;
  Setting setting_;
};

}  // namespace kerf::formula
