// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kerf/runtime/stream/mover.h"

namespace kerf {

// Units share a few slots: each is brought into one before it is used, in the order in which the
// last call used them.
//
//   Streamer streamer(units, slots, mover);
//   for each call of the model:  { acquire(u); compute; release(u); } ...; end_call();
//
// A unit that comes out of turn is fetched while the caller waits (a miss), and the next call
// expects it there. Not for several threads at once. Nothing is allocated once the order is known.
class Streamer {
 public:
  struct Stats {
    std::int64_t uses = 0;
    std::int64_t misses = 0;  // uses whose copy had not even been begun
    std::int64_t copies = 0;
    std::int64_t unused = 0;  // copies that went before they were used
    friend bool operator==(const Stats&, const Stats&) = default;
  };

  // What errors call a unit, where it has a name.
  using PathOf = std::function<std::string(std::size_t unit)>;

  // The first call is expected to use the units in ascending order. Throws
  // Error(invalid_argument) without a slot.
  Streamer(std::size_t num_units, std::size_t num_slots, Mover& mover, PathOf path_of = {});

  // The slot that holds the unit until as many `release`s. Throws what the mover throws; the unit
  // is not held then, and may be asked for again. Throws Error(run_failed) if all slots are held.
  std::size_t acquire(std::size_t unit);
  void release(std::size_t unit);

  // What the call used is what the next one is expected to use; its first units are fetched.
  void end_call();
  // Calls come in kinds that use other units: the one under way is of this kind, and is expected
  // to go on as the last of its kind did. Until it is said, a call is of the last one's kind.
  void call_is_like(std::size_t kind);
  // Nothing is held any more: a call ended without its releases.
  void abandon();
  // The unit's weights have changed: what a slot has of them is worthless. Not while it is held.
  void invalidate(std::size_t unit);

  bool is_held(std::size_t unit) const;
  const Stats& stats() const { return stats_; }

 private:
  struct Slot {
    std::optional<std::size_t> unit;
    int held = 0;
    bool used = false;      // since it was brought
    bool expected = false;  // while prefetching: it will be used before others
  };

  std::string shown(std::size_t unit) const;
  std::optional<std::size_t> slot_of(std::size_t unit) const { return place_[unit]; }
  // A slot to fill: an empty one, or that whose unit is used last of those nobody expects.
  std::optional<std::size_t> free_slot() const;
  void empty(std::size_t slot);
  void start(std::size_t unit, std::size_t slot);
  void note_use(std::size_t unit);
  void pass(std::size_t unit);
  void prefetch();

  Mover& mover_;
  PathOf path_of_;
  std::vector<Slot> slots_;
  std::vector<std::optional<std::size_t>> place_;  // by unit
  std::vector<std::size_t> order_;                 // expected of a call
  std::size_t position_ = 0;                       // in it: what comes next
  std::vector<std::size_t> used_;                  // by this call
  std::size_t kind_ = 0;                           // of calls
  std::vector<std::vector<std::size_t>> orders_;   // of other kinds; empty: not known
  Stats stats_;
};

}  // namespace kerf
