// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/acyclic/acyclic_split.h"

#include <algorithm>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/acyclic/acyclic.h"
#include "kerf/place/order/condense.h"

namespace kerf::place {
namespace {

// How much slower the CPU is on the whole.
double cpu_slowness(const Instance& units) {
  double accelerator = 0;
  double cpu = 0;
  for (UnitId u{0}; u < units.num_units(); ++u) {
    const Unit unit = units.unit(u);
    if (!unit.on_accelerator || !unit.on_cpu) continue;
    accelerator += unit.accelerator_time;
    cpu += unit.cpu_time;
  }
  return accelerator > 0 && cpu > 0 ? cpu / accelerator : 1;
}

using DeviceOrder = std::vector<SlotId>;

std::vector<DeviceOrder> device_orders(const Instance& units) {
  DeviceOrder given = count_up<SlotId>(units.cpu);
  std::vector<DeviceOrder> orders{given};
  std::stable_sort(given.begin(), given.end(),
                   [&](SlotId a, SlotId b) { return units.slowness[a] < units.slowness[b]; });
  if (given != orders.front()) orders.push_back(given);
  if (!units.has_cpu()) return orders;
  const std::size_t count = orders.size();
  // Parts do not know who may not be on the CPU: without it, nobody is.
  const bool picky = std::ranges::find(units.on_cpu, 0) != units.on_cpu.end();
  if (picky && units.cpu > 0) {
    const std::vector<DeviceOrder> without = orders;
    orders.insert(orders.end(), without.begin(), without.end());
  }
  for (std::size_t i = 0; i < count; ++i) {
    DeviceOrder cpu_first = orders[i];
    cpu_first.insert(cpu_first.begin(), units.cpu);
    orders[i].push_back(units.cpu);
    orders.push_back(std::move(cpu_first));
  }
  return orders;
}

}  // namespace

LoadAnswer acyclic_split(const Instance& units, const LoadOptions& options, bool multilevel) {
  const StopClock clock(options.safety_stop());
  const Condensed groups = condense(units);
  const std::vector<DeviceOrder> orders = device_orders(units);
  LoadAnswer out;
  out.objective = kInfinity;
  double best = out.objective;
  for (const DeviceOrder& order : orders) {
    AcyclicOptions its;
    for (const SlotId device : order) {
      const double slowness = device == units.cpu ? cpu_slowness(units) : units.slowness[device];
      its.parts.push_back({slowness, units.memory[device]});
    }
    its.minimise = options.method.balance.minimise;
    its.imbalance = options.method.balance.imbalance;
    its.multilevel = multilevel;
    its.seconds = options.time_budget / static_cast<double>(orders.size());
    its.clock = clock.left();
    its.seed = options.seed;
    its.threads = options.threads;
    const AcyclicAnswer answer = acyclic_partition(groups, its);
    out.truncated = out.truncated || answer.truncated;
    if (answer.part.empty()) continue;
    Split device(units.num_units());
    for (std::size_t u = 0; u < device.size(); ++u) {
      const SlotId wanted = order[answer.part[groups.group_of[u]]];
      device[u] = units.on_accelerator[u] != 0 ? wanted : units.cpu;
    }
    const Loads loads = find_loads(units, device);
    const double value = its.minimise == Minimise::edge_cut ? answer.cut : loads.busiest;
    if (!loads.fits || value >= best) continue;
    best = value;
    out.objective = loads.busiest;
    out.device = std::move(device);
  }
  return out;
}

}  // namespace kerf::place
