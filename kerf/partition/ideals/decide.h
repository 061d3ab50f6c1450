// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Is there a chain of ideals whose stages all load their devices less than T?
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kerf/partition/ideals/lattice.h"
#include "kerf/partition/ideals/stage.h"

namespace kerf::partition::ideals {

// What a decision needs of an ideal, whatever T is.
struct IdealFigures {
  explicit IdealFigures(const Groups& groups, const Lattice& lattice);
  std::vector<double> accelerator_time;  // by ideal
  std::vector<double> crossing;          // by ideal, cost of nets inside and outside
  // By link: whatever plan goes on from the ideal, the same plan goes on from the link's end, with
  // the group left out, and no load rises.
  std::vector<bool> is_better_start;
};

class Decision {
 public:
  Decision(const Groups& groups, const Lattice& lattice, const IdealFigures& figures);

  // A chain with a largest load below `limit`, not always the best; an infinite load when there is
  // none, or when stop() said so (`stopped`).
  Chain find_below(double limit, const std::function<bool()>& stop);
  bool stopped = false;
  std::int64_t work = 0;  // stages looked at

 private:
  // How an ideal is reached with the fewest accelerators.
  struct Reached {
    std::vector<std::uint16_t> accelerators;
    std::vector<std::uint32_t> from;
    std::vector<double> load;
  };
  struct Frame {
    std::uint32_t ideal;
    std::uint32_t next_link;
    Sums sums;
  };
  enum Kind : std::size_t { kFresh = 0, kCpuUsed = 1 };

  void reset(double limit);
  double cpu_share(const std::vector<double>& gain) const;
  void expand_level(int level);
  void find_covered(int level);
  bool is_at(Kind kind, std::uint32_t ideal, int level) const;
  bool is_open(Kind kind, std::uint32_t ideal, int level) const;
  void grow_on_accelerator(Kind kind, std::uint32_t start, int level);
  void grow_on_cpu(std::uint32_t start, int level);
  void enter(std::uint32_t ideal);
  double left_for(Kind kind, int accelerators) const;
  bool can_finish(Kind kind, std::uint32_t ideal, int accelerators) const;
  void reach(Kind kind, std::uint32_t ideal, int accelerators, std::uint32_t from, double load);
  Chain read_back() const;
  void append_difference(std::uint32_t from, std::uint32_t to,
                         std::vector<std::uint32_t>& out) const;

  const Groups& groups_;
  const Lattice& lattice_;
  const IdealFigures& figures_;
  const std::function<bool()>* stop_ = nullptr;
  StageNets nets_;
  Walker walker_;
  Reached reached_[2];
  std::vector<bool> covered_[2];
  std::vector<std::uint32_t> seen_;  // by ideal, the expansion that saw it
  std::uint32_t expansion_ = 0;
  std::vector<Frame> stack_;
  std::vector<double> gain_time_;
  std::vector<double> gain_all_;
  double total_ = 0;
  double limit_ = 0;
  double cpu_time_share_ = 0;  // compute that the CPU can take below the limit
  double cpu_all_share_ = 0;   // and with the nets that go with it
};

}  // namespace kerf::partition::ideals
