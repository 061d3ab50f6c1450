// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "benchmarks/scale/families.h"
#include "kerf/base/rng.h"

namespace kerf::families {

using Shape = std::vector<Expr>;
using Inputs = std::vector<ValueId>;

inline constexpr std::int64_t kExampleBatch = 8;

// Writes a model down node by node, in constant time each, with costs as a device of 10 Tflop/s and
// 1 TB/s would have them.
class ModelBuilder {
 public:
  // `example_batch` 0: no size depends on B.
  ModelBuilder(std::string name, std::uint64_t seed, double noise,
               std::int64_t example_batch = kExampleBatch);

  // Following weights and nodes belong to this module.
  void enter(const std::string& path, std::string_view class_name);
  // A block starts: nodes at the same place of blocks of one kind cost the same.
  void begin_block(std::uint64_t kind);

  ValueId input(std::string_view name, const Shape& shape);
  ValueId weight(std::string_view name, const Shape& shape);
  // The parameters of a whole module as parts of one tensor, one after the other.
  void begin_flat_weight(std::int64_t elements);
  ValueId flat_weight(std::string_view name, const Shape& shape);

  // A node with one result in memory of its own; its time follows from flops and bytes moved.
  ValueId add(std::string_view op, const Inputs& inputs, const Shape& shape, double flops);
  ValueId add_timed(std::string_view op, const Inputs& inputs, const Shape& shape,
                    Nanoseconds time);
  // One more result of the node added last, like its first.
  ValueId another_result();
  // Another shape for the same memory; free of cost.
  ValueId view(std::string_view op, ValueId of, const Shape& shape);

  // x @ weight.T + bias for a weight of its own; `x` ends in `in`.
  ValueId linear(std::string_view name, ValueId x, std::int64_t in, std::int64_t out);
  ValueId elementwise(std::string_view op, const Inputs& inputs);

  const Shape& shape(ValueId id) const { return data_.values[id.index()].shape; }
  std::int64_t elements(ValueId id) const;  // at the example batch
  std::size_t num_nodes() const { return data_.nodes.size(); }
  Rng& rng() { return rng_; }

  Model finish(const Inputs& outputs);

 private:
  std::int64_t elements(const Shape& shape) const;
  ValueId add_value(std::string name, const Shape& shape);
  ValueId add_weight_value(std::string_view name, Value value);
  std::string next_name(std::string_view op);
  ValueId add_node(std::string_view op, const Inputs& inputs, ValueId output, double flops,
                   Nanoseconds time);
  double block_factor();

  GraphData data_;
  std::vector<double> times_;
  std::vector<double> flops_;
  std::unordered_map<std::string_view, std::size_t> named_;  // by operator; keys are literals
  ScopeId scope_{0};
  StorageId flat_;
  std::int64_t flat_used_ = 0;
  std::uint64_t seed_;
  double noise_;
  std::uint64_t block_kind_ = 0;
  std::uint64_t place_ = 0;  // in the block
  Rng rng_;
};

}  // namespace kerf::families
