// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Kahn's algorithm where the caller says who of those that are ready comes next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/place/instance.h"

namespace kerf::place {

// By unit; never falls along an edge. Empty: all are of one.
using Stages = std::vector<std::uint32_t>;

// How many of those before it each unit waits for.
class Waiting {
 public:
  Waiting(const UnitRows& next, const UnitRows& before) : next_(next) {
    missing_.reserve(before.size());
    for (UnitId t{0}; t < before.size(); ++t) missing_.push_back(before.length(t));
  }
  bool is_ready(UnitId unit) const { return missing_[unit] == 0; }
  // Calls ready(unit) for those that waited for this one alone.
  void place(UnitId unit, const auto& ready) {
    for (const UnitId to : next_[unit]) {
      if (--missing_[to] == 0) ready(to);
    }
  }
  // Those that wait for nobody.
  Order first() const {
    Order out;
    for (UnitId t{0}; t < missing_.size(); ++t) {
      if (is_ready(t)) out.push_back(t);
    }
    return out;
  }
  Order first_shuffled(Rng& rng) const {
    Order out = first();
    for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[rng.below(i)]);
    return out;
  }

 private:
  const UnitRows& next_;
  std::vector<std::uint32_t> missing_;
};

// All units, each after those before it, from the first ones on. choose(ready) gives the index of
// the next among the ready units of the least stage left, which stand as they became ready; no unit
// can become ready in a stage before it.
template <class Choose>
Order take_in_turn(Waiting& waiting, const Order& first, const Stages& stages, Choose&& choose) {
  const auto stage = [&](UnitId t) { return stages.empty() ? 0 : stages[t]; };
  std::vector<Order> ready(stages.empty() ? 1 : *std::ranges::max_element(stages) + std::size_t{1});
  const auto add = [&](UnitId t) { ready[stage(t)].push_back(t); };
  for (const UnitId t : first) add(t);
  Order out;
  for (Order& its : ready) {
    while (!its.empty()) {
      const std::size_t at = choose(its);
      const UnitId unit = its[at];
      its.erase(its.begin() + static_cast<std::ptrdiff_t>(at));
      out.push_back(unit);
      waiting.place(unit, add);
    }
  }
  return out;
}

// What became ready last goes first.
inline std::size_t last_of(const Order& ready) { return ready.size() - 1; }

}  // namespace kerf::place
