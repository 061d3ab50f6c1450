// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/stream/streamer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "kerf/base/error.h"

namespace kerf {

Streamer::Streamer(std::size_t num_units, std::size_t num_slots, Mover& mover, PathOf path_of)
    : mover_(mover),
      path_of_(std::move(path_of)),
      slots_(num_slots),
      place_(num_units),
      order_(num_units) {
  if (num_slots == 0 && num_units > 0) {
    throw Error(ErrorKind::invalid_argument,
                "[runtime.streamer] there are units to stream and no slot for them; expected at "
                "least one slot");
  }
  std::iota(order_.begin(), order_.end(), 0);
}

std::size_t Streamer::acquire(std::size_t unit) {
  ++stats_.uses;
  auto slot = slot_of(unit);
  if (!slot) {
    slot = free_slot();
    if (!slot) {
      throw Error(ErrorKind::run_failed,
                  fmt::format("[runtime.streamer] {} is used while all {} slots are in use; "
                              "expected units that are used one after the other; place the model "
                              "with the module around them as one unit",
                              shown(unit), slots_.size()));
    }
    ++stats_.misses;
    start(unit, *slot);
  }
  // Held before others are fetched, and these before the caller waits: the link goes on meanwhile.
  ++slots_[*slot].held;
  note_use(unit);
  prefetch();
  try {
    mover_.wait(*slot);
  } catch (...) {
    if (--slots_[*slot].held == 0) empty(*slot);
    throw;
  }
  slots_[*slot].used = true;
  return *slot;
}

void Streamer::release(std::size_t unit) {
  const auto slot = slot_of(unit);
  KERF_CHECK(slot && slots_[*slot].held > 0, "a unit is released that nobody holds");
  if (--slots_[*slot].held > 0) return;
  mover_.release(*slot);
  prefetch();
}

void Streamer::end_call() {
  // A call that used nothing says nothing of the next.
  if (!used_.empty()) order_.swap(used_);
  used_.clear();
  position_ = 0;
  prefetch();
}

void Streamer::call_is_like(std::size_t kind) {
  if (kind == kind_) return;
  if (orders_.size() <= std::max(kind, kind_)) orders_.resize(std::max(kind, kind_) + 1);
  orders_[kind_] = order_;
  kind_ = kind;
  if (orders_[kind].empty()) return;  // the first of its kind: it will be known
  order_.swap(orders_[kind]);
  position_ = 0;
  for (const std::size_t unit : used_) pass(unit);
  prefetch();
}

void Streamer::abandon() {
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].held == 0) continue;
    slots_[s].held = 0;
    mover_.release(s);
  }
  used_.clear();
  position_ = 0;
}

void Streamer::invalidate(std::size_t unit) {
  const auto slot = slot_of(unit);
  if (!slot) return;
  KERF_CHECK(slots_[*slot].held == 0, "a unit changes while it is held");
  empty(*slot);
}

bool Streamer::is_held(std::size_t unit) const {
  const auto slot = slot_of(unit);
  return slot && slots_[*slot].held > 0;
}

std::string Streamer::shown(std::size_t unit) const {
  return path_of_ ? fmt::format("module '{}'", path_of_(unit)) : fmt::format("unit {}", unit);
}

std::optional<std::size_t> Streamer::free_slot() const {
  std::optional<std::size_t> best;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].held > 0 || slots_[s].expected) continue;
    if (!slots_[s].unit) return s;
    // Of several that nobody expects, one that was used: a copy that was not is perhaps early.
    if (!best || (slots_[s].used && !slots_[*best].used)) best = s;
  }
  return best;
}

void Streamer::empty(std::size_t slot) {
  if (!slots_[slot].unit) return;
  if (!slots_[slot].used) ++stats_.unused;
  place_[*slots_[slot].unit].reset();
  slots_[slot].unit.reset();
}

void Streamer::start(std::size_t unit, std::size_t slot) {
  empty(slot);
  mover_.start(unit, slot);  // if this throws, the slot is empty
  ++stats_.copies;
  slots_[slot].unit = unit;
  slots_[slot].used = false;
  place_[unit] = slot;
}

void Streamer::note_use(std::size_t unit) {
  used_.push_back(unit);
  pass(unit);
}

// A unit further on in the order: those between are not used this time. One that is not: as if it
// stood between.
void Streamer::pass(std::size_t unit) {
  const auto next = order_.begin() + static_cast<std::ptrdiff_t>(position_);
  const auto found = std::find(next, order_.end(), unit);
  if (found != order_.end()) position_ = static_cast<std::size_t>(found - order_.begin()) + 1;
}

// The next units in the order, and after its end those that the next call begins with, as long as
// there are slots that none before them needs.
void Streamer::prefetch() {
  for (Slot& slot : slots_) slot.expected = false;
  std::size_t left = slots_.size();
  for (std::size_t ahead = 0; ahead < order_.size() && left > 0; ++ahead) {
    const std::size_t unit = order_[(position_ + ahead) % order_.size()];
    auto slot = slot_of(unit);
    if (slot && slots_[*slot].expected) continue;  // it comes twice
    if (!slot) {
      slot = free_slot();
      if (!slot) break;
      try {
        start(unit, *slot);
      } catch (...) {  // whoever needs it will hear of it
        break;
      }
    }
    slots_[*slot].expected = true;
    --left;
  }
  for (Slot& slot : slots_) slot.expected = false;
}

}  // namespace kerf
