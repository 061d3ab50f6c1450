// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// time(node) = launch + max(flops / rate, bytes moved / bandwidth): the roofline of Williams,
// Waterman and Patterson (2009) with a constant for starting an operator. Linear time; an estimate.
#include "kerf/profile/estimate.h"

#include <algorithm>
#include <map>

#include "kerf/profile/formula.h"

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

std::vector<UnknownOp> list_unknown(const std::map<std::string, UnknownOp>& unknown,
                                    Nanoseconds total) {
  std::vector<UnknownOp> list;
  for (const auto& [name, op] : unknown) {
    list.push_back(op);
    list.back().share = total.count > 0 ? op.share / total.count : 0;
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const UnknownOp& a, const UnknownOp& b) { return a.share > b.share; });
  return list;
}

}  // namespace

Profile estimate(const Graph& graph, const DeviceKind& kind, std::int64_t batch) {
  if (graph.is_static()) batch = 0;
  if (!graph.is_static() && batch <= 0) batch = graph.data().example_batch;
  Profile profile;
  profile.graph_hash = graph.hash();
  profile.device_kind = kind.name;
  profile.batch = batch;
  profile.source = Source::estimated;
  std::map<std::string, UnknownOp> unknown;  // share holds nanoseconds until the total is known
  for (std::size_t i = 0; i < graph.num_nodes(); ++i) {
    const NodeId id{i};
    const Node& node = graph.node(id);
    NodeCost cost = node_sizes(graph, id, batch);
    std::optional<OpCost> known = op_cost(graph, id, batch);
    const OpCost op = known ? *known : OpCost{Unit::vector, 0, 0, bytes_touched(graph, id, batch)};
    cost.flops = op.flops;
    cost.macs = op.macs;
    cost.moved = op.moved;
    cost.forward = roofline(kind, op, compute_dtype(graph, node, id));
    cost.source = Source::estimated;
    if (!known) {
      UnknownOp& entry = unknown[node.op];
      entry.op = node.op;
      ++entry.count;
      entry.share += cost.forward.count;
    }
    profile.nodes.push_back(cost);
  }
  profile.unknown_ops = list_unknown(unknown, profile.total_forward());
  return profile;
}

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
