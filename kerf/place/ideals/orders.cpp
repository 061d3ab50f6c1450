// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/ideals/orders.h"

#include <algorithm>
#include <queue>

#include "kerf/base/stop_clock.h"

namespace kerf::place::ideals {
namespace {

constexpr std::size_t kLook = 64;  // ready groups that a choice compares

// The groups whose predecessors are placed. Those of the least stage left come first; no group can
// become ready in a stage before it.
class Front {
 public:
  Front(const Groups& groups, const Stages& stages) : groups_(groups), stages_(stages) {
    ready_.resize(stages.empty() ? 1 : *std::ranges::max_element(stages) + std::size_t{1});
    missing_.reserve(groups.num_tasks());
    for (std::uint32_t g = 0; g < groups.num_tasks(); ++g) {
      missing_.push_back(static_cast<std::uint32_t>(groups.predecessors[g].size()));
      if (missing_[g] == 0) ready_[stage(g)].push_back(g);
    }
  }
  // In the order in which they became ready; empty when all are placed.
  const Order& ready() {
    while (ready_[least_].empty() && least_ + 1 < ready_.size()) ++least_;
    return ready_[least_];
  }
  // ready()[at] is placed.
  std::uint32_t take(std::size_t at) {
    Order& ready = ready_[least_];
    const std::uint32_t group = ready[at];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(at));
    for (const std::uint32_t next : groups_.successors[group]) {
      if (--missing_[next] == 0) ready_[stage(next)].push_back(next);
    }
    return group;
  }

 private:
  std::size_t stage(std::uint32_t g) const { return stages_.empty() ? 0 : stages_[g]; }

  const Groups& groups_;
  const Stages& stages_;
  std::vector<Order> ready_;  // by stage
  std::vector<std::uint32_t> missing_;
  std::size_t least_ = 0;
};

// Calls choose(ready) for the index of the next group.
template <class Choose>
Order take(const Groups& groups, const Stages& stages, Choose&& choose) {
  Front front(groups, stages);
  Order out;
  out.reserve(groups.num_tasks());
  while (!front.ready().empty()) out.push_back(front.take(choose(front.ready())));
  return out;
}

// Next is the group after which the nets that cross from before to after cost least.
class LeastCrossing {
 public:
  LeastCrossing(const Groups& groups, Clock& clock)
      : groups_(groups), clock_(clock), placed_(groups.num_nets(), 0) {}
  std::size_t operator()(const Order& ready) {
    // The latest, where there are many: those carry on what was begun.
    std::size_t best = ready.size() - 1;
    double least = kInfinity;
    if (clock_.is_late_after(0)) return best;
    const std::size_t first = ready.size() > kLook ? ready.size() - kLook : 0;
    for (std::size_t i = first; i < ready.size(); ++i) {
      const double change = crossing_change(ready[i]);
      clock_.is_late_after(1 + groups_.nets[ready[i]].size());
      if (change >= least) continue;
      least = change;
      best = i;
    }
    for (const std::uint32_t net : groups_.nets[ready[best]]) ++placed_[net];
    return best;
  }

 private:
  double crossing_change(std::uint32_t group) const {
    double change = 0;
    for (const std::uint32_t net : groups_.nets[group]) {
      if (placed_[net] == 0) change += groups_.cost[net];
      if (placed_[net] + 1 == groups_.pins[net].size()) change -= groups_.cost[net];
    }
    return change;
  }

  const Groups& groups_;
  Clock& clock_;
  std::vector<std::size_t> placed_;
};

// The greatest key among the ready groups next, stage by stage.
template <class Key>
Order take_greatest(const Groups& groups, const Stages& stages, Key&& key) {
  std::vector<std::size_t> missing(groups.num_tasks());
  using Entry = std::pair<std::int64_t, std::uint32_t>;
  // The least stage first, then the greatest key.
  const auto stage = [&](std::uint32_t g) { return stages.empty() ? 0 : stages[g]; };
  const auto is_after = [&](const Entry& a, const Entry& b) {
    const std::uint32_t left = stage(a.second);
    const std::uint32_t right = stage(b.second);
    return left != right ? left > right : a.first < b.first;
  };
  std::priority_queue<Entry, std::vector<Entry>, decltype(is_after)> ready(is_after);
  for (std::uint32_t g = 0; g < groups.num_tasks(); ++g) {
    missing[g] = groups.predecessors[g].size();
    if (missing[g] == 0) ready.emplace(key(g), g);
  }
  Order out;
  out.reserve(groups.num_tasks());
  while (!ready.empty()) {
    const std::uint32_t g = ready.top().second;
    ready.pop();
    out.push_back(g);
    for (const std::uint32_t next : groups.successors[g]) {
      if (--missing[next] == 0) ready.emplace(key(next), next);
    }
  }
  return out;
}

}  // namespace

Order make_order(const Groups& groups, const Stages& stages, int kind, Rng& rng, Clock& clock) {
  constexpr std::int64_t kStepsPerGroup = 25;
  count_steps(kStepsPerGroup * static_cast<std::int64_t>(groups.num_tasks()));
  switch (kind) {
    case 0: return take(groups, stages, [](const Order& ready) { return ready.size() - 1; });
    case 1: return take(groups, stages, LeastCrossing(groups, clock));
    case 2: return take_greatest(groups, stages, [](std::uint32_t g) { return -std::int64_t{g}; });
    case 3: return take_greatest(groups, stages, [](std::uint32_t g) { return std::int64_t{g}; });
    default:
      return take(groups, stages, [&](const Order& ready) {
        // Mostly depth first: branches that are taken whole are what good cuts look like.
        if (rng.below(4) > 0) return ready.size() - 1;
        const std::size_t look = std::min(ready.size(), kLook);
        return ready.size() - look + static_cast<std::size_t>(rng.below(look));
      });
  }
}

Stages stages_of(const Chain& chain) {
  Stages out(chain.order.size());
  std::uint32_t at = 0;
  for (std::uint32_t stage = 0; stage < chain.ends.size(); ++stage) {
    for (; at < chain.ends[stage]; ++at) out[chain.order[at]] = stage;
  }
  return out;
}

}  // namespace kerf::place::ideals
