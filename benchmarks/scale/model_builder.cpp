// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/scale/model_builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace kerf::families {
namespace {

constexpr double kFlopsPerNanosecond = 10e12 / 1e9;
constexpr double kBytesPerNanosecond = 1e12 / 1e9;
constexpr double kLaunch = 2000;      // nanoseconds
constexpr double kBlockNoise = 0.05;  // no operator costs exactly what its formula says
constexpr std::int64_t kElement = 4;  // bytes: all is f32

Shape contiguous(const Shape& shape) {
  Shape strides(shape.size());
  Expr stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride = stride * shape[d];
  }
  return strides;
}

Expr bytes_of(const Shape& shape) {
  Expr bytes = kElement;
  for (const Expr& size : shape) bytes = bytes * size;
  return bytes;
}

// In [-1, 1].
double swing(Rng& rng) { return 2 * rng.uniform() - 1; }

}  // namespace

ModelBuilder::ModelBuilder(std::string name, std::uint64_t seed, double noise,
                           std::int64_t example_batch)
    : seed_(seed), noise_(noise), rng_(seed * 0x9e3779b9U + 29) {
  data_.name = std::move(name);
  data_.example_batch = example_batch;
  data_.scopes.push_back({});
}

void ModelBuilder::enter(const std::string& path, std::string_view class_name) {
  scope_ = ScopeId{data_.scopes.size()};
  data_.scopes.push_back({path, std::string(class_name)});
}

void ModelBuilder::begin_block(std::uint64_t kind) {
  block_kind_ = kind;
  place_ = 0;
}

std::int64_t ModelBuilder::elements(const Shape& shape) const {
  std::int64_t count = 1;
  for (const Expr& size : shape) count *= size.eval(data_.example_batch);
  return count;
}

std::int64_t ModelBuilder::elements(ValueId id) const { return elements(shape(id)); }

ValueId ModelBuilder::add_value(std::string name, const Shape& shape) {
  Value value;
  value.name = std::move(name);
  value.shape = shape;
  value.strides = contiguous(shape);
  value.storage = StorageId{data_.storages.size()};
  data_.storages.push_back({bytes_of(shape)});
  data_.values.push_back(std::move(value));
  return ValueId{data_.values.size() - 1};
}

ValueId ModelBuilder::input(std::string_view name, const Shape& shape) {
  const ValueId id = add_value(std::string(name), shape);
  data_.inputs.push_back({id, fmt::format("args.{}", data_.inputs.size())});
  return id;
}

ValueId ModelBuilder::add_weight_value(std::string_view name, Value value) {
  const std::string& path = data_.scopes[scope_.index()].path;
  std::string full = path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
  value.name = full;
  data_.values.push_back(std::move(value));
  const ValueId id{data_.values.size() - 1};
  data_.weights.push_back({id, WeightKind::parameter, {std::move(full)}, {}});
  return id;
}

ValueId ModelBuilder::weight(std::string_view name, const Shape& shape) {
  Value value;
  value.shape = shape;
  value.strides = contiguous(shape);
  value.storage = StorageId{data_.storages.size()};
  data_.storages.push_back({bytes_of(shape)});
  return add_weight_value(name, std::move(value));
}

void ModelBuilder::begin_flat_weight(std::int64_t elements) {
  flat_ = StorageId{data_.storages.size()};
  flat_used_ = 0;
  data_.storages.push_back({Expr(elements * kElement)});
}

ValueId ModelBuilder::flat_weight(std::string_view name, const Shape& shape) {
  Value value;
  value.shape = shape;
  value.strides = contiguous(shape);
  value.storage = flat_;
  value.offset = Expr(flat_used_ * kElement);
  flat_used_ += elements(shape);
  return add_weight_value(name, std::move(value));
}

// "aten.linear.default" becomes linear_12.
std::string ModelBuilder::next_name(std::string_view op) {
  const std::size_t start = op.find('.') + 1;
  const std::string_view base = op.substr(start, op.find('.', start) - start);
  return fmt::format("{}_{}", base, named_[base]++);
}

double ModelBuilder::block_factor() {
  Rng here(seed_ * 1000003 + block_kind_ * 65537 + place_);
  ++place_;
  return (1 + kBlockNoise * swing(here)) * (1 + noise_ * swing(rng_));
}

ValueId ModelBuilder::add_node(std::string_view op, const Inputs& inputs, ValueId output,
                               double flops, Nanoseconds time) {
  Node node;
  node.name = data_.values[output.index()].name;
  node.op = std::string(op);
  node.args.reserve(inputs.size());
  for (const ValueId id : inputs) node.args.push_back({"", {id}});
  node.outputs = {output};
  node.scope = scope_;
  data_.nodes.push_back(std::move(node));
  times_.push_back(time.count);
  flops_.push_back(flops);
  return output;
}

ValueId ModelBuilder::add(std::string_view op, const Inputs& inputs, const Shape& shape,
                          double flops) {
  double moved = static_cast<double>(elements(shape) * kElement);
  for (const ValueId id : inputs) moved += static_cast<double>(elements(id) * kElement);
  const double time = kLaunch + std::max(flops / kFlopsPerNanosecond, moved / kBytesPerNanosecond);
  const ValueId output = add_value(next_name(op), shape);
  return add_node(op, inputs, output, flops, Nanoseconds{time * block_factor()});
}

ValueId ModelBuilder::add_timed(std::string_view op, const Inputs& inputs, const Shape& shape,
                                Nanoseconds time) {
  const ValueId output = add_value(next_name(op), shape);
  const double factor = 1 + noise_ * swing(rng_);
  return add_node(op, inputs, output, 0, Nanoseconds{time.count * factor});
}

ValueId ModelBuilder::another_result() {
  Node& node = data_.nodes.back();
  const Shape shape = data_.values[node.outputs.front().index()].shape;
  const ValueId output = add_value(fmt::format("{}.{}", node.name, node.outputs.size()), shape);
  node.outputs.push_back(output);
  return output;
}

ValueId ModelBuilder::view(std::string_view op, ValueId of, const Shape& shape) {
  Value value;
  value.name = next_name(op);
  value.shape = shape;
  value.strides = contiguous(shape);
  value.storage = data_.values[of.index()].storage;
  data_.values.push_back(std::move(value));
  ++place_;
  return add_node(op, {of}, ValueId{data_.values.size() - 1}, 0, Nanoseconds{0});
}

ValueId ModelBuilder::linear(std::string_view name, ValueId x, std::int64_t in, std::int64_t out) {
  Shape result = shape(x);
  result.back() = out;
  const double flops = 2.0 * static_cast<double>(elements(x)) * static_cast<double>(out);
  const ValueId matrix = weight(fmt::format("{}.weight", name), {out, in});
  return add("aten.linear.default", {x, matrix}, result, flops);
}

ValueId ModelBuilder::elementwise(std::string_view op, const Inputs& inputs) {
  const Shape result = shape(inputs[0]);
  return add(op, inputs, result, static_cast<double>(elements(result)));
}

Model ModelBuilder::finish(const Inputs& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    data_.outputs.push_back({{outputs[i]}, fmt::format("{}", i)});
  }
  const std::int64_t batch = data_.example_batch;
  Model model{Graph::freeze(std::move(data_)), {}};
  model.profile.graph_hash = model.graph.hash();
  model.profile.device_kind = "cuda";
  model.profile.batch = batch;
  model.profile.source = Source::given;
  model.profile.nodes.reserve(times_.size());
  for (std::size_t n = 0; n < times_.size(); ++n) {
    NodeCost cost = node_sizes(model.graph, NodeId{n}, batch);
    cost.forward = Nanoseconds{times_[n]};
    cost.flops = flops_[n];
    cost.moved = cost.inputs + cost.weights + cost.outputs;
    cost.source = Source::given;
    model.profile.nodes.push_back(cost);
  }
  return model;
}

}  // namespace kerf::families
