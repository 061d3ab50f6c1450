// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/ideals/decide.h"

#include "kerf/place/ideals/decide_equal.h"
#include "kerf/place/ideals/decide_mixed.h"

namespace kerf::place::ideals {

Chain Decision::find_below(double limit) {
  Chain out;
  if (gave_up()) return out;
  capacity_.set_limit(limit);
  std::vector<Step> steps;
  out.load = search(steps);
  for (std::size_t i = steps.size(); i-- > 0;) {
    append_difference(steps[i].from, steps[i].to, out.order);
    out.ends.push_back(static_cast<std::uint32_t>(out.order.size()));
    out.on.push_back(steps[i].on);
  }
  return out;
}

void Decision::append_difference(std::uint32_t from, std::uint32_t to,
                                 std::vector<std::uint32_t>& out) const {
  std::vector<bool> inside(groups_.num_tasks(), false);
  for (std::uint32_t i = to; i != 0; i = lattice_.parent(i)) inside[lattice_.added(i)] = true;
  for (std::uint32_t i = from; i != 0; i = lattice_.parent(i)) inside[lattice_.added(i)] = false;
  // Groups are numbered along a topological order.
  for (std::uint32_t g = 0; g < groups_.num_tasks(); ++g) {
    if (inside[g]) out.push_back(g);
  }
}

std::unique_ptr<Decision> make_decision(const Groups& groups, const Lattice& lattice,
                                        std::size_t max_states, StepClock& clock) {
  if (groups.has_one_kind()) {
    return std::make_unique<EqualDecision>(groups, lattice, clock);
  }
  return std::make_unique<MixedDecision>(groups, lattice, max_states, clock);
}

}  // namespace kerf::place::ideals
