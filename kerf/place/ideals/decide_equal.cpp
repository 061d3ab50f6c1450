// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// For each ideal the fewest accelerators that hold it with every load below T, with and without the
// CPU; level by level, depth first over the stages that may follow an ideal. Three things keep the
// number of stages far below the number of pairs of ideals:
//   1. A stage stops growing when its compute and the nets it pays for in any case reach T.
//   2. An ideal counts only if the devices left can take what is left; and so a stage stops growing
//      when it pays so much for nets that too little compute can join it.
//   3. An ideal is not expanded when a larger one, reached as cheaply, is as good a start. Let J
//      follow I in a plan, and take x from the stage J \ I because I + x is held already. The stage
//      loses x's compute and the nets that only x shares with I; it gains at most the nets of x
//      that lie outside I, now cut (link: those that x makes and others outside I read). Where
//      these cost no more, I + x is as good a start as I, for every J, and so along chains of such
//      steps.
#include "kerf/place/ideals/decide_equal.h"

#include <algorithm>

namespace kerf::place::ideals {
namespace {

constexpr std::uint16_t kNever = 65535;
constexpr std::uint32_t kByCpu = 1U << 31;  // in Reached::from

}  // namespace

EqualDecision::EqualDecision(const Groups& groups, const Lattice& lattice, StepClock& clock)
    : Decision(groups, lattice, clock) {
  if (groups.has_cpu()) cpu_ = static_cast<std::uint32_t>(groups.classes.size() - 1);
  if (!groups.classes.empty() && !groups.classes.front().is_cpu) {
    num_accelerators_ = groups.classes.front().count();
  }
}

void EqualDecision::reset() {
  for (Reached& reached : reached_) {
    reached.accelerators.assign(lattice_.size(), kNever);
    reached.from.assign(lattice_.size(), 0);
    reached.load.assign(lattice_.size(), kInfinity);
  }
}

bool EqualDecision::is_at(Kind kind, std::uint32_t ideal, int level) const {
  return reached_[kind].accelerators[ideal] <= level;
}

bool EqualDecision::is_open(Kind kind, std::uint32_t ideal, int level) const {
  if (reached_[kind].accelerators[ideal] != level || covered_[kind][ideal]) return false;
  return kind == kFresh || !is_at(kFresh, ideal, level);
}

// Rule 3. With the CPU unused an ideal is as good a start as with the CPU used.
void EqualDecision::find_covered(int level) {
  for (auto& covered : covered_) covered.assign(lattice_.size(), false);
  for (std::uint32_t ideal = lattice_.size(); ideal-- > 0;) {
    std::size_t at = lattice_.first_link(ideal);
    for (const Link& link : lattice_.links(ideal)) {
      if (!figures_.is_better_start[at++]) continue;
      const bool fresh = is_at(kFresh, link.to, level) || covered_[kFresh][link.to];
      if (fresh) covered_[kFresh][ideal] = true;
      if (fresh || is_at(kCpuUsed, link.to, level) || covered_[kCpuUsed][link.to]) {
        covered_[kCpuUsed][ideal] = true;
      }
    }
  }
}

void EqualDecision::expand_level(int level) {
  find_covered(level);
  if (groups_.has_cpu()) {
    for (std::uint32_t i = 0; i < lattice_.size() && !growth_.stopped; ++i) {
      if (is_open(kFresh, i, level)) grow_on_cpu(i, level);
    }
    find_covered(level);
  }
  if (level == num_accelerators_) return;
  for (std::uint32_t i = 0; i < lattice_.size() && !growth_.stopped; ++i) {
    if (is_open(kFresh, i, level)) grow_on_accelerator(kFresh, i, level);
    if (is_open(kCpuUsed, i, level)) grow_on_accelerator(kCpuUsed, i, level);
  }
}

void EqualDecision::grow_on_accelerator(Kind kind, std::uint32_t start, int level) {
  const double load_before = reached_[kind].load[start];
  const double time = capacity_.total() - figures_.accelerator_time[start];
  const double max_shared = capacity_.max_shared(0, time, left_for(kind, level));
  growth_.run(start, groups_.classes[0], capacity_.limit(), max_shared,
              [&](std::uint32_t ideal, double load) {
                reach(kind, ideal, level + 1, start, std::max(load_before, load));
              });
}

void EqualDecision::grow_on_cpu(std::uint32_t start, int level) {
  const double load_before = reached_[kFresh].load[start];
  growth_.run(start, groups_.classes[cpu_], capacity_.limit(), kInfinity,
              [&](std::uint32_t ideal, double load) {
                reach(kCpuUsed, ideal, level, start | kByCpu, std::max(load_before, load));
              });
}

// Compute that fits on the devices left.
double EqualDecision::left_for(Kind kind, int accelerators) const {
  const int left = num_accelerators_ - accelerators;
  return (left > 0 ? left * capacity_.of(0) : 0) + (kind == kFresh ? capacity_.of(cpu_) : 0);
}

void EqualDecision::reach(Kind kind, std::uint32_t ideal, int accelerators, std::uint32_t from,
                          double load) {
  Reached& reached = reached_[kind];
  const auto count = static_cast<std::uint16_t>(accelerators);
  if (reached.accelerators[ideal] < count) return;
  if (reached.accelerators[ideal] == count && reached.load[ideal] <= load) return;
  const double time = capacity_.total() - figures_.accelerator_time[ideal];
  const double left = left_for(kind, accelerators);
  if (!capacity_.can_hold(time, figures_.crossing[ideal], left, kind == kFresh)) return;
  reached.accelerators[ideal] = count;
  reached.from[ideal] = from;
  reached.load[ideal] = load;
}

double EqualDecision::search(std::vector<Step>& steps) {
  reset();
  const Kind first = groups_.has_cpu() ? kFresh : kCpuUsed;
  reach(first, 0, 0, 0, 0);
  for (int level = 0; level <= num_accelerators_ && !growth_.stopped; ++level) expand_level(level);
  return read_back(steps);
}

double EqualDecision::read_back(std::vector<Step>& steps) const {
  const std::uint32_t full = lattice_.size() - 1;
  Kind kind = reached_[kFresh].load[full] <= reached_[kCpuUsed].load[full] ? kFresh : kCpuUsed;
  const double load = reached_[kind].load[full];
  if (load == kInfinity) return load;
  std::uint32_t at = full;
  while (at != 0) {
    const std::uint32_t from = reached_[kind].from[at];
    const bool by_cpu = (from & kByCpu) != 0;
    if (by_cpu) kind = kFresh;
    steps.push_back({from & ~kByCpu, at, by_cpu ? cpu_ : 0});
    at = from & ~kByCpu;
  }
  return load;
}

}  // namespace kerf::place::ideals
