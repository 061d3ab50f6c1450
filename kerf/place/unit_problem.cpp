// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "kerf/place/load_problem.h"

namespace kerf {

double UnitProblem::total_accelerator_time() const {
  double total = 0;
  for (const LoadUnit& unit : units) total += unit.accelerator_time;
  return total;
}

namespace {

double slowness_of(std::span<const double> slowness, std::uint32_t device) {
  return slowness.empty() ? 1 : slowness[device];
}

template <class AnyProblem>
double find_memory(const AnyProblem& problem, std::uint32_t device) {
  if (device == problem.cpu()) return problem.cpu_memory;
  return problem.memories.empty() ? problem.memory : problem.memories[device];
}

}  // namespace

double LoadProblem::memory_of(std::uint32_t device) const { return find_memory(*this, device); }

double LoadProblem::time_on(const LoadNode& node, std::uint32_t device) const {
  return device == cpu() ? node.cpu_time : node.accelerator_time * slowness_of(slowness, device);
}

double UnitProblem::memory_of(std::uint32_t device) const { return find_memory(*this, device); }

double UnitProblem::time_on(std::uint32_t unit, std::uint32_t device) const {
  const LoadUnit& its = units[unit];
  return device == cpu() ? its.cpu_time : its.accelerator_time * slowness_of(slowness, device);
}

UnitProblem with_equal_accelerators(const UnitProblem& problem) {
  UnitProblem out = problem;
  if (!out.slowness.empty()) {
    const double least = *std::min_element(out.slowness.begin(), out.slowness.end());
    for (LoadUnit& unit : out.units) unit.accelerator_time *= least;
  }
  out.slowness.clear();
  out.memories.clear();
  return out;
}

UnitProblem to_units(const LoadProblem& problem) {
  UnitProblem out;
  out.num_accelerators = problem.num_accelerators;
  out.has_cpu = problem.num_cpus > 0;
  out.charging = problem.charging;
  out.memory = problem.memory;
  out.slowness = problem.slowness;
  out.memories = problem.memories;
  out.cpu_memory = problem.cpu_memory;
  std::map<std::int64_t, std::uint32_t> by_colour;
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    const LoadNode& node = problem.nodes[n];
    auto number = static_cast<std::uint32_t>(out.units.size());
    if (node.colour != LoadNode::kNoColour) {
      number = by_colour.try_emplace(node.colour, number).first->second;
    }
    if (number == out.units.size()) out.units.emplace_back();
    LoadUnit& unit = out.units[number];
    unit.nodes.push_back(n);
    unit.accelerator_time += node.accelerator_time;
    unit.cpu_time += node.cpu_time;
    unit.bytes += node.bytes;
    unit.on_accelerator = unit.on_accelerator && node.on_accelerator;
    unit.on_cpu = unit.on_cpu && node.on_cpu;
    out.unit_of.push_back(number);
  }
  // Who makes a tensor counts only where the maker pays otherwise than the others.
  using Net = std::pair<std::vector<std::uint32_t>, std::uint32_t>;
  const bool by_source = problem.charging == Charging::link;
  std::map<Net, std::pair<std::uint32_t, double>> nets;
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    if (problem.nodes[n].transfer <= 0) continue;
    std::vector<std::uint32_t> pins{out.unit_of[n]};
    for (const std::uint32_t next : problem.successors[n]) pins.push_back(out.unit_of[next]);
    std::sort(pins.begin(), pins.end());
    pins.erase(std::unique(pins.begin(), pins.end()), pins.end());
    if (pins.size() < 2) continue;
    const Net key{std::move(pins), by_source ? out.unit_of[n] : 0};
    auto& net = nets.try_emplace(key, out.unit_of[n], 0.0).first->second;
    net.second += problem.nodes[n].transfer;
  }
  for (auto& [key, net] : nets) {
    const std::vector<std::uint32_t>& pins = key.first;
    const auto number = static_cast<std::uint32_t>(out.nets.size());
    for (const std::uint32_t unit : pins) out.units[unit].nets.push_back(number);
    out.nets.push_back({net.second, net.first, pins});
  }
  return out;
}

std::vector<std::uint32_t> to_nodes(const UnitProblem& units,
                                    std::span<const std::uint32_t> device) {
  std::vector<std::uint32_t> out;
  for (const std::uint32_t unit : units.unit_of) out.push_back(device[unit]);
  return out;
}

}  // namespace kerf
