// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// One operator call as a rule of the saved sets sees it. Private to profile/saved.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/profile/saved/saved.h"

namespace kerf {

class SavedCall {
 public:
  SavedCall(const Graph& graph, NodeId node, std::int64_t batch, bool accelerator,
            std::vector<SavedTensor>& kept)
      : graph_(graph),
        node_(node),
        batch_(batch),
        accelerator_(accelerator),
        kept_(kept),
        first_(kept.size()) {}

  const Graph& graph() const { return graph_; }
  NodeId id() const { return node_; }
  const Node& node() const { return graph_.node(node_); }
  bool on_accelerator() const { return accelerator_; }
  std::int64_t batch() const { return batch_; }

  // Invalid when the argument is absent or no tensor.
  ValueId tensor(std::size_t position, std::string_view name) const;
  const Argument* argument(std::size_t position, std::string_view name) const;
  bool flag(std::size_t position, std::string_view name, bool otherwise) const;
  double number(std::size_t position, std::string_view name, double otherwise) const;
  // The result that is a tensor; invalid when there is none.
  ValueId result(std::size_t position = 0) const;
  bool in_place() const;

  // Does a gradient go to this argument?
  bool needs(ValueId value) const;
  const Value& value(ValueId id) const { return graph_.value(id); }
  int rank(ValueId id) const { return static_cast<int>(value(id).shape.size()); }
  std::int64_t size(ValueId id, int dim) const;  // from the back when negative
  std::int64_t stride(ValueId id, int dim) const;
  std::int64_t numel(ValueId id) const;
  // Can the dimensions first .. last be seen as one without a copy?
  bool merges(ValueId id, int first, int last) const;

  void keep(ValueId value);  // nothing when it is invalid, or kept already
  // An argument that the call does not change, or a copy of it when it does.
  void keep_before(ValueId value);
  void keep_own(Bytes bytes);
  void keep_own(std::int64_t elements, DType dtype);
  // As a tensor that is dense, whatever its strides.
  void keep_copy(ValueId value);

  // For arguments that the rule was not made for: the call counts as one without a rule.
  void give_up() { gave_up_ = true; }
  bool gave_up() const { return gave_up_; }
  // What was kept is a guess: the call is listed with those without a rule.
  void estimate() { estimated_ = true; }
  bool estimated() const { return estimated_; }

 private:
  const Graph& graph_;
  NodeId node_;
  std::int64_t batch_;
  bool accelerator_;
  std::vector<SavedTensor>& kept_;
  std::size_t first_;  // of this call's row
  bool gave_up_ = false;
  bool estimated_ = false;
};

}  // namespace kerf
