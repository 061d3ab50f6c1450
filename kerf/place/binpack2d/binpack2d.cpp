// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: units to devices, evenly in time and in number of units of each size. Method: the 2-D
// bin packing of FTPipe (specs/autopipe.md 2.6), memory minded. A heuristic without a bound.
#include "kerf/place/binpack2d/binpack2d.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/place/order/line.h"
#include "kerf/place/pack/bins.h"

namespace kerf::place {
namespace {

using Run = std::vector<UnitId>;  // units

enum class Remainder : std::uint8_t { last_run, lightest_run };

// One-dimensional k-means (Lloyd), started at the quantiles: class by value, 0 the smallest.
std::vector<std::uint32_t> classify(const std::vector<double>& values, std::size_t count) {
  constexpr int kMostRounds = 100;
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  std::vector<double> centre;
  for (std::size_t c = 0; c < count; ++c) {
    centre.push_back(sorted[(2 * c + 1) * sorted.size() / (2 * count)]);
  }
  std::vector<std::uint32_t> of(values.size());
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<double> sum(count);
    std::vector<double> members(count);
    bool changed = false;
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint32_t nearest = 0;
      for (std::uint32_t c = 1; c < count; ++c) {
        if (std::abs(values[i] - centre[c]) < std::abs(values[i] - centre[nearest])) nearest = c;
      }
      changed = changed || of[i] != nearest;
      of[i] = nearest;
      sum[nearest] += values[i];
      members[nearest] += 1;
    }
    for (std::size_t c = 0; c < count; ++c) {
      if (members[c] > 0) centre[c] = sum[c] / members[c];
    }
    if (!changed && round > 0) break;
  }
  return of;
}

class Packer {
 public:
  Packer(const Instance& units, const Line& line) : units_(units), line_(line) {
    for (std::size_t i = 0; i < line.order.size(); ++i) {
      const bool heavy = units.accelerator_time[line.order[i]] > 0;
      if (heavy) heavy_.push_back(i);
    }
    // A line without any time: all units count.
    if (heavy_.empty()) {
      heavy_ = count_up<std::size_t>(line.order.size());
    }
  }

  // Nothing: it does not fit.
  std::optional<Split> pack(std::size_t num_classes, Remainder remainder) const {
    const std::vector<std::vector<Run>> classes = make_runs(num_classes, remainder);
    Bins bins(units_);
    for (std::size_t c = 0; c < classes.size(); ++c) {
      const bool placed =
          c == 0 ? place_in_order(classes[c], bins) : place_best_fit(classes[c], bins);
      if (!placed) return std::nullopt;
    }
    return bins.take_devices();
  }

 private:
  // Units that take no time stay with the heavy one before them; those in front, with the first.
  Run with_followers(std::size_t heavy) const {
    const std::size_t from = heavy == 0 ? 0 : heavy_[heavy];
    const std::size_t to = heavy + 1 < heavy_.size() ? heavy_[heavy + 1] : line_.order.size();
    return {line_.order.begin() + static_cast<std::ptrdiff_t>(from),
            line_.order.begin() + static_cast<std::ptrdiff_t>(to)};
  }

  double time_of(const Run& run) const {
    double time = 0;
    for (const UnitId unit : run) time += units_.accelerator_time[unit];
    return time;
  }

  // By class, the one that ends last first; at most one run for each accelerator.
  std::vector<std::vector<Run>> make_runs(std::size_t num_classes, Remainder remainder) const {
    std::vector<double> times;
    for (const std::size_t i : heavy_) times.push_back(units_.accelerator_time[line_.order[i]]);
    const std::vector<std::uint32_t> of = classify(times, std::min(num_classes, times.size()));
    std::vector<std::vector<std::size_t>> members(num_classes);
    for (std::size_t h = 0; h < heavy_.size(); ++h) members[of[h]].push_back(h);
    std::erase_if(members, [](const auto& list) { return list.empty(); });
    std::stable_sort(members.begin(), members.end(),
                     [](const auto& a, const auto& b) { return a.back() > b.back(); });
    std::vector<std::vector<Run>> classes;
    for (const std::vector<std::size_t>& list : members) {
      classes.push_back(cut_class(list, remainder));
    }
    return classes;
  }

  std::vector<Run> cut_class(const std::vector<std::size_t>& members, Remainder remainder) const {
    const std::size_t bins = std::max<std::size_t>(units_.cpu, 1);
    const std::size_t count = std::min(members.size(), bins);
    const std::size_t each = members.size() / count;
    const std::size_t left_over = members.size() - each * count;
    std::vector<std::size_t> length(count, each);
    if (remainder == Remainder::last_run) {
      length.back() += left_over;
    } else {
      lengthen_lightest(members, length, left_over);
    }
    std::vector<Run> runs;
    std::size_t next = 0;
    for (const std::size_t units : length) {
      Run& run = runs.emplace_back();
      for (std::size_t i = 0; i < units; ++i) {
        const Run more = with_followers(members[next++]);
        run.insert(run.end(), more.begin(), more.end());
      }
    }
    return runs;
  }

  // One more unit at a time for the run that is lightest as they stand.
  void lengthen_lightest(const std::vector<std::size_t>& members, std::vector<std::size_t>& length,
                         std::size_t left_over) const {
    for (; left_over > 0; --left_over) {
      std::size_t lightest = 0;
      double least = kInfinity;
      std::size_t next = 0;
      for (std::size_t r = 0; r < length.size(); ++r) {
        double time = 0;
        for (std::size_t i = 0; i < length[r]; ++i) {
          time += units_.accelerator_time[line_.order[heavy_[members[next++]]]];
        }
        if (time >= least) continue;
        least = time;
        lightest = r;
      }
      ++length[lightest];
    }
  }

  bool place_in_order(const std::vector<Run>& runs, Bins& bins) const {
    for (SlotId i{0}; i < runs.size(); ++i) {
      if (units_.cpu > 0 && bins.fits(runs[i], i)) {
        bins.put(runs[i], i);
      } else if (!bins.put_where_done_first(runs[i])) {
        return false;
      }
    }
    return true;
  }

  bool place_best_fit(std::vector<Run> runs, Bins& bins) const {
    std::stable_sort(runs.begin(), runs.end(),
                     [&](const Run& a, const Run& b) { return time_of(a) > time_of(b); });
    return std::all_of(runs.begin(), runs.end(),
                       [&](const Run& run) { return bins.put_where_done_first(run); });
  }

  const Instance& units_;
  const Line& line_;
  std::vector<std::size_t> heavy_;  // places of the line
};

}  // namespace

LoadAnswer binpack2d(const Instance& instance, const LoadOptions& /*options*/) {
  const Line line = own_line(instance);
  const Packer packer(instance, line);
  LoadAnswer out;
  out.objective = kInfinity;
  for (const std::size_t classes : {2U, 1U, 3U, 4U}) {
    for (const Remainder remainder : {Remainder::last_run, Remainder::lightest_run}) {
      std::optional<Split> device = packer.pack(classes, remainder);
      if (!device) continue;
      const Loads loads = find_loads(instance, *device);
      if (!loads.fits || loads.busiest >= out.objective) continue;
      out.device = *std::move(device);
      out.objective = loads.busiest;
    }
  }
  return out;
}

}  // namespace kerf::place
