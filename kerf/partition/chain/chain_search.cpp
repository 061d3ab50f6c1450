// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Depth-first branch and bound over contiguous splits; best-looking ends first. Optimal unless the
// work limit stops it; exponential at worst, a straight walk when the bounds are tight.
#include "kerf/partition/chain/chain_search.h"

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
  std::size_t end;
};

class ChainSearch {
 public:
  ChainSearch(const Problem& problem, const Intervals& intervals, const ChainModel& model,
              const ChainTable& table, const std::vector<bool>& cuttable, std::int64_t work_limit)
      : problem_(problem),
        intervals_(intervals),
        model_(model),
        table_(table),
        cuttable_(cuttable),
        work_left_(work_limit),
        placed_(problem, intervals) {}

  ChainSearchResult run() {
    cuts_.push_back(0);
    descend(0, 0, 0);
    result_.truncated = work_left_ <= 0;
    return std::move(result_);
  }

 private:
  // Places devices from `device` on at `position`; `busiest` is the largest load so far.
  void descend(std::size_t device, std::size_t position, double busiest) {
    if (deadline_passed()) work_left_ = 0;
    if (work_left_ <= 0) return;
    if (position == intervals_.num_nodes()) return finish(busiest);
    if (device == model_.devices.size()) return;
    for (const Candidate& candidate : candidates(device, position, busiest)) {
      if (candidate.bound >= best_) break;
      placed_.place(position, candidate.end, model_.ids[device]);
      cuts_.push_back(candidate.end);
      descend(device + 1, candidate.end, std::max(busiest, candidate.load));
      cuts_.pop_back();
    }
  }

  // Ends for the device's interval (its start: leave it out), by bound, then by position.
  std::vector<Candidate> candidates(std::size_t device, std::size_t start, double busiest) {
    std::vector<Candidate> list;
    const auto add = [&](double load, std::size_t end) {
      const double bound = std::max({busiest, load, table_.best(device + 1, end)});
      if (bound < best_) list.push_back({bound, load, end});
    };
    add(0, start);
    double received = 0;
    intervals_.scan(start, [&](std::size_t end, const IntervalFigures& figures) {
      --work_left_;
      const DeviceModel& self = model_.devices[device];
      if (figures.least_memory() > self.limit || figures.time * self.slowness >= best_)
        return false;
      received += placed_.received_time(model_.ids[device], start, end - 1);
      if (cuttable_[end] && self.memory(figures, model_.n_microbatches) <= self.limit) {
        add(self.load(figures, received), end);
      }
      return work_left_ > 0;
    });
    std::stable_sort(list.begin(), list.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
    return list;
  }

  // Loads were true but for what makers pay: only the whole plan tells.
  void finish(double busiest) {
    if (busiest >= best_) return;
    work_left_ -= static_cast<std::int64_t>(intervals_.num_nodes());
    const auto outcome = finish_plan(
        problem_, partition::intervals(cuts_),
        {model_.ids.begin(), model_.ids.begin() + static_cast<std::ptrdiff_t>(cuts_.size() - 1)},
        "chain");
    if (!outcome) {
      keep_closest(result_.closest, outcome.reason());
      return;
    }
    const double value = std::max(busiest, outcome->busiest.count);
    if (value >= best_) return;
    best_ = value;
    result_.cuts = cuts_;
  }

  const Problem& problem_;
  const Intervals& intervals_;
  const ChainModel& model_;
  const ChainTable& table_;
  const std::vector<bool>& cuttable_;
  std::int64_t work_left_;
  Placed placed_;
  std::vector<std::size_t> cuts_;
  double best_ = kInfinity;
  ChainSearchResult result_;
};

}  // namespace

ChainSearchResult search_chain(const Problem& problem, const Intervals& intervals,
                               const ChainModel& model, const ChainTable& table,
                               const std::vector<bool>& cuttable, std::int64_t work_limit) {
  return ChainSearch(problem, intervals, model, table, cuttable, work_limit).run();
}

}  // namespace kerf::partition
