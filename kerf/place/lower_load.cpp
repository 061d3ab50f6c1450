// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/lower_load.h"

#include <unordered_map>
#include <utility>

namespace kerf::place {
namespace {

Devices devices_of(const LoadProblem& problem) {
  Devices out;
  out.cpu = problem.cpu();
  out.num_devices = static_cast<std::uint32_t>(problem.num_devices());
  out.charging = problem.charging;
  out.slowness = problem.slowness;
  out.slowness.resize(out.cpu, 1.0);
  for (SlotId d{0}; d < out.num_devices; ++d) out.memory.push_back(problem.memory_of(d));
  return out;
}

std::vector<Unit> sum_up_classes(const LoadProblem& problem, std::vector<UnitId>& unit_of) {
  std::unordered_map<std::int64_t, UnitId> by_colour;
  std::vector<Unit> units;
  unit_of.reserve(problem.nodes.size());
  for (const LoadNode& node : problem.nodes) {
    UnitId number{units.size()};
    if (node.colour != LoadNode::kNoColour) {
      number = by_colour.try_emplace(node.colour, number).first->second;
    }
    if (number == units.size()) units.emplace_back();
    units[number].join(
        {node.accelerator_time, node.cpu_time, node.bytes, node.on_accelerator, node.on_cpu});
    unit_of.push_back(number);
  }
  return units;
}

void add_edges(const LoadProblem& problem, std::span<const UnitId> unit_of, std::size_t num_units,
               InstanceBuilder& builder) {
  std::vector<bool> has_forward(num_units, false);
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    if (!problem.nodes[n].backward) has_forward[unit_of[n]] = true;
  }
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    const UnitId from = unit_of[n];
    const bool backward = problem.nodes[n].backward;
    for (const std::uint32_t next : problem.successors[n]) {
      const UnitId to = unit_of[next];
      if (from == to || backward != problem.nodes[next].backward) continue;
      if (!backward) {
        builder.add_edge(from, to);
      } else if (!has_forward[from] || !has_forward[to]) {
        // What runs late on the way back runs early on the way there.
        builder.add_edge(to, from);
      }
    }
  }
}

void add_nets(const LoadProblem& problem, std::span<const UnitId> unit_of,
              InstanceBuilder& builder) {
  std::vector<UnitId> pins;
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    pins.clear();
    for (const std::uint32_t next : problem.successors[n]) pins.push_back(unit_of[next]);
    builder.add_net(problem.nodes[n].transfer, unit_of[n], pins);
  }
}

// Units by the first of their nodes in the problem's order.
Order order_of(const LoadProblem& problem, std::span<const UnitId> unit_of, std::size_t num_units) {
  std::vector<bool> seen(num_units, false);
  Order order;
  for (const std::uint32_t node : topological_order(problem)) {
    const UnitId unit = unit_of[node];
    if (!seen[unit]) order.push_back(unit);
    seen[unit] = true;
  }
  return order;
}

}  // namespace

std::vector<SlotId> LoweredLoad::to_nodes(std::span<const SlotId> device) const {
  std::vector<SlotId> out;
  out.reserve(unit_of.size());
  for (const UnitId unit : unit_of) out.push_back(device[unit]);
  return out;
}

LoweredLoad lower_load(const LoadProblem& problem) {
  LoweredLoad out;
  InstanceBuilder builder(devices_of(problem));
  const std::vector<Unit> units = sum_up_classes(problem, out.unit_of);
  for (const Unit& unit : units) builder.add_unit(unit);
  add_edges(problem, out.unit_of, units.size(), builder);
  add_nets(problem, out.unit_of, builder);
  builder.set_order(order_of(problem, out.unit_of, units.size()));
  out.instance = std::move(builder).build();
  RowsOf<std::uint32_t, UnitId> unit_rows;
  for (const UnitId unit : out.unit_of) unit_rows.append({&unit, 1});
  out.nodes = transpose(unit_rows, out.instance.num_units());
  return out;
}

}  // namespace kerf::place
