// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Choice by choice of devices, depth first over the stages that may follow an ideal. Choices are
// numbered so that those which leave more, and those a stage earlier, come first. Five things keep
// the number of stages far below the number of pairs of ideals:
//   1. A stage stops growing when its compute and the nets it pays for in any case reach T.
//   2. An ideal counts only if the devices left can take what is left; and so a stage stops growing
//      when it pays so much for nets that too little compute can join it.
//   3. An ideal is not expanded when a larger one, held by the same choice, is as good a start. Let
//      J follow I in a plan, and take x from the stage J \ I because I + x is held already. The
//      stage loses x's compute and the nets that only x shares with I; it gains at most the nets of
//      x that lie outside I, now cut (link: those that x makes and others outside I read). Where
//      these cost no more, I + x is as good a start as I, for every J, and so along chains of such
//      steps.
//   4. Nor when a choice that leaves more (a device less, or a worse one in place of a better)
//   holds
//      it, or a larger one that is as good a start.
//   5. A choice can hold only so much compute, and the devices left can take only so much: of all
//      ideals, by the compute they hold, a choice sees a short run.
#include "kerf/place/ideals/decide.h"

#include <algorithm>
#include <limits>

#include "kerf/base/count_up.h"

namespace kerf::place::ideals {

Decision::Decision(const Groups& groups, const Lattice& lattice, std::size_t max_states,
                   StepClock& clock)
    : groups_(groups),
      lattice_(lattice),
      figures_(groups, lattice, clock),
      capacity_(groups),
      growth_(groups, lattice, clock),
      max_states_(max_states) {
  too_large_ = !is_countable(max_states);
  if (!too_large_) rank_ideals();
}

Chain Decision::find_below(double limit) {
  Chain out;
  if (gave_up()) return out;
  capacity_.set_limit(limit);
  std::vector<Step> steps;
  out.load = search(steps);
  for (std::size_t i = steps.size(); i-- > 0;) {
    append_difference(steps[i], out.order);
    out.ends.push_back(static_cast<std::uint32_t>(out.order.size()));
    out.on.push_back(steps[i].on);
  }
  return out;
}

void Decision::append_difference(const Step& step, std::vector<UnitId>& out) const {
  std::vector<bool> inside(groups_.num_units(), false);
  for (std::uint32_t i = step.to; i != 0; i = lattice_.parent(i)) inside[lattice_.added(i)] = true;
  for (std::uint32_t i = step.from; i != 0; i = lattice_.parent(i)) {
    inside[lattice_.added(i)] = false;
  }
  // Groups are numbered along a topological order.
  for (UnitId g{0}; g < groups_.num_units(); ++g) {
    if (inside[g]) out.push_back(g);
  }
}

// Better classes weigh more.
bool Decision::is_countable(std::size_t max_states) {
  const auto& classes = groups_.classes;
  if (classes.size() > 255) return false;
  weight_.assign(classes.size(), 1);
  for (std::size_t c = classes.size(); c-- > 0;) {
    weight_[c] = num_choices_;
    const std::size_t more = num_choices_ * (classes[c].devices.size() + 1);
    if (more > max_states || more > ~Choice{0}) return false;
    num_choices_ = static_cast<Choice>(more);
  }
  return true;
}

// A link leads to a greater rank: its end holds no less time, and has a greater number.
void Decision::rank_ideals() {
  ideal_at_ = count_up<std::uint32_t>(lattice_.size());
  const auto& time = figures_.accelerator_time;
  std::stable_sort(ideal_at_.begin(), ideal_at_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return time[a] < time[b]; });
  rank_of_.resize(lattice_.size());
  for (std::uint32_t rank = 0; rank < lattice_.size(); ++rank) rank_of_[ideal_at_[rank]] = rank;
}

std::uint32_t Decision::digit(Choice choice, std::size_t device_class) const {
  const auto base = static_cast<Choice>(groups_.classes[device_class].devices.size() + 1);
  return choice / weight_[device_class] % base;
}

bool Decision::has_left(Choice choice, std::size_t device_class) const {
  return digit(choice, device_class) < groups_.classes[device_class].devices.size();
}

double Decision::held_by(Choice choice) const {
  double out = 0;
  for (std::size_t c = 0; c < weight_.size(); ++c) {
    const std::uint32_t used = digit(choice, c);
    if (used > 0) out += used * capacity_.of(c);
  }
  return out;
}

bool Decision::make_windows() {
  const auto& time = figures_.accelerator_time;
  const auto num_below = [&](double bound) {
    const auto found = std::lower_bound(ideal_at_.begin(), ideal_at_.end(), bound,
                                        [&](std::uint32_t i, double t) { return time[i] < t; });
    return static_cast<std::uint32_t>(found - ideal_at_.begin());
  };
  const double slack = 2 * capacity_.slack() + std::numeric_limits<double>::min();
  windows_.assign(num_choices_, {});
  std::size_t states = 0;
  for (Choice choice = 0; choice < num_choices_; ++choice) {
    const double left = held_by(num_choices_ - 1 - choice);
    Window& window = windows_[choice];
    window.begin = num_below(capacity_.total() - left - slack);
    window.end = std::max(window.begin, num_below(held_by(choice) + slack));
    window.first_state = states;
    states += window.end - window.begin;
    if (states > max_states_) return false;
  }
  load_.assign(states, kInfinity);
  from_.assign(states, 0);
  by_.assign(states, 0);
  held_.assign(states, false);
  return true;
}

// Choices that leave a device more, or a better one.
void Decision::find_less(Choice choice) {
  less_.clear();
  for (std::size_t c = 0; c < weight_.size(); ++c) {
    if (digit(choice, c) == 0) continue;
    const Choice less = choice - weight_[c];
    less_.push_back(less);
    for (std::size_t worse = c + 1; worse < weight_.size(); ++worse) {
      if (!groups_.classes[c].is_better_than(groups_.classes[worse])) continue;
      if (has_left(less, worse)) less_.push_back(less + weight_[worse]);
    }
  }
}

bool Decision::is_held_by_less(std::uint32_t rank) const {
  return std::ranges::any_of(less_, [&](Choice other) {
    const Window& window = windows_[other];
    return window.holds(rank) && held_[window.state(rank)];
  });
}

// Leaves in covered_ what need not be expanded.
void Decision::find_covered(Choice choice) {
  const Window& window = windows_[choice];
  covered_.assign(window.end - window.begin, false);
  find_less(choice);
  for (std::uint32_t rank = window.end; rank-- > window.begin;) {
    const std::size_t state = window.state(rank);
    const bool by_less = is_held_by_less(rank);
    held_[state] = by_less || load_[state] < kInfinity;
    bool covered = by_less;
    const std::uint32_t ideal = ideal_at_[rank];
    std::size_t at = lattice_.first_link(ideal);
    for (const Link& link : lattice_.links(ideal)) {
      if (!figures_.is_better_start[at++] || covered) continue;
      const std::uint32_t to = rank_of_[link.to];
      covered = window.holds(to) && (held_[window.state(to)] || covered_[to - window.begin]);
    }
    covered_[rank - window.begin] = covered;
  }
}

void Decision::expand(Choice choice) {
  find_covered(choice);
  const Window& window = windows_[choice];
  for (std::size_t c = 0; c < weight_.size(); ++c) {
    if (!has_left(choice, c)) continue;
    for (std::uint32_t rank = window.begin; rank < window.end && !growth_.stopped; ++rank) {
      if (covered_[rank - window.begin] || load_[window.state(rank)] == kInfinity) continue;
      grow(choice, rank, c);
    }
  }
}

void Decision::grow(Choice choice, std::uint32_t rank, std::size_t device_class) {
  const std::uint32_t start = ideal_at_[rank];
  const double load_before = load_[windows_[choice].state(rank)];
  const double left = held_by(num_choices_ - 1 - choice);
  const double time = capacity_.total() - figures_.accelerator_time[start];
  const Choice next = choice + weight_[device_class];
  const Window& window = windows_[next];
  const double left_after = held_by(num_choices_ - 1 - next);
  const auto reach = [&](std::uint32_t ideal, double load) {
    const std::uint32_t to = rank_of_[ideal];
    if (!window.holds(to)) return;
    const std::size_t state = window.state(to);
    load = std::max(load, load_before);
    if (load_[state] <= load) return;
    const double rest = capacity_.total() - figures_.accelerator_time[ideal];
    if (!capacity_.can_hold(rest, left_after)) return;
    load_[state] = load;
    from_[state] = start;
    by_[state] = static_cast<std::uint8_t>(device_class);
  };
  growth_.run(start, groups_.classes[device_class], capacity_.limit(),
              capacity_.max_shared(device_class, time, left), reach);
}

double Decision::search(std::vector<Step>& steps) {
  if (!make_windows()) {
    too_large_ = true;
    return kInfinity;
  }
  if (!windows_[0].holds(0)) return kInfinity;
  load_[windows_[0].state(0)] = 0;
  for (Choice choice = 0; choice < num_choices_ && !growth_.stopped; ++choice) expand(choice);
  return read_back(steps);
}

double Decision::read_back(std::vector<Step>& steps) const {
  const std::uint32_t full = rank_of_[lattice_.size() - 1];
  double best = kInfinity;
  Choice choice = 0;
  for (Choice other = 0; other < num_choices_; ++other) {
    const Window& window = windows_[other];
    if (!window.holds(full) || load_[window.state(full)] >= best) continue;
    best = load_[window.state(full)];
    choice = other;
  }
  if (best == kInfinity) return best;
  std::uint32_t at = lattice_.size() - 1;
  while (at != 0) {
    const std::size_t state = windows_[choice].state(rank_of_[at]);
    steps.push_back({from_[state], at, by_[state]});
    choice -= weight_[by_[state]];
    at = from_[state];
  }
  return best;
}

}  // namespace kerf::place::ideals
