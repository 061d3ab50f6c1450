// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/residence/residence_counts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kerf/base/infinity.h"

namespace kerf {
namespace {

constexpr double kWorthwhile = 1e-12;  // relative: less is rounding

bool may_be_on_host(const UnitGroup& group) {
  return !group.unit.stays && group.unit.host_time < kNotOnTheHost;
}

// What a group adds with these counts. Infinite where units would have to stream and may not.
void add_group(const UnitGroup& group, const ResidenceCounts::OfGroup& counts, double& link,
               double& computing) {
  const std::size_t streamed = group.count - counts.resident - counts.host;
  if (streamed > 0 && !group.may_stream) return void(link = kInfinity);
  link += static_cast<double>(streamed) * group.copy;
  computing += static_cast<double>(group.count - counts.host) * group.unit.device_time.count;
  if (counts.host > 0) computing += static_cast<double>(counts.host) * group.unit.host_time.count;
}

ResidenceCounts summed(const std::vector<UnitGroup>& groups,
                       std::vector<ResidenceCounts::OfGroup> of) {
  ResidenceCounts out;
  for (std::size_t g = 0; g < groups.size(); ++g)
    add_group(groups[g], of[g], out.link, out.computing);
  out.of = std::move(of);
  return out;
}

// From the last bit to the first.
std::uint32_t reversed_bits(std::uint32_t n) {
  n = (n >> 16) | (n << 16);
  n = ((n >> 8) & 0x00FF00FFU) | ((n & 0x00FF00FFU) << 8);
  n = ((n >> 4) & 0x0F0F0F0FU) | ((n & 0x0F0F0F0FU) << 4);
  n = ((n >> 2) & 0x33333333U) | ((n & 0x33333333U) << 2);
  return ((n >> 1) & 0x55555555U) | ((n & 0x55555555U) << 1);
}

// Groups with a figure above 0, largest first. Those that are alike up to rounding are taken in an
// order that leaves none of their places far from the last: neighbours should not share a fate, or
// the link stands still where all are elsewhere.
std::vector<std::size_t> by_figure(const std::vector<double>& figures) {
  struct Key {
    double figure;
    std::uint32_t place;
    std::uint32_t group;
  };
  std::vector<Key> keys;
  for (std::uint32_t g = 0; g < figures.size(); ++g) {
    if (figures[g] <= 0) continue;
    int exponent = 0;
    const double mantissa = std::frexp(figures[g], &exponent);
    const double rounded =
        std::isfinite(figures[g]) ? std::ldexp(std::round(mantissa * 1e5), exponent) : figures[g];
    keys.push_back({rounded, reversed_bits(g), g});
  }
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return a.figure != b.figure ? a.figure > b.figure : a.place < b.place;
  });
  std::vector<std::size_t> order;
  order.reserve(keys.size());
  for (const Key& key : keys) order.push_back(key.group);
  return order;
}

// By what a resident byte saves, whole units; then streamed units go to the host while that helps.
// Room that saves no time is filled all the same: each copy costs whoever makes it, and what the
// times leave out, such as cores and memory that the copies share with computing.
class Greedy {
 public:
  Greedy(const std::vector<UnitGroup>& groups, double memory, double link_share)
      : groups_(groups), memory_(memory), share_(link_share), of_(groups.size()) {}

  ResidenceCounts counts() {
    if (!keep_what_must_stay()) return {};
    keep_first([this](std::size_t g) { return gain_per_byte(g); });
    keep_first([this](std::size_t g) { return copy_per_byte(g); });
    send_to_host();
    return summed(groups_, std::move(of_));
  }

 private:
  bool keep_what_must_stay() {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].may_stream) continue;
      if (may_be_on_host(groups_[g])) {
        of_[g].host = groups_[g].count;
        continue;
      }
      of_[g].resident = groups_[g].count;
      memory_ -= groups_[g].bytes() * static_cast<double>(groups_[g].count);
    }
    return memory_ >= 0;
  }

  double gain_per_byte(std::size_t g) const {
    const UnitGroup& group = groups_[g];
    double away = group.may_stream
                      ? share_ * group.copy + (1 - share_) * group.unit.device_time.count
                      : kInfinity;
    if (may_be_on_host(group)) away = std::min(away, (1 - share_) * group.unit.host_time.count);
    const double gain = away - (1 - share_) * group.unit.device_time.count;
    if (gain <= 0) return 0;
    return group.bytes() > 0 ? gain / group.bytes() : kInfinity;
  }

  double copy_per_byte(std::size_t g) const {
    return groups_[g].bytes() > 0 ? groups_[g].copy / groups_[g].bytes() : kInfinity;
  }

  // What fits, the units with the largest figure first.
  template <typename Figure>
  void keep_first(Figure figure) {
    std::vector<double> figures(groups_.size());
    for (std::size_t g = 0; g < figures.size(); ++g) figures[g] = figure(g);
    for (const std::size_t g : by_figure(figures)) {
      const std::size_t left = groups_[g].count - of_[g].resident;
      if (left == 0) continue;
      const double bytes = groups_[g].bytes();
      const std::size_t fit =
          bytes > 0 ? static_cast<std::size_t>(std::min(memory_ / bytes, 1e18)) : left;
      const std::size_t taken = std::min(left, fit);
      of_[g].resident += taken;
      of_[g].host -= std::min(of_[g].host, taken);
      memory_ -= bytes * static_cast<double>(taken);
    }
  }

  // One by one: each takes its copy off the link and adds to computing.
  void send_to_host() {
    const auto added = [&](std::size_t g) {
      return groups_[g].unit.host_time.count - groups_[g].unit.device_time.count;
    };
    // Those that take most off the link for what they add; those that add nothing first of all.
    std::vector<double> relief(groups_.size());
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (!groups_[g].may_stream || !may_be_on_host(groups_[g])) continue;
      relief[g] = added(g) > 0 ? groups_[g].copy / added(g) : kInfinity;
    }
    double link = 0;
    double computing = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) add_group(groups_[g], of_[g], link, computing);
    for (const std::size_t g : by_figure(relief)) {
      while (of_[g].resident + of_[g].host < groups_[g].count) {
        const double now = std::max(link, computing);
        if (std::max(link - groups_[g].copy, computing + added(g)) >= now) break;
        ++of_[g].host;
        link -= groups_[g].copy;
        computing += added(g);
      }
    }
  }

  const std::vector<UnitGroup>& groups_;
  double memory_;
  double share_;
  std::vector<ResidenceCounts::OfGroup> of_;
};

// Group by group, all counts of each; a branch ends where the relaxation says that nothing in it is
// better than what was found.
class BranchAndBound {
 public:
  BranchAndBound(const std::vector<UnitGroup>& groups, const RelaxedResidence& relaxed,
                 std::size_t& looks)
      : groups_(groups),
        relaxations_{relaxed, RelaxedResidence(groups, 0), RelaxedResidence(groups, 1)},
        looks_(looks),
        now_(groups.size()) {}

  void improve(ResidenceCounts& best, double memory) {
    best_ = &best;
    best.proved = search(0, 0, 0, memory);
  }

 private:
  bool is_worth_it(std::size_t first, double link, double computing, double memory) const {
    const double limit = best_->of.empty() ? kInfinity : best_->value() * (1 - kWorthwhile);
    return std::all_of(relaxations_.begin(), relaxations_.end(), [&](const RelaxedResidence& r) {
      const double share = r.link_share();
      return share * link + (1 - share) * computing + r.least(first, memory) < limit;
    });
  }

  // False when the looks ran out.
  bool search(std::size_t g, double link, double computing, double memory) {
    if (g == groups_.size()) {
      if (best_->of.empty() || std::max(link, computing) < best_->value()) {
        *best_ = {now_, link, computing};
      }
      return true;
    }
    const UnitGroup& group = groups_[g];
    const double bytes = group.bytes();
    const std::size_t fit =
        bytes > 0 ? static_cast<std::size_t>(std::min(memory / bytes, 1e18)) : group.count;
    // Most residents first: that is where good answers are.
    for (std::size_t resident = std::min(group.count, fit) + 1; resident-- > 0;) {
      const double left = memory - bytes * static_cast<double>(resident);
      const std::size_t others =
          group.unit.stays && resident < group.count ? kNone : group.count - resident;
      if (others == kNone) break;
      const std::size_t most = may_be_on_host(group) ? others : 0;
      for (std::size_t host = group.may_stream ? 0 : most; host <= most; ++host) {
        // The relaxations go through all groups, for whichever counts.
        if (looks_ < groups_.size()) return false;
        looks_ -= groups_.size();
        now_[g] = {resident, host};
        double next_link = link;
        double next_computing = computing;
        add_group(group, now_[g], next_link, next_computing);
        if (next_link == kInfinity) continue;
        if (!is_worth_it(g + 1, next_link, next_computing, left)) continue;
        if (!search(g + 1, next_link, next_computing, left)) return false;
      }
    }
    return true;
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  const std::vector<UnitGroup>& groups_;
  std::vector<RelaxedResidence> relaxations_;
  std::size_t& looks_;
  std::vector<ResidenceCounts::OfGroup> now_;
  ResidenceCounts* best_ = nullptr;
};

}  // namespace

ResidenceCounts count_residences(const std::vector<UnitGroup>& groups, double memory,
                                 const RelaxedResidence& relaxed, std::size_t& looks) {
  ResidenceCounts best = Greedy(groups, memory, relaxed.link_share()).counts();
  const double bound = relaxed.least(0, memory);
  if (!best.of.empty() && best.value() <= bound * (1 + kWorthwhile)) {
    best.proved = true;
  } else if (bound < kInfinity && looks > 0) {
    BranchAndBound(groups, relaxed, looks).improve(best, memory);
  }
  return best;
}

}  // namespace kerf
