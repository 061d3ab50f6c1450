// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Bounds on the busiest device from compute alone (a linear program, bin packing), from memory (a
// knapsack), and from communication (minimum cuts around one or two units). All are valid for any
// split; none is claimed tight.
#include "kerf/partition/mincut/load_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kerf/partition/mincut/cut_problem.h"
#include "kerf/partition/mincut/packing.h"

namespace kerf::partition {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Sums of doubles may err upwards by some last bits; a bound may not.
constexpr double kShave = 1 - 1e-12;

std::vector<PackItem> to_items(const UnitProblem& problem) {
  std::vector<PackItem> items;
  for (const LoadUnit& unit : problem.units) {
    const bool there = unit.on_accelerator && problem.num_accelerators > 0;
    items.push_back(
        {there ? unit.accelerator_time : kNever, problem.has_cpu ? unit.cpu_time : kNever});
  }
  return items;
}

// Least CPU time that frees `bytes` of accelerator memory, units cut as needed.
double least_cpu_time(std::vector<const LoadUnit*> units, double bytes) {
  std::sort(units.begin(), units.end(), [](const LoadUnit* a, const LoadUnit* b) {
    return a->cpu_time / a->bytes < b->cpu_time / b->bytes;
  });
  double time = 0;
  for (const LoadUnit* unit : units) {
    if (bytes <= 0) break;
    time += unit->cpu_time * std::min(1.0, bytes / unit->bytes);
    bytes -= unit->bytes;
  }
  return bytes > 0 ? kNever : time;
}

// Of units that need more than half a memory each accelerator holds one; the rest, and those that
// fit none, are the CPU's.
double crowded_cpu_time(const UnitProblem& problem) {
  std::vector<double> large;
  double forced = 0;
  for (const LoadUnit& unit : problem.units) {
    if (!unit.on_accelerator || unit.bytes > problem.memory) {
      forced += unit.cpu_time;
    } else if (unit.bytes * 2 > problem.memory * (1 + 1e-12)) {
      large.push_back(unit.cpu_time);
    }
  }
  std::sort(large.begin(), large.end());
  const auto spare = static_cast<std::ptrdiff_t>(large.size()) - problem.num_accelerators;
  for (std::ptrdiff_t i = 0; i < spare; ++i) forced += large[static_cast<std::size_t>(i)];
  return problem.has_cpu || (forced == 0 && spare <= 0) ? forced : kNever;
}

double short_memory_cpu_time(const UnitProblem& problem) {
  double total = 0;
  double forced = 0;
  std::vector<const LoadUnit*> movable;
  for (const LoadUnit& unit : problem.units) {
    if (!unit.on_accelerator || unit.bytes > problem.memory) {
      forced += unit.cpu_time;
      continue;
    }
    total += unit.bytes;
    if (unit.bytes > 0) movable.push_back(&unit);
  }
  const double over = total * (1 - 1e-12) - problem.memory * problem.num_accelerators;
  if (over <= 0) return forced;
  return problem.has_cpu ? forced + least_cpu_time(std::move(movable), over) : kNever;
}

// Minimum cuts that keep some units in and some out.
class CutAsker {
 public:
  explicit CutAsker(const UnitProblem& problem)
      : problem_(problem, single_groups(problem), scale_for(reference(problem))),
        base_(load_network(problem_)) {}

  // Least load of an accelerator that holds `in` and not `out`; infinite if none can.
  double least_load(std::initializer_list<std::uint32_t> in,
                    std::initializer_list<std::uint32_t> out) {
    base_.mark();
    bool possible = problem_.num_accelerators > 0;
    for (const std::uint32_t u : in) {
      possible = possible && problem_.accelerable[u] != 0;
      base_.add_source(u, kEndless / 4);
    }
    for (const std::uint32_t u : out) base_.add_sink(u, kEndless / 4);
    if (possible) base_.augment(scratch_, kEndless / 8);
    const double load = problem_.to_time(base_.value());
    base_.undo();
    return possible ? load : kNever;
  }

 private:
  static double reference(const UnitProblem& problem) {
    double most = 0;
    for (const LoadUnit& unit : problem.units) most += unit.accelerator_time;
    for (const LoadNet& net : problem.nets) most = std::max(most, net.cost);
    return most;
  }

  CutProblem problem_;
  MaxFlow base_;
  FlowScratch scratch_;
};

double cpu_time(const UnitProblem& problem, std::uint32_t unit) {
  return problem.has_cpu ? problem.units[unit].cpu_time : kNever;
}

// Least max load of the devices of two units.
double pair_load(const UnitProblem& problem, CutAsker& ask, std::uint32_t a, std::uint32_t b) {
  const double cpu_a = cpu_time(problem, a);
  const double cpu_b = cpu_time(problem, b);
  const double together = std::min(ask.least_load({a, b}, {}), cpu_a + cpu_b);
  const double alone_a = ask.least_load({a}, {b});
  const double alone_b = ask.least_load({b}, {a});
  double apart = std::min(std::max(cpu_a, alone_b), std::max(alone_a, cpu_b));
  if (problem.num_accelerators > 1) apart = std::min(apart, std::max(alone_a, alone_b));
  return std::min(together, apart);
}

}  // namespace

LoadBound work_bound(const UnitProblem& problem) {
  return {"work", divisible_limit(to_items(problem), problem.num_accelerators) * kShave,
          "the compute of all units, spread without loss over all devices, takes this long"};
}

LoadBound unit_bound(const UnitProblem& problem) {
  double most = 0;
  for (const PackItem& item : to_items(problem)) {
    most = std::max(most, std::min(item.time, item.cpu_time));
  }
  return {"unit", most * kShave,
          "the largest unit takes this long on the device that suits it best"};
}

LoadBound packing_bound(const UnitProblem& problem, std::int64_t budget) {
  const std::vector<PackItem> items = to_items(problem);
  const int bins = problem.num_accelerators;
  double low = std::max(work_bound(problem).value, unit_bound(problem).value);
  double high = low * 2 + 1e-9;
  bool packed = false;
  // From above while packings improve: the last refusal is then exact.
  for (std::int64_t share = budget / 2; share > 0 && std::isfinite(low);) {
    const PackResult result = pack_below(items, bins, high, share);
    if (result.answer == PackAnswer::fits) {
      high = result.load;
      packed = true;
      continue;
    }
    if (result.answer == PackAnswer::refuted) low = std::max(low, high * kShave);
    if (packed || result.answer == PackAnswer::unknown) break;
    high *= 2;
  }
  // Below what the budget could settle, halve the gap with what is left.
  std::int64_t rest = budget / 2;
  while (std::isfinite(low) && rest > 0 && high - low > 1e-6 * high) {
    const double middle = (low + high) / 2;
    std::int64_t share = std::min(rest, budget / 10);
    rest -= share;
    const PackResult result = pack_below(items, bins, middle, share);
    (result.answer == PackAnswer::refuted ? low : high) = middle;
  }
  return {"packing", low * kShave,
          "no packing of whole units, communication left out, keeps every device below this"};
}

LoadBound memory_bound(const UnitProblem& problem) {
  const double most = std::max(crowded_cpu_time(problem), short_memory_cpu_time(problem));
  return {"memory", most * kShave,
          "units that accelerator memory has no room for keep the CPU busy this long"};
}

LoadBound cut_bound(const UnitProblem& problem) {
  CutAsker ask(problem);
  double most = 0;
  for (std::uint32_t u = 0; u < problem.units.size(); ++u) {
    if (cpu_time(problem, u) <= most) continue;
    most = std::max(most, std::min(ask.least_load({u}, {}), cpu_time(problem, u)));
  }
  return {"cut", most,
          "the device of some unit pays this much, whatever it holds besides (a minimum cut)"};
}

LoadBound pair_bound(const UnitProblem& problem, std::size_t candidates) {
  CutAsker ask(problem);
  std::vector<std::pair<double, std::uint32_t>> order;
  for (std::uint32_t u = 0; u < problem.units.size(); ++u) {
    order.emplace_back(-std::min(ask.least_load({u}, {}), cpu_time(problem, u)), u);
  }
  std::sort(order.begin(), order.end());
  if (order.size() > candidates) order.resize(candidates);
  double most = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      most = std::max(most, pair_load(problem, ask, order[i].second, order[j].second));
    }
  }
  return {"pair", most,
          "some two units, sharing a device or not, make one pay this much (minimum cuts)"};
}

std::vector<LoadBound> find_load_bounds(const UnitProblem& problem) {
  return {work_bound(problem),   unit_bound(problem), packing_bound(problem),
          memory_bound(problem), cut_bound(problem),  pair_bound(problem)};
}

const LoadBound& tightest(const std::vector<LoadBound>& bounds) {
  return *std::max_element(
      bounds.begin(), bounds.end(),
      [](const LoadBound& a, const LoadBound& b) { return a.value < b.value; });
}

}  // namespace kerf::partition
