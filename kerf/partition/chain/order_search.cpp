// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Depth-first branch and bound over the next device and the end of its interval; best-looking ones
// first. Optimal unless the work limit stops it; exponential at worst.
#include "kerf/partition/chain/order_search.h"

#include <algorithm>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/chain/placed.h"
#include "kerf/partition/lower/contiguous.h"
#include "kerf/partition/raise/finish.h"

namespace kerf::partition {
namespace {

struct Candidate {
  double bound;
  double load;
  std::size_t device;
  std::size_t end;
};

class OrderSearch {
 public:
  OrderSearch(const Problem& problem, const Intervals& intervals, const ChainModel& model,
              const std::vector<DeviceClass>& classes, const ClassTable& table,
              const std::vector<bool>& cuttable, double best, std::int64_t work_limit)
      : problem_(problem),
        intervals_(intervals),
        model_(model),
        table_(table),
        cuttable_(cuttable),
        work_left_(work_limit),
        best_(best),
        placed_(problem, intervals),
        class_of_(model.devices.size()),
        twin_(model.devices.size()),
        used_(model.devices.size()) {
    for (std::size_t k = 0; k < classes.size(); ++k) {
      for (const DeviceId device : classes[k].members) class_of_[device.index()] = k;
    }
    find_twins();
  }

  OrderSearchResult run() {
    current_.cuts.push_back(0);
    descend(0, 0);
    result_.truncated = work_left_ <= 0;
    return std::move(result_);
  }

 private:
  // The device before each that it can change places with.
  void find_twins() {
    for (std::size_t d = 0; d < twin_.size(); ++d) {
      twin_[d] = d;
      for (std::size_t other = d; other-- > 0 && twin_[d] == d;) {
        if (interchangeable(problem_.cluster, DeviceId{other}, DeviceId{d})) twin_[d] = other;
      }
    }
  }

  // Continues after what is placed; `busiest` is the largest load so far.
  void descend(ClassState state, double busiest) {
    if (deadline_passed()) work_left_ = 0;
    if (work_left_ <= 0) return;
    const std::size_t position = current_.cuts.back();
    if (position == intervals_.num_nodes()) return finish(busiest);
    for (const Candidate& candidate : candidates(state, busiest)) {
      if (candidate.bound >= best_) break;
      placed_.place(position, candidate.end, DeviceId{candidate.device});
      current_.devices.emplace_back(candidate.device);
      current_.cuts.push_back(candidate.end);
      used_[candidate.device] = true;
      descend(table_.use(state, class_of_[candidate.device]), std::max(busiest, candidate.load));
      used_[candidate.device] = false;
      current_.cuts.pop_back();
      current_.devices.pop_back();
    }
  }

  // By bound, then by device as given, then by position.
  std::vector<Candidate> candidates(ClassState state, double busiest) {
    std::vector<Candidate> list;
    for (std::size_t d = 0; d < used_.size() && work_left_ > 0; ++d) {
      if (used_[d] || (twin_[d] != d && !used_[twin_[d]])) continue;
      add_ends(d, table_.use(state, class_of_[d]), busiest, list);
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
    return list;
  }

  void add_ends(std::size_t device, ClassState then, double busiest, std::vector<Candidate>& list) {
    const DeviceModel& self = model_.devices[device];
    const std::size_t start = current_.cuts.back();
    double received = 0;
    intervals_.scan(start, [&](std::size_t end, const IntervalFigures& figures) {
      --work_left_;
      if (figures.least_memory() > self.limit || figures.time * self.slowness >= best_)
        return false;
      received += placed_.received_time(DeviceId{device}, start, end - 1);
      if (cuttable_[end] && self.memory(figures, model_.n_microbatches) <= self.limit) {
        const double load = self.load(figures, received);
        const double bound = std::max({busiest, load, table_.best(then, end)});
        if (bound < best_) list.push_back({bound, load, device, end});
      }
      return work_left_ > 0;
    });
  }

  // Loads were true but for what makers pay: only the whole plan tells.
  void finish(double busiest) {
    if (busiest >= best_) return;
    work_left_ -= static_cast<std::int64_t>(intervals_.num_nodes());
    const auto outcome =
        finish_plan(problem_, partition::intervals(current_.cuts), current_.devices, "chain");
    if (!outcome) {
      keep_closest(result_.closest, outcome.reason());
      return;
    }
    const double value = std::max(busiest, outcome->busiest.count);
    if (value >= best_) return;
    best_ = value;
    result_.arrangement = current_;
  }

  const Problem& problem_;
  const Intervals& intervals_;
  const ChainModel& model_;
  const ClassTable& table_;
  const std::vector<bool>& cuttable_;
  std::int64_t work_left_;
  double best_;
  Placed placed_;
  std::vector<std::size_t> class_of_;  // by device
  std::vector<std::size_t> twin_;      // by device; itself: it has none before it
  std::vector<bool> used_;             // by device
  Arrangement current_;
  OrderSearchResult result_;
};

}  // namespace

OrderSearchResult search_orders(const Problem& problem, const Intervals& intervals,
                                const ChainModel& model, const std::vector<DeviceClass>& classes,
                                const ClassTable& table, const std::vector<bool>& cuttable,
                                double best, std::int64_t work_limit) {
  return OrderSearch(problem, intervals, model, classes, table, cuttable, best, work_limit).run();
}

}  // namespace kerf::partition
