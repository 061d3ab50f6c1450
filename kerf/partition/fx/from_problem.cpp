// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/from_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kerf/base/sort_unique.h"

namespace kerf::partition::fx {
namespace {

constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;
constexpr double kNanosecondsInASecond = 1e9;

bool is_embedding(std::string_view op) { return op.find("embedding") != std::string_view::npos; }

// One link for all: the smallest rate and the longest latency of any.
void set_link(const Cluster& cluster, double tensor_share, Request& request) {
  request.rate = std::numeric_limits<double>::infinity();
  for (std::size_t from = 0; from < cluster.num_devices(); ++from) {
    for (std::size_t to = 0; to < cluster.num_devices(); ++to) {
      const Link& link = cluster.link(DeviceId{from}, DeviceId{to});
      if (from == to) continue;
      if (link.bytes_per_second > 0) request.rate = std::min(request.rate, link.bytes_per_second);
      request.transfer_latency =
          std::max(request.transfer_latency, link.latency.count / kNanosecondsInASecond);
    }
  }
  request.rate *= tensor_share;
}

std::vector<Device> devices_of(const Cluster& cluster) {
  std::vector<Device> out;
  for (std::size_t d = 0; d < cluster.num_devices(); ++d) {
    const int group = cluster.devices[d].memory_group;
    // Devices of one memory get a fair share of it.
    const auto sharers = static_cast<std::int64_t>(cluster.group(group).size());
    const std::int64_t memory =
        cluster.group_limited(group)
            ? std::max<std::int64_t>(1, cluster.group_limit(group).count / sharers)
            : kUnlimited;
    out.push_back({cluster.devices[d].name, memory, static_cast<std::int64_t>(d)});
  }
  return out;
}

class Converter {
 public:
  Converter(const Problem& problem, double tensor_share)
      : problem_(problem), graph_(problem.graph), share_(tensor_share) {
    out_.unit_of = indivisible_units(graph_);
    out_.units = collect_units(problem, out_.unit_of);
  }

  FromProblem run(Mode mode) {
    add_inputs();
    index_.resize(out_.units.size());
    for (const std::size_t unit : topological_order(out_.units)) add_unit(unit);
    out_.request.graph = OpGraph(std::move(nodes_));
    out_.request.devices = devices_of(problem_.cluster);
    out_.request.mode = mode;
    set_link(problem_.cluster, share_, out_.request);
    out_.request.cost_model = CostModel::serial;
    out_.request.accounting = Accounting::exact;
    return std::move(out_);
  }

 private:
  std::int64_t tensor_bytes(Bytes bytes) const {
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(bytes.count) * share_));
  }

  void add_inputs() {
    leaf_.resize(graph_.num_values());
    for (const GraphInput& input : graph_.inputs()) {
      const Value& value = graph_.value(input.value);
      if (value.scalar) continue;
      OpNode leaf;
      leaf.name = value.name;
      leaf.leaf = true;
      leaf.output_size = leaf.total_size = tensor_bytes(value.bytes(problem_.micro_batch()));
      leaf_[input.value.index()] = static_cast<OpIndex>(nodes_.size());
      nodes_.push_back(std::move(leaf));
      out_.unit_of_node.push_back(FromProblem::kNoUnit);
    }
  }

  void add_unit(std::size_t number) {
    const Unit& unit = out_.units[number];
    OpNode op;
    op.name = graph_.node(unit.nodes.front()).name;
    op.mem_latency = op.computer_latency = unit.time / kNanosecondsInASecond;
    for (const std::size_t before : unit.before) op.inputs.push_back(index_[before]);
    for (const NodeId node : unit.nodes) {
      op.embedding = op.embedding || is_embedding(graph_.node(node).op);
      for (const ValueId id : graph_.inputs_of(node)) {
        const Value& value = graph_.value(id);
        if (!value.scalar && value.origin == Origin::input) op.inputs.push_back(leaf_[id.index()]);
      }
    }
    sort_unique(op.inputs);
    op.embedding_by_text = op.embedding;
    op.output_size = output_bytes(unit, number);
    op.total_size = op.output_size;
    for (const StorageId weight : unit.weights) {
      const std::int64_t bytes = graph_.storage(weight).bytes.eval(problem_.micro_batch());
      op.weights.emplace_back(static_cast<std::uint32_t>(weight.index()), bytes);
      op.total_size += bytes;
    }
    index_[number] = static_cast<OpIndex>(nodes_.size());
    nodes_.push_back(std::move(op));
    out_.unit_of_node.push_back(number);
  }

  // What other units or the caller use of it.
  std::int64_t output_bytes(const Unit& unit, std::size_t number) const {
    Bytes bytes;
    for (const NodeId node : unit.nodes) {
      for (const ValueId id : graph_.node(node).outputs) {
        if (!id.valid()) continue;  // none
        const Value& value = graph_.value(id);
        const auto consumers = graph_.consumers(id);
        const bool leaves =
            consumers.empty() || std::any_of(consumers.begin(), consumers.end(), [&](NodeId user) {
              return out_.unit_of[user.index()] != number;
            });
        if (!value.scalar && leaves) bytes += value.bytes(problem_.micro_batch());
      }
    }
    return tensor_bytes(bytes);
  }

  const Problem& problem_;
  const Graph& graph_;
  double share_;
  FromProblem out_;
  std::vector<OpNode> nodes_;
  std::vector<OpIndex> leaf_;   // by value
  std::vector<OpIndex> index_;  // by unit
};

}  // namespace

FromProblem from_problem(const Problem& problem, Mode mode, double tensor_share) {
  return Converter(problem, tensor_share).run(mode);
}

}  // namespace kerf::partition::fx
