// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Topological orders that can be grown from either end. The tasks must be numbered in one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/order/front.h"

namespace kerf::place {

// What these orders look at, of whatever has it: tasks, what comes before what, and nets.
struct Flow {
  template <class Form>
  Flow(const Form& form)
      : successors(form.successors),
        predecessors(form.predecessors),
        nets(form.nets),
        pins(form.pins),
        cost(form.cost) {}
  std::uint32_t size() const { return successors.size(); }
  std::uint32_t num_nets() const { return pins.size(); }

  const Rows& successors;
  const Rows& predecessors;
  const Rows& nets;  // by task
  const Rows& pins;  // by net
  const std::vector<double>& cost;
};

enum class TwoWayOrder : std::uint8_t {
  natural,      // as numbered
  depth_first,  // what became ready last goes first
  least_cut,    // what adds least to the tensors that are open
  levels,       // by the longest path from the start; backwards: to the end, so as late as can be
  random,
};

// All tasks, each after its predecessors. `backwards`: grown from the end.
Order find_order(const Flow& flow, TwoWayOrder kind, bool backwards, Rng& rng);

// First what half 0 holds with all that comes before it, last what half 1 holds with all that comes
// after it; each by the longest path from the start, `backwards`: to the end.
Order order_by_halves(const Flow& flow, std::span<const std::uint32_t> half, bool backwards);

}  // namespace kerf::place
