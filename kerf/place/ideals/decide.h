// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Is there a chain of ideals whose stages all load their devices less than T?
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kerf/place/ideals/figures.h"
#include "kerf/place/ideals/growth.h"

namespace kerf::place::ideals {

class Decision {
 public:
  Decision(const Groups& groups, const Lattice& lattice, StepClock& clock)
      : groups_(groups),
        lattice_(lattice),
        figures_(groups, lattice, clock),
        capacity_(groups),
        growth_(groups, lattice, clock) {}
  virtual ~Decision() = default;
  Decision(const Decision&) = delete;
  Decision& operator=(const Decision&) = delete;

  // A chain with a largest load below `limit`, not always the best; an infinite load when there is
  // none, or when it gave up.
  Chain find_below(double limit);
  bool gave_up() const { return growth_.stopped || too_large_; }
  std::int64_t work() const { return growth_.work; }  // stages looked at, in all

 protected:
  struct Step {
    std::uint32_t from;  // ideal
    std::uint32_t to;
    std::uint32_t on;  // class
  };
  // The chain's steps, the last first; its load.
  virtual double search(std::vector<Step>& steps) = 0;

  const Groups& groups_;
  const Lattice& lattice_;
  IdealFigures figures_;
  Capacity capacity_;
  Growth growth_;
  bool too_large_ = false;

 private:
  void append_difference(std::uint32_t from, std::uint32_t to,
                         std::vector<std::uint32_t>& out) const;
};

// Suits the groups' devices. Gives up where unequal accelerators make more than `max_states` pairs
// of an ideal and what may be used for it.
std::unique_ptr<Decision> make_decision(const Groups& groups, const Lattice& lattice,
                                        std::size_t max_states, StepClock& clock);

}  // namespace kerf::place::ideals
