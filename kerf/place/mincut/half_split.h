// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A node of the exact search: for every unit the devices it may still go to, and what follows
// from them. A value; the search copies it to branch.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/mincut/balance.h"
#include "kerf/place/mincut/device_cut.h"
#include "kerf/place/search_budget.h"

namespace kerf::place {

// Devices that pay for nets have slots; one slot stands for all empty devices of a kind, which are
// alike, and the first unit put there takes a device out of it. A CPU that does not pay is kCpu.
inline constexpr std::uint32_t kCpu = 63;
inline constexpr std::uint32_t kNowhere = 64;

class HalfSplit {
 public:
  HalfSplit(const CutNetwork& network, Flow limit, FlowScratch& scratch);

  // Draws every conclusion the tests allow, fewer when the budget ends; false when no split below
  // `limit` is left.
  bool propagate(Flow limit, FlowScratch& scratch, SearchBudget& budget);
  // Puts unit t on one of its devices; false when that is refuted at once.
  bool assign(UnitId t, std::uint32_t device);
  bool forbid(UnitId t, std::uint32_t device);

  bool complete() const { return num_open_ == 0; }
  std::size_t num_bytes() const;  // about what a copy takes
  Split devices() const;          // by unit, when complete

  struct Choice {
    UnitId t{0};
    std::uint32_t device = 0;
    bool here = true;  // or anywhere else
    Flow rise = 0;
  };
  // What to try, one after the other. A device that has to hold more and is all but full: its
  // smallest candidate, there or not. Some device that will be: the smallest that may fill it.
  // Else the open unit whose cheapest device costs most, the cheapest first.
  std::vector<Choice> find_branch(Flow limit) const;
  bool take(const Choice& choice) {
    return choice.here ? assign(choice.t, choice.device) : forbid(choice.t, choice.device);
  }

 private:
  struct Slot {
    const DeviceKind* kind;
    DeviceCut load;   // least load
    DeviceCut share;  // least load when compute is wanted: how much it can hold
    std::vector<Hold> hold;
    std::int64_t copies = 1;  // devices that it stands for, more than one when empty
    std::size_t place = 0;    // of the first of them in `kind`
    bool used = false;        // holds something
    Flow time = 0;            // held
    double bytes = 0;         // held
    Flow least_compute = 0;   // what the other devices cannot take
    Flow least_counted = 0;   // time with the large units it has to hold
    UnitId smallest = {};     // open unit among those
    bool tune = false;        // the reward of `share` is out of date
  };
  std::uint32_t num_slots() const { return static_cast<std::uint32_t>(slots_.size()); }
  bool may(UnitId t, std::uint32_t device) const { return (domain_[t] >> device & 1U) != 0; }
  std::vector<Choice> choices_of(UnitId t) const;
  static bool is_tight(Flow room, Flow limit) { return room < limit / 32; }
  void add_slot(const DeviceKind& kind, Flow limit, FlowScratch& scratch);
  void open_slot(std::uint32_t slot);
  bool has_memory() const;
  bool settle_all(Flow limit, FlowScratch& scratch);
  bool test_unit(UnitId t, Flow limit, FlowScratch& scratch, bool& changed);
  bool can_be_on(UnitId t, std::uint32_t device, Flow limit, FlowScratch& scratch);
  bool balance(Flow limit, FlowScratch& scratch, bool& changed);
  bool count_large(Flow limit, bool& changed);
  bool count_from(Flow least, Flow limit, bool& changed);
  std::vector<Flow> open_large(Flow least, std::uint32_t device) const;
  UnitId smallest_open(Flow least, std::uint32_t device = kNowhere) const;
  bool crowd_out(Flow least, std::uint32_t device, std::int64_t wanted, Flow limit, bool& changed);
  Flow most_on_cpu(Flow limit) const;

  const CutNetwork* network_;
  const DeviceKind* cpu_kind_ = nullptr;  // of kCpu, where there is one
  std::vector<Slot> slots_;
  std::vector<std::uint64_t> domain_;  // by unit, a bit for each device
  std::vector<std::uint32_t> placed_;  // by unit; kNowhere while open
  std::uint32_t num_open_ = 0;
  // When large units crowd some device, not known which: the smallest open one of them.
  UnitId crowded_;
  std::vector<Flow> sizes_;  // of units worth counting, ascending
  Flow cpu_ = 0;             // held
  Flow cpu_compute_ = 0;     // what the units held there would take on an accelerator
  double cpu_bytes_ = 0;     // held
};

}  // namespace kerf::place
