// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The dynamic program behind `chain`. Private to partition/chain/.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kerf/partition/chain/intervals.h"
#include "kerf/plan/problem.h"

namespace kerf::partition {

inline constexpr double kNever = std::numeric_limits<double>::infinity();
inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// What an interval costs on one device, as far as it can be told without knowing where the stages
// before it run: the best of the links from the devices before it, and of its memory what does not
// depend on the others.
struct DeviceModel {
  double slowness = 1;  // 1 / speed
  double latency = 0;   // a tensor
  double per_byte = 0;
  std::int64_t limit = kNoLimit;
  bool alone = true;  // the only device of its memory

  double load(const IntervalFigures& figures) const {
    return figures.time * slowness + latency * static_cast<double>(figures.received_count) +
           per_byte * static_cast<double>(figures.received);
  }
  std::int64_t memory(const IntervalFigures& figures, std::int64_t n_microbatches) const {
    // Tensors from its own memory take no buffer; which those are is not known here.
    return figures.memory(n_microbatches) - (alone ? 0 : figures.received);
  }
};

struct ChainModel {
  std::vector<DeviceModel> devices;
  std::int64_t n_microbatches = 1;
  bool exact = true;  // the models above are the truth, not bounds
};
ChainModel make_chain_model(const Problem& problem);

// Splits the positions 0 .. num_nodes at some of the cuttable ones.
enum class Measure {
  busiest,   // the largest load
  sum,       // the sum of loads, none above the cap
  overflow,  // the largest number of bytes over a limit; 0 when everything fits
};

// best(p, i): the least measure of nodes i .. end on devices p .. end, with no load above `cap`
// (`overflow`: no excess above it). kNever: impossible.
class ChainTable {
 public:
  ChainTable(const Intervals& intervals, const ChainModel& model);

  void solve(const std::vector<bool>& cuttable, Measure measure, double cap);

  double best(std::size_t device, std::size_t position) const {
    return best_[position * width_ + device];
  }
  // Ends of the devices' intervals in an optimal split, starting with 0; equal ends: left out.
  std::vector<std::size_t> cuts() const;

 private:
  void solve_from(std::size_t start, const std::vector<bool>& cuttable, Measure measure,
                  double cap);
  // Devices that can start at a position when no load is above the cap. Those before it must be
  // able to do the work before the position and to hold its weights, those from it on the same for
  // what comes after, and to receive what crosses. Both only get harder in one direction.
  struct Range {
    std::size_t low;
    std::size_t high;
  };
  Range useful_devices(std::size_t position, Measure measure, double cap) const;
  bool enough_before(std::size_t device, std::size_t position, double cap) const;
  bool enough_after(std::size_t device, std::size_t position, double cap) const;

  const Intervals& intervals_;
  const ChainModel& model_;
  std::size_t width_;
  std::vector<double> speed_before_;  // by device: of the devices before it, together
  std::vector<double> room_before_;   // their memory limits, together
  std::vector<double> room_after_;    // and those from it on
  DeviceModel best_link_;             // its latency and per_byte: no device receives faster
  double slowest_ = kNever;           // the least speed
  std::vector<double> best_;
  std::vector<std::int32_t>
      next_;  // where the interval ends; its own start: the device is left out
};

}  // namespace kerf::partition
