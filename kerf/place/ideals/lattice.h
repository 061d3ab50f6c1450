// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// All ideals of a problem's groups (sets closed under predecessors), linked by the single groups
// that lead from one to the next. An ideal is known by the groups that may be added to it, so that
// no sets are stored: about 24 bytes an ideal and 8 a link.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kerf/base/step_clock.h"
#include "kerf/place/ideals/groups.h"

namespace kerf::place::ideals {

struct Link {
  UnitId group{0};
  std::uint32_t to = 0;
};

// Ideal 0 is empty, the last is full; every link leads to a greater number.
class Lattice {
 public:
  // Nothing when there are more ideals or links than that, or when time is up.
  static std::optional<Lattice> build(const Groups& groups, std::size_t max_ideals,
                                      std::size_t max_links, StepClock& clock);
  // The prefixes of one topological order alone.
  static Lattice along(std::span<const UnitId> order);

  std::uint32_t size() const { return static_cast<std::uint32_t>(parent_.size()); }
  std::size_t num_links() const { return links_.size(); }
  std::span<const Link> links(std::uint32_t ideal) const {
    return {links_.data() + first_link_[ideal], links_.data() + first_link_[ideal + 1]};
  }
  std::size_t first_link(std::uint32_t ideal) const { return first_link_[ideal]; }
  // Its groups: `added(i)`, `added(parent(i))`, ... down to ideal 0.
  std::uint32_t parent(std::uint32_t ideal) const { return parent_[ideal]; }
  UnitId added(std::uint32_t ideal) const { return added_[ideal]; }

 private:
  friend class LatticeBuilder;
  std::vector<std::uint32_t> first_link_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> parent_;
  std::vector<UnitId> added_;
};

// Goes from ideal to ideal in steps of single groups; near ones are near.
class Walker {
 public:
  explicit Walker(const Lattice& lattice) : lattice_(lattice) {}
  // Calls remove(group) and add(group) for the difference, in this order.
  template <class Remove, class Add>
  void move_to(std::uint32_t ideal, Remove&& remove, Add&& add) {
    std::uint32_t from = at_;
    path_.clear();
    at_ = ideal;
    // A parent has a smaller number, so the greater of the two is never an ancestor of the other.
    while (from != ideal) {
      if (from > ideal) {
        remove(lattice_.added(from));
        from = lattice_.parent(from);
      } else {
        path_.push_back(lattice_.added(ideal));
        ideal = lattice_.parent(ideal);
      }
    }
    for (const UnitId group : path_) add(group);
  }

 private:
  const Lattice& lattice_;
  std::uint32_t at_ = 0;
  std::vector<UnitId> path_;
};

}  // namespace kerf::place::ideals
