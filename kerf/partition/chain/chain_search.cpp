// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Depth-first branch and bound over the next device and the end of its interval; best-looking ones
// first. Optimal unless the work limit stops it; exponential at worst, a straight walk when the
// bounds are tight.
#include "kerf/partition/chain/chain_search.h"

#include <algorithm>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/raise/finish.h"

namespace kerf::partition {
namespace {

// Where the nodes before a position run.
class Placed {
 public:
  Placed(const Problem& problem, const Intervals& intervals)
      : problem_(problem), intervals_(intervals), device_of_(intervals.num_nodes()) {}

  void place(std::size_t start, std::size_t end, DeviceId device) {
    std::fill(device_of_.begin() + static_cast<std::ptrdiff_t>(start),
              device_of_.begin() + static_cast<std::ptrdiff_t>(end), device);
  }
  // What `device` pays for what node c fetches when its interval starts at `start`.
  double received_time(DeviceId device, std::size_t start, std::size_t c) const {
    double time = 0;
    for (const Intervals::Received& tensor : intervals_.received(c)) {
      if (tensor.low >= static_cast<std::int32_t>(start)) continue;
      const DeviceId from = device_of_[static_cast<std::size_t>(tensor.maker)];
      time += receive_time(problem_, from, device, tensor.value);
    }
    return time;
  }

 private:
  const Problem& problem_;
  const Intervals& intervals_;
  std::vector<DeviceId> device_of_;  // by node, for those placed
};

struct Candidate {
  double bound;
  double load;
  std::size_t place;  // of the device in the model
  std::size_t end;    // its start: the device is left out
};

class ChainSearch {
 public:
  ChainSearch(const ChainInput& input, const Lineup& lineup, const ChainTable& table, double best,
              std::int64_t work_limit)
      : input_(input),
        lineup_(lineup),
        model_(lineup.model()),
        table_(table),
        work_left_(work_limit),
        best_(best),
        placed_(input.problem, input.intervals),
        twin_(lineup.num_devices()),
        used_(lineup.num_devices()) {
    if (!lineup.is_ordered()) find_twins();
  }

  ChainSearchResult run() {
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
        if (interchangeable(input_.problem.cluster, model_.ids[other], model_.ids[d])) {
          twin_[d] = other;
        }
      }
    }
  }

  // Continues after what is placed; `busiest` is the largest load so far.
  void descend(LineState state, double busiest) {
    if (deadline_passed()) work_left_ = 0;
    if (work_left_ <= 0) return;
    const std::size_t position = current_.cuts.back();
    if (position == input_.intervals.num_nodes()) return finish(busiest);
    for (const Candidate& candidate : candidates(state, busiest)) {
      if (candidate.bound >= best_) break;
      const LineState then = after(state, candidate.place);
      if (candidate.end == position) {
        descend(then, busiest);
        continue;
      }
      const DeviceId device = model_.ids[candidate.place];
      placed_.place(position, candidate.end, device);
      current_.devices.push_back(device);
      current_.cuts.push_back(candidate.end);
      used_[candidate.place] = true;
      descend(then, std::max(busiest, candidate.load));
      used_[candidate.place] = false;
      current_.cuts.pop_back();
      current_.devices.pop_back();
    }
  }

  LineState after(LineState state, std::size_t place) const {
    return state + lineup_.kinds()[lineup_.kind_at(place)].step;
  }

  // By bound, then by device as given, then by position.
  std::vector<Candidate> candidates(LineState state, double busiest) {
    std::vector<Candidate> list;
    if (lineup_.is_ordered()) {
      if (state == lineup_.num_devices()) return list;
      const std::size_t position = current_.cuts.back();
      const double left_out = std::max(busiest, table_.best(state + 1, position));
      if (left_out < best_) list.push_back({left_out, 0, state, position});
      add_ends(state, state, busiest, list);
    } else {
      for (std::size_t d = 0; d < used_.size() && work_left_ > 0; ++d) {
        if (used_[d] || (twin_[d] != d && !used_[twin_[d]])) continue;
        add_ends(d, state, busiest, list);
      }
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
    return list;
  }

  void add_ends(std::size_t place, LineState state, double busiest, std::vector<Candidate>& list) {
    const DeviceModel& self = model_.devices[place];
    const LineState then = after(state, place);
    const std::size_t start = current_.cuts.back();
    double received = 0;
    input_.intervals.scan(start, [&](std::size_t end, const IntervalFigures& figures) {
      --work_left_;
      if (figures.least_memory() > self.limit || figures.time * self.slowness >= best_)
        return false;
      received += placed_.received_time(model_.ids[place], start, end - 1);
      if (input_.cuttable[end] && self.memory(figures, model_.n_microbatches) <= self.limit) {
        const double load = self.load(figures, received);
        const double bound = std::max({busiest, load, table_.best(then, end)});
        if (bound < best_) list.push_back({bound, load, place, end});
      }
      return work_left_ > 0;
    });
  }

  // Loads were true but for what makers pay: only the whole plan tells.
  void finish(double busiest) {
    if (busiest >= best_) return;
    work_left_ -= static_cast<std::int64_t>(input_.intervals.num_nodes());
    const auto outcome = place(input_, current_);
    if (!outcome) {
      keep_closest(result_.closest, outcome.reason());
      return;
    }
    const double value = std::max(busiest, outcome->busiest.count);
    if (value >= best_) return;
    best_ = value;
    result_.arrangement = current_;
  }

  const ChainInput& input_;
  const Lineup& lineup_;
  const ChainModel& model_;
  const ChainTable& table_;
  std::int64_t work_left_;
  double best_;
  Placed placed_;
  std::vector<std::size_t> twin_;  // by place; itself: it has none before it
  std::vector<bool> used_;         // by place
  Arrangement current_;
  ChainSearchResult result_;
};

}  // namespace

ChainSearchResult search_chain(const ChainInput& input, const Lineup& lineup,
                               const ChainTable& table, double best, std::int64_t work_limit) {
  return ChainSearch(input, lineup, table, best, work_limit).run();
}

}  // namespace kerf::partition
