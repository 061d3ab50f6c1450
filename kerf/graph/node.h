// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The records a graph is made of. Plain data; Graph (graph.h) adds what can be derived and promises
// that it is consistent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/base/units.h"
#include "kerf/graph/argument.h"
#include "kerf/graph/dtype.h"
#include "kerf/graph/expr.h"
#include "kerf/graph/sizes.h"

namespace kerf {

// One allocation. Views of it are values with the same storage and other offsets.
struct Storage {
  Expr bytes;
  friend bool operator==(const Storage&, const Storage&) = default;
};

enum class Origin : std::uint8_t { input, weight, node };

// A tensor, or a scalar computed from tensors (`scalar` set: no shape, no storage, no bytes).
struct Value {
  std::string name;  // unique among values; printed %name, and @name for weights
  DType dtype = DType::f32;
  bool scalar = false;
  Sizes shape;
  Sizes strides;      // in elements
  StorageId storage;  // invalid for scalars
  Expr offset;        // bytes from the start of the storage
  bool requires_grad = false;

  // Where it comes from. Filled by Graph; a builder may leave them alone.
  Origin origin = Origin::node;
  NodeId producer;             // origin == node
  std::uint32_t position = 0;  // which graph input, weight, or output of the producer

  // Bytes of the elements (not of the storage) when the batch is `batch`.
  Bytes bytes(std::int64_t batch) const;
  bool depends_on_batch() const;
  friend bool operator==(const Value&, const Value&) = default;
};

// Only parameters and buffers are in a state_dict; the other two live beside it.
enum class WeightKind : std::uint8_t { parameter, buffer, non_persistent_buffer, constant };
std::string_view to_string(WeightKind kind);
std::optional<WeightKind> find_weight_kind(std::string_view name);

struct Weight {
  ValueId value;
  WeightKind kind = WeightKind::parameter;
  std::vector<std::string> names;  // all of the user's names for this tensor; at least one
  // Constants made inside the model's code, which no module holds: the elements as raw bytes, so
  // that a saved graph can run. Empty otherwise; never part of the hash.
  std::string data;
  friend bool operator==(const Weight&, const Weight&) = default;
};

struct GraphInput {
  ValueId value;
  std::string path;  // where it stood in the call: "args.0", "kwargs.input_ids"
  friend bool operator==(const GraphInput&, const GraphInput&) = default;
};

// One leaf of the model's result: a value, or a constant such as none or a string.
struct GraphOutput {
  Argument leaf;
  std::string path;  // "logits", "past_key_values.layers.0.keys"
  friend bool operator==(const GraphOutput&, const GraphOutput&) = default;
};

// A module of the model's tree. Scope 0 is the model itself, with the empty path.
struct Scope {
  std::string path;        // "transformer.h.0"
  std::string class_name;  // "GPT2Block"
  friend bool operator==(const Scope&, const Scope&) = default;
};

struct Autocast {
  std::string device_type;  // "cpu"
  DType dtype = DType::bf16;
  bool enabled = true;
  friend bool operator==(const Autocast&, const Autocast&) = default;
};

// One operator call. What it reads and writes follows from `written` and `may_alias` and the
// storages of its values: see Graph::reads and Graph::writes.
struct Node {
  std::string name;  // unique among nodes
  std::string op;    // "aten.linear.default", or "opaque" for a block that runs as Python
  std::vector<NamedArgument> args;
  std::vector<ValueId> outputs;    // in the schema's order, lists flattened; invalid = not a tensor
  std::vector<ValueId> written;    // values whose memory the schema says is changed
  std::vector<ValueId> may_alias;  // values whose memory an output may share, whatever was traced
  ScopeId scope{0};
  std::string source;  // "model.py:123"; empty when unknown
  std::string region;  // checkpoint region, "0/1"; empty outside of any
  bool grad_enabled = true;
  std::vector<Autocast> autocast;
  bool random = false;

  friend bool operator==(const Node&, const Node&) = default;
};

}  // namespace kerf
