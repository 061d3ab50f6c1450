// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// A tensor as a tracer sees it. `storage_key` is any number that is equal for tensors that share
// memory (the address of the allocation, say).
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  bool scalar = false;
  std::vector<Expr> shape;
  std::vector<Expr> strides;
  std::int64_t storage_key = 0;
  Expr storage_bytes;
  Expr offset;  // bytes
  bool requires_grad = false;
};

// Builds a graph record by record, in execution order, then freezes it.
//
//   GraphBuilder builder("mlp", /*training=*/false);
//   ValueId x = builder.add_input("args.0", spec);
//   builder.add_node(node, {out_spec});
//   Graph graph = builder.finish();
class GraphBuilder {
 public:
  GraphBuilder(std::string name, bool training);

  void set_batch(std::int64_t example) { data_.example_batch = example; }
  void add_note(std::string text) { data_.notes.push_back(std::move(text)); }
  // Saying one twice keeps the first, with its source. Whether it holds for the example.
  bool add_condition(Condition condition);
  void add_attribute(std::string path, std::string name, Argument value) {
    data_.attributes.push_back({std::move(path), std::move(name), std::move(value)});
  }
  // Adding a path twice returns the first id; the empty path is the model, scope 0.
  ScopeId add_scope(const std::string& path, const std::string& class_name);
  ValueId add_input(std::string path, TensorSpec spec);
  ValueId add_weight(std::vector<std::string> names, WeightKind kind, TensorSpec spec,
                     std::string data = {});
  // `node.outputs` is filled in from `outputs`; nullptr stands for a result that is no tensor.
  std::vector<ValueId> add_node(Node node, const std::vector<const TensorSpec*>& outputs);
  void set_outputs(std::vector<GraphOutput> outputs) { data_.outputs = std::move(outputs); }
  void set_specs(std::string in_spec, std::string out_spec);

  // Names values apart, verifies and freezes; the builder is empty afterwards. Throws
  // Error(invalid_graph).
  Graph finish();
  // What was added so far, for passes that work on it before it is frozen.
  GraphData& data() { return data_; }

 private:
  ValueId add_value(TensorSpec spec);

  GraphData data_;
  std::unordered_map<std::string, ScopeId> scopes_;
  std::unordered_map<std::int64_t, StorageId> storages_;
};

}  // namespace kerf
