// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Ideals by size: each is found from every ideal that lacks one of its groups, and told from its
// equals by the groups that may be added to it. O(links * degree).
#include "kerf/place/ideals/lattice.h"

#include <algorithm>

namespace kerf::place::ideals {

class LatticeBuilder {
 public:
  LatticeBuilder(const Groups& groups, std::size_t max_ideals, std::size_t max_links,
                 StepClock& clock)
      : groups_(groups),
        max_ideals_(max_ideals),
        max_links_(max_links),
        clock_(clock),
        inside_(groups.num_units(), false),
        walker_(out_) {}

  std::optional<Lattice> run() {
    add_empty();
    for (std::uint32_t ideal = 0; ideal < out_.size(); ++ideal) {
      if (ideal == level_end_) start_level();
      walker_.move_to(
          ideal, [&](UnitId g) { inside_[g] = false; }, [&](UnitId g) { inside_[g] = true; });
      const std::size_t end = out_.first_link_[ideal + 1];
      for (std::size_t l = out_.first_link_[ideal]; l < end; ++l) {
        const UnitId added = out_.links_[l].group;
        const std::uint32_t to = find_or_add(ideal, added);
        out_.links_[l].to = to;
        if (out_.size() > max_ideals_ || out_.links_.size() > max_links_) return std::nullopt;
        const std::size_t steps = 1 + addable_.size() + groups_.successors[added].size();
        if (clock_.is_late_after(steps)) return std::nullopt;
      }
    }
    return std::move(out_);
  }

 private:
  void add_empty() {
    out_.first_link_ = {0};
    for (UnitId g{0}; g < groups_.num_units(); ++g) {
      if (groups_.predecessors[g].empty()) out_.links_.push_back({g, 0});
    }
    push(0, UnitId{});
  }
  void push(std::uint32_t parent, UnitId added) {
    out_.parent_.push_back(parent);
    out_.added_.push_back(added);
    out_.first_link_.push_back(static_cast<std::uint32_t>(out_.links_.size()));
  }
  // Equals have equal sizes, so the table holds one size at a time.
  void start_level() {
    level_end_ = out_.size();
    table_.assign(64, kEmpty);
  }
  bool opens(UnitId group, UnitId last) const {
    return std::ranges::all_of(groups_.predecessors[group],
                               [&](UnitId p) { return p == last || inside_[p]; });
  }
  void find_addable(std::uint32_t ideal, UnitId group) {
    addable_.clear();
    for (const Link& link : out_.links(ideal)) {
      if (link.group != group) addable_.push_back(link.group);
    }
    for (const UnitId next : groups_.successors[group]) {
      if (opens(next, group)) addable_.push_back(next);
    }
    std::sort(addable_.begin(), addable_.end());
  }
  bool is_known_by(std::uint32_t ideal) const {
    return std::ranges::equal(out_.links(ideal), addable_, {}, &Link::group);
  }
  static std::uint64_t hash(auto&& numbers) {
    std::uint64_t h = 0x9e3779b97f4a7c15ULL;
    for (const std::uint32_t number : numbers) {
      h = (h ^ number) * 0xff51afd7ed558ccdULL;
      h ^= h >> 32;
    }
    return h;
  }
  std::size_t slot_of(std::uint64_t h) const {
    std::size_t slot = h & (table_.size() - 1);
    while (table_[slot] != kEmpty && !is_known_by(table_[slot])) {
      slot = (slot + 1) & (table_.size() - 1);
    }
    return slot;
  }
  void grow_table() {
    table_.assign(table_.size() * 2, kEmpty);
    for (std::uint32_t ideal = level_end_; ideal < out_.size(); ++ideal) {
      auto row = out_.links(ideal);
      std::vector<std::uint32_t> numbers;
      for (const Link& link : row) numbers.push_back(link.group);
      std::size_t slot = hash(numbers) & (table_.size() - 1);
      while (table_[slot] != kEmpty) slot = (slot + 1) & (table_.size() - 1);
      table_[slot] = ideal;
    }
  }
  std::uint32_t find_or_add(std::uint32_t ideal, UnitId group) {
    find_addable(ideal, group);
    const std::uint64_t h = hash(addable_);
    std::size_t slot = slot_of(h);
    if (table_[slot] != kEmpty) return table_[slot];
    const std::uint32_t found = out_.size();
    table_[slot] = found;
    for (const UnitId next : addable_) out_.links_.push_back({next, 0});
    push(ideal, group);
    if ((found - level_end_ + 1) * 2 > table_.size()) grow_table();
    return found;
  }

  static constexpr std::uint32_t kEmpty = ~0U;
  const Groups& groups_;
  std::size_t max_ideals_;
  std::size_t max_links_;
  StepClock& clock_;
  Lattice out_;
  std::vector<bool> inside_;
  Walker walker_;
  std::vector<UnitId> addable_;
  std::vector<std::uint32_t> table_ = std::vector<std::uint32_t>(64, kEmpty);
  std::uint32_t level_end_ = 1;
};

std::optional<Lattice> Lattice::build(const Groups& groups, std::size_t max_ideals,
                                      std::size_t max_links, StepClock& clock) {
  return LatticeBuilder(groups, max_ideals, max_links, clock).run();
}

Lattice Lattice::along(std::span<const UnitId> order) {
  Lattice out;
  const auto count = static_cast<std::uint32_t>(order.size());
  out.parent_.reserve(count + std::size_t{1});
  out.added_.reserve(count + std::size_t{1});
  out.first_link_.reserve(count + std::size_t{2});
  out.links_.reserve(count);
  for (std::uint32_t i = 0; i <= count; ++i) {
    out.parent_.push_back(i == 0 ? 0 : i - 1);
    out.added_.push_back(i == 0 ? UnitId{} : order[i - 1]);
    out.first_link_.push_back(i);
    if (i < count) out.links_.push_back({order[i], i + 1});
  }
  out.first_link_.push_back(count);
  return out;
}

}  // namespace kerf::place::ideals
