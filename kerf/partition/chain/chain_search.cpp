// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Depth-first branch and bound over contiguous splits; best-looking ends first. Optimal unless the
// work limit stops it; exponential at worst, a straight walk when the bounds are tight.
#include "kerf/partition/chain/chain_search.h"

#include <algorithm>

#include "kerf/partition/contiguous.h"
#include "kerf/partition/finish.h"

namespace kerf::partition {
namespace {

struct Candidate {
  double bound;
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
        device_of_(intervals.num_nodes()) {}

  ChainSearchResult run() {
    cuts_.push_back(0);
    descend(0, 0, 0);
    result_.truncated = work_left_ <= 0;
    return std::move(result_);
  }

 private:
  // Places devices from `device` on at `position`; `busiest` is the largest load so far.
  void descend(std::size_t device, std::size_t position, double busiest) {
    if (work_left_ <= 0) return;
    if (position == intervals_.num_nodes()) return finish(busiest);
    if (device == model_.devices.size()) return;
    for (const Candidate& candidate : candidates(device, position, busiest)) {
      if (candidate.bound >= best_) break;
      std::fill(device_of_.begin() + static_cast<std::ptrdiff_t>(position),
                device_of_.begin() + static_cast<std::ptrdiff_t>(candidate.end), DeviceId{device});
      cuts_.push_back(candidate.end);
      const double load =
          candidate.end == position ? 0 : true_load(device, position, candidate.end);
      descend(device + 1, candidate.end, std::max(busiest, load));
      cuts_.pop_back();
    }
  }

  // Ends for the device's interval (its start: leave it out), by bound, then by position.
  std::vector<Candidate> candidates(std::size_t device, std::size_t start, double busiest) {
    std::vector<Candidate> list;
    const auto add = [&](double load, std::size_t end) {
      const double bound = std::max({busiest, load, table_.best(device + 1, end)});
      if (bound < best_) list.push_back({bound, end});
    };
    add(0, start);
    double received = 0;
    intervals_.scan(start, [&](std::size_t end, const IntervalFigures& figures) {
      --work_left_;
      const DeviceModel& self = model_.devices[device];
      if (figures.least_memory() > self.limit || figures.time * self.slowness >= best_)
        return false;
      received += received_time(device, start, end - 1);
      if (cuttable_[end] && self.memory(figures, model_.n_microbatches) <= self.limit) {
        add(figures.time * self.slowness + received, end);
      }
      return work_left_ > 0;
    });
    std::stable_sort(list.begin(), list.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
    return list;
  }

  // What node c fetches when its interval starts at `start`.
  double received_time(std::size_t device, std::size_t start, std::size_t c) const {
    double time = 0;
    for (const Intervals::Received& tensor : intervals_.received(c)) {
      if (tensor.low >= static_cast<std::int32_t>(start)) continue;
      const DeviceId from = device_of_[static_cast<std::size_t>(tensor.maker)];
      time += problem_.cluster.link(from, DeviceId{device}).time(Bytes{tensor.bytes}).count;
    }
    return time;
  }

  double true_load(std::size_t device, std::size_t start, std::size_t end) const {
    double time = 0;
    double received = 0;
    for (std::size_t c = start; c < end; ++c) {
      time += intervals_.node_time(c);
      received += received_time(device, start, c);
    }
    return time * model_.devices[device].slowness + received;
  }

  void finish(double busiest) {
    if (busiest >= best_) return;
    work_left_ -= static_cast<std::int64_t>(intervals_.num_nodes());
    std::vector<DeviceId> devices;
    for (std::size_t d = 0; d + 1 < cuts_.size(); ++d) devices.emplace_back(d);
    const auto outcome = finish_plan(problem_, partition::intervals(cuts_), devices, "chain");
    if (outcome) {
      best_ = busiest;
      result_.cuts = cuts_;
    } else if (!result_.closest || outcome.reason().short_by < result_.closest->short_by) {
      result_.closest = outcome.reason();
    }
  }

  const Problem& problem_;
  const Intervals& intervals_;
  const ChainModel& model_;
  const ChainTable& table_;
  const std::vector<bool>& cuttable_;
  std::int64_t work_left_;
  std::vector<DeviceId> device_of_;  // by node, for those placed
  std::vector<std::size_t> cuts_;
  double best_ = kNever;
  ChainSearchResult result_;
};

}  // namespace

ChainSearchResult search_chain(const Problem& problem, const Intervals& intervals,
                               const ChainModel& model, const ChainTable& table,
                               const std::vector<bool>& cuttable, std::int64_t work_limit) {
  return ChainSearch(problem, intervals, model, table, cuttable, work_limit).run();
}

}  // namespace kerf::partition
