// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory that the accelerators lack is the CPU's to give, and its time goes with it (a knapsack,
// units cut as needed). Valid for any split, however tensors are charged.
#include <algorithm>
#include <limits>

#include "kerf/base/infinity.h"
#include "kerf/place/bound/load_bounds.h"

namespace kerf::place {
namespace {

constexpr double kRounding = 1e-12;  // of sums

struct Memory {
  double largest = 0;  // of an accelerator
  double total = 0;    // of all accelerators
  double cpu = 0;
};

Memory memory_of(const Instance& problem) {
  Memory memory;
  for (SlotId d{0}; d < problem.cpu; ++d) {
    memory.largest = std::max(memory.largest, problem.memory[d]);
    memory.total += problem.memory[d];
  }
  if (problem.has_cpu()) memory.cpu = problem.memory[problem.cpu];
  return memory;
}

// What the CPU takes: time that it spends, bytes that it needs.
struct Burden {
  double time = 0;
  double bytes = 0;
  bool impossible = false;
  void add(const Unit& unit) {
    time += unit.cpu_time;
    bytes += unit.bytes;
  }
};

// Units for the CPU alone, and those that fit no accelerator.
struct Sorted {
  Burden forced;
  std::vector<Unit> free;
};

Sorted sort_units(const Instance& problem, const Memory& memory) {
  Sorted out;
  for (UnitId u{0}; u < problem.num_units(); ++u) {
    const Unit unit = problem.unit(u);
    const bool there = problem.cpu > 0 && unit.on_accelerator && unit.bytes <= memory.largest;
    if (there) {
      out.free.push_back(unit);
    } else {
      out.forced.add(unit);
      if (!problem.has_cpu() || !unit.on_cpu) out.forced.impossible = true;
    }
  }
  return out;
}

// Of units that need more than half of the largest memory each accelerator holds one.
Burden crowded(const Instance& problem, const Memory& memory, const Sorted& units) {
  std::vector<double> times;
  std::vector<double> bytes;
  for (const Unit& unit : units.free) {
    if (unit.bytes * 2 <= memory.largest * (1 + kRounding)) continue;
    times.push_back(unit.on_cpu ? unit.cpu_time : kInfinity);
    bytes.push_back(unit.bytes);
  }
  std::sort(times.begin(), times.end());
  std::sort(bytes.begin(), bytes.end());
  Burden burden = units.forced;
  const std::size_t places = problem.cpu;
  for (std::size_t i = 0; i + places < times.size(); ++i) {
    burden.time += times[i];
    burden.bytes += bytes[i];
    if (!problem.has_cpu()) burden.impossible = true;
  }
  return burden;
}

// The least CPU time that frees the bytes that all accelerators together lack.
Burden short_of(const Instance& problem, const Memory& memory, const Sorted& units) {
  Burden burden = units.forced;
  double over = -memory.total;
  std::vector<Unit> movable;
  for (const Unit& unit : units.free) {
    over += unit.bytes * (1 - kRounding);
    if (unit.bytes > 0 && unit.bytes <= memory.cpu && unit.on_cpu) movable.push_back(unit);
  }
  if (!(over > 0)) return burden;
  burden.bytes += over;
  std::sort(movable.begin(), movable.end(), [](const Unit& a, const Unit& b) {
    return a.cpu_time / a.bytes < b.cpu_time / b.bytes;
  });
  for (const Unit& unit : movable) {
    if (over <= 0) break;
    burden.time += unit.cpu_time * std::min(1.0, over / unit.bytes);
    over -= unit.bytes;
  }
  if (over > 0 || !problem.has_cpu()) burden.impossible = true;
  return burden;
}

double time_of(const Burden& burden, const Memory& memory) {
  const bool fits = burden.bytes * (1 - kRounding) <= memory.cpu;
  return burden.impossible || !fits ? kInfinity : burden.time;
}

}  // namespace

LowerBound memory_bound(const Instance& problem) {
  const Memory memory = memory_of(problem);
  const Sorted units = sort_units(problem, memory);
  const double most = std::max(time_of(crowded(problem, memory, units), memory),
                               time_of(short_of(problem, memory, units), memory));
  return {"memory", shaved(most * (1 - kRounding), problem.num_units()),
          "units that do not fit in the accelerators' memory keep the CPU busy this long"};
}

}  // namespace kerf::place
