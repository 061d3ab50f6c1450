// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// time(node) = launch + max(flops / rate, bytes moved / bandwidth): the roofline of Williams,
// Waterman and Patterson (2009) with a constant for starting an operator. Linear time; an estimate.
#include "kerf/profile/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kerf/graph/train_mode.h"
#include "kerf/profile/formula/op_cost.h"
#include "kerf/profile/formula/table.h"
#include "kerf/profile/saved/saved.h"

namespace kerf {
namespace {

// Vector work never comes near the peak of the matrix or fused multiply-add units: adds, compares
// and polynomials in turn, with loads between.
constexpr double kVectorEfficiency = 0.25;

DType compute_dtype(const Graph& graph, const Node& node, NodeId id) {
  for (const ValueId value : graph.inputs_of(id)) {
    if (!graph.value(value).scalar && is_floating(graph.value(value).dtype)) {
      return graph.value(value).dtype;
    }
  }
  for (const ValueId value : node.outputs) {
    if (value.valid()) return graph.value(value).dtype;
  }
  return DType::f32;
}

double peak_rate(const DeviceKind& kind, DType dtype, Unit unit) {
  if (unit == Unit::vector) return (dtype == DType::f64 ? kind.flops_f64 : kind.flops_f32);
  if (dtype == DType::f64 || dtype == DType::c128) return kind.flops_f64;
  if (dtype == DType::f16 || dtype == DType::bf16) return kind.flops_f16;
  if (element_size(dtype) == 1) return kind.flops_f8;
  return kind.flops_f32;
}

Nanoseconds roofline(const DeviceKind& kind, const OpCost& cost, DType dtype) {
  if (cost.unit == Unit::none) return {};
  const double efficiency = cost.unit == Unit::matrix ? kind.matrix_efficiency : kVectorEfficiency;
  const double compute = cost.flops / (peak_rate(kind, dtype, cost.unit) * efficiency);
  const double memory = static_cast<double>(cost.moved.count) / kind.memory_bytes_per_second;
  return kind.launch + Nanoseconds{std::max(compute, memory) * 1e9};
}

// Operators without a formula; `share` holds nanoseconds until the total is known.
class UnknownOps {
 public:
  void add(const std::string& op, Nanoseconds time) {
    UnknownOp& entry = ops_[op];
    entry.op = op;
    ++entry.count;
    entry.share += time.count;
  }
  std::vector<UnknownOp> list(Nanoseconds total) const;

 private:
  std::map<std::string, UnknownOp> ops_;
};

std::vector<UnknownOp> UnknownOps::list(Nanoseconds total) const {
  std::vector<UnknownOp> list;
  for (const auto& [name, op] : ops_) {
    list.push_back(op);
    list.back().share = total.count > 0 ? op.share / total.count : 0;
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const UnknownOp& a, const UnknownOp& b) { return a.share > b.share; });
  return list;
}

void set_backward(NodeCost& cost, const BackwardCost& backward, const DeviceKind& kind,
                  DType dtype) {
  for (const GradientCost& kernel : backward.kernels) {
    const Nanoseconds time = roofline(kind, kernel.cost, dtype);
    cost.backward += time;
    if (kernel.of_weights) cost.backward_weights += time;
    cost.backward_flops += kernel.cost.flops;
    cost.backward_macs += kernel.cost.macs;
  }
}

void set_saved(Profile& profile, const Graph& graph, const DeviceKind& kind) {
  const SavedSets sets = find_saved(graph, profile.batch, !kind.host);
  const std::vector<Bytes> saved = saved_alone(graph, sets, profile.batch);
  for (std::size_t n = 0; n < saved.size(); ++n) profile.nodes[n].saved = saved[n];
  for (const std::string& op : sets.ops_without_rule) {
    profile.notes.push_back(fmt::format(
        "what {} keeps for its backward is not known exactly: an estimate is counted", op));
  }
}

}  // namespace

Profile estimate(const Graph& graph, const DeviceKind& kind, std::int64_t batch, bool training) {
  if (training) check_train_mode(graph, "profile.estimate");
  return estimate_as_traced(graph, kind, batch, training);
}

Profile estimate_as_traced(const Graph& graph, const DeviceKind& kind, std::int64_t batch,
                           bool training) {
  if (graph.is_static()) batch = 0;
  if (!graph.is_static() && batch <= 0) batch = graph.data().example_batch;
  Profile profile;
  profile.graph_hash = graph.hash();
  profile.device_kind = kind.name;
  profile.batch = batch;
  profile.training = training;
  profile.source = Source::estimated;
  profile.nodes.reserve(graph.num_nodes());
  const Setting setting{batch, kind.host};
  const Gradients gradients(graph);
  UnknownOps unknown;
  for (std::size_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    const Node& node = graph.node(id);
    const DType dtype = compute_dtype(graph, node, id);
    NodeCost cost = node_sizes(graph, id, batch);
    const std::optional<OpCost> known = op_cost(graph, id, setting);
    const OpCost op = known ? *known : OpCost{Unit::vector, 0, 0, bytes_touched(graph, id, batch)};
    cost.flops = op.flops;
    cost.macs = op.macs;
    cost.moved = op.moved;
    cost.forward = roofline(kind, op, dtype);
    if (training) {
      set_backward(cost, backward_cost(graph, id, setting, known, gradients), kind, dtype);
    }
    cost.source = Source::estimated;
    if (!known) unknown.add(node.op, cost.forward + cost.backward);
    profile.nodes.push_back(cost);
  }
  if (training) set_saved(profile, graph, kind);
  profile.unknown_ops = unknown.list(profile.total_forward() + profile.total_backward());
  return profile;
}

bool has_formula(std::string_view op) { return formula::table().find(op) != nullptr; }

std::string profiled_kind(const Cluster& cluster) {
  for (const Device& device : cluster.devices) {
    if (!device.host) return device.kind;
  }
  if (cluster.devices.empty()) {
    throw Error(ErrorKind::invalid_argument,
                "[profile.profiled_kind] a cluster without devices; expected at least one");
  }
  return cluster.devices.front().kind;
}

}  // namespace kerf
