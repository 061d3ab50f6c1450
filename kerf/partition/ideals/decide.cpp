// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// For each ideal the fewest accelerators that hold it with every load below T, with and without the
// CPU; level by level, depth first over the stages that may follow an ideal. Three things keep the
// number of stages far below the number of pairs of ideals:
//   1. A stage stops growing when its compute and the nets it shares with earlier stages reach T.
//   2. An ideal counts only if the devices left can take what is left; and so a stage stops growing
//      when it pays so much for nets that too little compute can join it.
//   3. An ideal is not expanded when a larger one, reached as cheaply, is as good a start. Let J
//      follow I in a plan, and take x from the stage J \ I because I + x is held already. The stage
//      loses x's compute and the nets that only x shares with I; it gains at most the nets of x
//      that lie outside I, now cut. Where these cost no more, I + x is as good a start as I, for
//      every J, and so along chains of such steps.
#include "kerf/partition/ideals/decide.h"

#include <algorithm>
#include <numeric>

namespace kerf::partition::ideals {
namespace {

constexpr std::uint16_t kNever = 65535;
constexpr std::uint32_t kByCpu = 1U << 31;  // in Reached::from

}  // namespace

IdealFigures::IdealFigures(const Groups& groups, const Lattice& lattice)
    : accelerator_time(lattice.size(), 0),
      crossing(lattice.size(), 0),
      is_better_start(lattice.num_links(), false) {
  std::vector<std::uint32_t> inside(groups.num_nets(), 0);
  Walker walker(lattice);
  const auto change = [&](std::uint32_t group, std::uint32_t by) {
    for (const std::uint32_t net : groups.nets[group]) inside[net] += by;
  };
  for (std::uint32_t ideal = 0; ideal < lattice.size(); ++ideal) {
    walker.move_to(
        ideal, [&](std::uint32_t g) { change(g, ~0U); }, [&](std::uint32_t g) { change(g, 1); });
    std::size_t at = lattice.first_link(ideal);
    for (const Link& link : lattice.links(ideal)) {
      double opened = 0;
      double closed = 0;
      for (const std::uint32_t net : groups.nets[link.group]) {
        if (inside[net] == 0) opened += groups.cost[net];
        if (inside[net] + 1 == groups.pins[net].size()) closed += groups.cost[net];
      }
      const double time = groups.groups[link.group].accelerator_time;
      is_better_start[at++] = opened <= time + closed;
      accelerator_time[link.to] = accelerator_time[ideal] + time;
      crossing[link.to] = crossing[ideal] + opened - closed;
    }
  }
}

Decision::Decision(const Groups& groups, const Lattice& lattice, const IdealFigures& figures)
    : groups_(groups),
      lattice_(lattice),
      figures_(figures),
      nets_(groups),
      walker_(lattice),
      seen_(lattice.size(), 0),
      total_(groups.total_accelerator_time()) {
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    const double time = groups.groups[g].accelerator_time;
    double all = time;
    for (const std::uint32_t net : groups.nets[g]) all += groups.cost[net];
    gain_time_.push_back(time);
    gain_all_.push_back(all);
  }
}

// Fractional knapsack: the most gain that fits into a CPU load of `limit_`.
double Decision::cpu_share(const std::vector<double>& gain) const {
  if (!groups_.has_cpu) return 0;
  std::vector<std::uint32_t> by_rate(groups_.size());
  std::iota(by_rate.begin(), by_rate.end(), 0U);
  const auto time = [&](std::uint32_t g) { return groups_.groups[g].cpu_time; };
  const auto rate = [&](std::uint32_t g) { return time(g) > 0 ? gain[g] / time(g) : kInfinity; };
  std::sort(by_rate.begin(), by_rate.end(), [&](std::uint32_t a, std::uint32_t b) {
    return rate(a) != rate(b) ? rate(a) > rate(b) : a < b;
  });
  double room = limit_;
  double total = 0;
  for (const std::uint32_t g : by_rate) {
    if (time(g) > room) return total + gain[g] * (room / time(g));
    room -= time(g);
    total += gain[g];
  }
  return total;
}

void Decision::reset(double limit) {
  limit_ = limit;
  cpu_time_share_ = cpu_share(gain_time_);
  cpu_all_share_ = cpu_share(gain_all_);
  for (Reached& reached : reached_) {
    reached.accelerators.assign(lattice_.size(), kNever);
    reached.from.assign(lattice_.size(), 0);
    reached.load.assign(lattice_.size(), kInfinity);
  }
}

bool Decision::is_at(Kind kind, std::uint32_t ideal, int level) const {
  return reached_[kind].accelerators[ideal] <= level;
}

bool Decision::is_open(Kind kind, std::uint32_t ideal, int level) const {
  if (reached_[kind].accelerators[ideal] != level || covered_[kind][ideal]) return false;
  return kind == kFresh || !is_at(kFresh, ideal, level);
}

// Rule 3. With the CPU unused an ideal is as good a start as with the CPU used.
void Decision::find_covered(int level) {
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

void Decision::expand_level(int level) {
  find_covered(level);
  if (groups_.has_cpu) {
    for (std::uint32_t i = 0; i < lattice_.size() && !stopped; ++i) {
      if (is_open(kFresh, i, level)) grow_on_cpu(i, level);
    }
    find_covered(level);
  }
  if (level == groups_.num_accelerators) return;
  for (std::uint32_t i = 0; i < lattice_.size() && !stopped; ++i) {
    if (is_open(kFresh, i, level)) grow_on_accelerator(kFresh, i, level);
    if (is_open(kCpuUsed, i, level)) grow_on_accelerator(kCpuUsed, i, level);
  }
}

void Decision::enter(std::uint32_t ideal) {
  seen_[ideal] = expansion_;
  ++work;
  if (work % 4096 == 0 && (*stop_)()) stopped = true;
}

void Decision::grow_on_accelerator(Kind kind, std::uint32_t start, int level) {
  walker_.move_to(
      start, [&](std::uint32_t g) { nets_.remove_before(g); },
      [&](std::uint32_t g) { nets_.add_before(g); });
  ++expansion_;
  const double load_before = reached_[kind].load[start];
  const double max_shared = left_for(kind, level) - (total_ - figures_.accelerator_time[start]);
  stack_.push_back({start, 0, {}});
  while (!stack_.empty()) {
    Frame& top = stack_.back();
    const auto links = lattice_.links(top.ideal);
    if (top.next_link == links.size()) {
      if (stack_.size() > 1) {
        const Frame& below = stack_[stack_.size() - 2];
        nets_.remove(lattice_.links(below.ideal)[below.next_link - 1].group);
      }
      stack_.pop_back();
      continue;
    }
    const Link link = links[top.next_link++];
    if (seen_[link.to] == expansion_ || stopped) continue;
    enter(link.to);
    if (!groups_.groups[link.group].on_accelerator) continue;
    const Sums sums = nets_.add(link.group, top.sums);
    if (sums.least() >= limit_ || sums.shared > max_shared || sums.bytes > groups_.memory) {
      nets_.remove(link.group);
      continue;
    }
    if (sums.load < limit_)
      reach(kind, link.to, level + 1, start, std::max(load_before, sums.load));
    stack_.push_back({link.to, 0, sums});
  }
}

void Decision::grow_on_cpu(std::uint32_t start, int level) {
  ++expansion_;
  const double load_before = reached_[kFresh].load[start];
  stack_.push_back({start, 0, {}});
  while (!stack_.empty()) {
    Frame& top = stack_.back();
    const auto links = lattice_.links(top.ideal);
    if (top.next_link == links.size()) {
      stack_.pop_back();
      continue;
    }
    const Link link = links[top.next_link++];
    if (seen_[link.to] == expansion_ || stopped) continue;
    enter(link.to);
    Sums sums = top.sums;
    sums.load += groups_.groups[link.group].cpu_time;
    if (sums.load >= limit_) continue;
    reach(kCpuUsed, link.to, level, start | kByCpu, std::max(load_before, sums.load));
    stack_.push_back({link.to, 0, sums});
  }
}

// Compute that fits on the devices left.
double Decision::left_for(Kind kind, int accelerators) const {
  const double room = limit_ * (groups_.num_accelerators - accelerators);
  return room + (kind == kFresh ? cpu_time_share_ : 0) + 1e-9 * total_;
}

// Rule 2. Every net that crosses an ideal is paid for after it too, but by the CPU.
bool Decision::can_finish(Kind kind, std::uint32_t ideal, int accelerators) const {
  const double left = left_for(kind, accelerators);
  const double time = total_ - figures_.accelerator_time[ideal];
  if (time > left) return false;
  const double crossing = figures_.crossing[ideal] * (1 - 1e-9);
  const double share = kind == kFresh ? cpu_all_share_ - cpu_time_share_ : 0;
  return time + crossing <= left + share;
}

void Decision::reach(Kind kind, std::uint32_t ideal, int accelerators, std::uint32_t from,
                     double load) {
  Reached& reached = reached_[kind];
  const auto count = static_cast<std::uint16_t>(accelerators);
  if (reached.accelerators[ideal] < count) return;
  if (reached.accelerators[ideal] == count && reached.load[ideal] <= load) return;
  if (!can_finish(kind, ideal, accelerators)) return;
  reached.accelerators[ideal] = count;
  reached.from[ideal] = from;
  reached.load[ideal] = load;
}

Chain Decision::find_below(double limit, const std::function<bool()>& stop) {
  stop_ = &stop;
  stopped = false;
  reset(limit);
  const Kind first = groups_.has_cpu ? kFresh : kCpuUsed;
  reach(first, 0, 0, 0, 0);
  for (int level = 0; level <= groups_.num_accelerators && !stopped; ++level) expand_level(level);
  return read_back();
}

void Decision::append_difference(std::uint32_t from, std::uint32_t to,
                                 std::vector<std::uint32_t>& out) const {
  std::vector<bool> inside(groups_.size(), false);
  for (std::uint32_t i = to; i != 0; i = lattice_.parent(i)) inside[lattice_.added(i)] = true;
  for (std::uint32_t i = from; i != 0; i = lattice_.parent(i)) inside[lattice_.added(i)] = false;
  // Groups are numbered along a topological order.
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    if (inside[g]) out.push_back(g);
  }
}

Chain Decision::read_back() const {
  Chain out;
  const std::uint32_t full = lattice_.size() - 1;
  Kind kind = reached_[kFresh].load[full] <= reached_[kCpuUsed].load[full] ? kFresh : kCpuUsed;
  if (reached_[kind].accelerators[full] == kNever) return out;
  out.load = reached_[kind].load[full];
  std::vector<std::uint32_t> ideals{full};
  while (ideals.back() != 0) {
    const std::uint32_t from = reached_[kind].from[ideals.back()];
    out.on_cpu.insert(out.on_cpu.begin(), (from & kByCpu) != 0);
    if ((from & kByCpu) != 0) kind = kFresh;
    ideals.push_back(from & ~kByCpu);
  }
  for (std::size_t i = ideals.size() - 1; i-- > 0;) {
    append_difference(ideals[i + 1], ideals[i], out.order);
    out.ends.push_back(static_cast<std::uint32_t>(out.order.size()));
  }
  return out;
}

}  // namespace kerf::partition::ideals
