// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Bin packing with one odd bin: depth-first, largest item first, equal bins taken once (Martello
// and Toth 1990, chapter 8), refuted states remembered, and a bound by divisible items for what is
// left. Exact within its budget.
#include "kerf/place/pack/packing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "kerf/base/infinity.h"
#include "kerf/base/stop_clock.h"

namespace kerf::place {
namespace {

// Time that an equal bin saves for each unit of time that the slower one spends.
double gain_of(const PackItem& item) {
  return item.cpu_time > 0 ? item.time / item.cpu_time : kInfinity;
}

class Packer {
 public:
  Packer(std::vector<PackItem> items, int bins, double limit, std::int64_t& placements,
         SearchBudget& budget)
      : items_(std::move(items)), limit_(limit), placements_(&placements), budget_(&budget) {
    // What alone reaches the limit goes nowhere, and must not swallow the rest in sums.
    for (PackItem& item : items_) {
      if (item.time >= limit) item.time = kInfinity;
      if (item.cpu_time >= limit) item.cpu_time = kInfinity;
    }
    std::sort(items_.begin(), items_.end(), [](const PackItem& a, const PackItem& b) {
      return a.time != b.time ? a.time > b.time : a.cpu_time > b.cpu_time;
    });
    bins_.assign(static_cast<std::size_t>(std::max(bins, 0)), 0.0);
    find_room_on_cpu();
  }

  PackResult run() {
    const PackAnswer answer = place(0);
    return {answer, packed_};
  }

 private:
  // rest_[i]: the times of items i.. in all. Those that the slower bin could take come sorted by
  // what it gains for its time; how many of them is settled when the bound is asked.
  void find_room_on_cpu() {
    rest_.assign(items_.size() + 1, 0);
    for (std::size_t i = items_.size(); i-- > 0;) {
      rest_[i] = rest_[i + 1] + (std::isfinite(items_[i].time) ? items_[i].time : 0);
      if (items_[i].cpu_time < limit_ && std::isfinite(items_[i].time)) by_gain_.push_back(i);
    }
    std::stable_sort(by_gain_.begin(), by_gain_.end(), [&](std::size_t a, std::size_t b) {
      return gain_of(items_[a]) > gain_of(items_[b]);
    });
  }

  // Time that the slower bin can take off the others at most, items cut as needed.
  double relief(std::size_t from) const {
    double room = limit_ - cpu_;
    double gain = 0;
    for (const std::size_t i : by_gain_) {
      if (i < from) continue;
      const double cpu_time = items_[i].cpu_time;
      if (cpu_time >= room) return gain + (cpu_time > 0 ? items_[i].time * room / cpu_time : 0);
      room -= cpu_time;
      gain += items_[i].time;
    }
    return gain;
  }

  bool hopeless(std::size_t from) const {
    const double smallest = from < items_.size() ? items_.back().time : 0;
    double room = 0;
    for (const double load : bins_) {
      // A bin too full for the smallest item takes nothing more.
      if (smallest == 0 || load + smallest < limit_) room += limit_ - load;
    }
    constexpr double kRounding = 1e-12;
    return rest_[from] - relief(from) > room + kRounding * (room + rest_[from]);
  }

  PackAnswer place(std::size_t i) {
    if (i == items_.size()) {
      packed_ = std::max(cpu_, bins_.empty() ? 0 : *std::max_element(bins_.begin(), bins_.end()));
      return PackAnswer::fits;
    }
    if (hopeless(i)) return PackAnswer::refuted;
    std::vector<double> state(bins_);
    std::sort(state.begin(), state.end());
    state.push_back(cpu_);
    state.push_back(static_cast<double>(i));
    if (refuted_.contains(state)) return PackAnswer::refuted;
    constexpr std::int64_t kStepsOfAPlacement = 30;
    count_steps(kStepsOfAPlacement);
    if (--*placements_ < 0 || budget_->spent(0)) return PackAnswer::unknown;
    const PackAnswer answer = try_all(i);
    if (answer == PackAnswer::refuted) refuted_.insert(std::move(state));
    return answer;
  }

  PackAnswer try_all(std::size_t i) {
    const PackItem item = items_[i];
    std::vector<double> tried;
    for (double& load : bins_) {
      if (load + item.time >= limit_) continue;
      if (std::find(tried.begin(), tried.end(), load) != tried.end()) continue;
      tried.push_back(load);
      const double before = load;
      load += item.time;
      const PackAnswer answer = place(i + 1);
      load = before;
      if (answer != PackAnswer::refuted) return answer;
    }
    if (cpu_ + item.cpu_time >= limit_) return PackAnswer::refuted;
    const double before = cpu_;
    cpu_ += item.cpu_time;
    const PackAnswer answer = place(i + 1);
    cpu_ = before;
    return answer;
  }

  std::vector<PackItem> items_;
  double limit_;
  std::int64_t* placements_;
  SearchBudget* budget_;
  std::vector<double> bins_;
  double cpu_ = 0;
  double packed_ = 0;
  std::vector<double> rest_;
  std::vector<std::size_t> by_gain_;
  std::set<std::vector<double>> refuted_;
};

// How many of `ascending` stay below `room` together: the smallest do best.
std::size_t most_below(const std::vector<double>& ascending, double room) {
  std::size_t count = 0;
  double sum = 0;
  for (const double time : ascending) {
    sum += time;
    if (sum >= room) break;
    ++count;
  }
  return count;
}

// The items of at least one size, counted.
struct LargeItems {
  std::vector<double> times;      // ascending
  std::vector<double> cpu_times;  // ascending
};

LargeItems large_items(const std::vector<PackItem>& items, double least) {
  LargeItems large;
  for (const PackItem& item : items) {
    if (item.time < least) continue;
    if (std::isfinite(item.time)) large.times.push_back(item.time);
    large.cpu_times.push_back(item.cpu_time);
  }
  std::sort(large.times.begin(), large.times.end());
  std::sort(large.cpu_times.begin(), large.cpu_times.end());
  return large;
}

// A bin holds so many large items and no more; if all bins must be full of them, an item beside
// them has to fit next to the smallest.
bool counting_refutes(const std::vector<PackItem>& items, std::size_t bins, double limit,
                      double least) {
  const LargeItems large = large_items(items, least);
  const std::size_t in_bin = most_below(large.times, limit);
  const std::size_t in_all = bins * in_bin + most_below(large.cpu_times, limit);
  if (in_all < large.cpu_times.size()) return true;
  const std::size_t spare = in_all - large.cpu_times.size();
  if (spare >= in_bin) return false;
  double beside = 0;
  for (std::size_t i = 0; i < in_bin - spare; ++i) beside += large.times[i];
  return std::any_of(items.begin(), items.end(), [&](const PackItem& item) {
    return item.time < least && item.cpu_time >= limit && item.time + beside >= limit;
  });
}

bool counting_refutes(const std::vector<PackItem>& items, std::size_t bins, double limit) {
  std::vector<double> sizes;
  for (const PackItem& item : items) {
    // More than 16 to a bin are too small to count.
    if (item.time * 16 > limit && std::isfinite(item.time)) sizes.push_back(item.time);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return bins > 0 && std::any_of(sizes.begin(), sizes.end(), [&](double least) {
           return counting_refutes(items, bins, limit, least);
         });
}

}  // namespace

PackResult pack_below(std::vector<PackItem> items, int bins, double limit, std::int64_t& placements,
                      SearchBudget& budget) {
  if (counting_refutes(items, static_cast<std::size_t>(std::max(bins, 0)), limit)) {
    return {PackAnswer::refuted, 0};
  }
  return Packer(std::move(items), bins, limit, placements, budget).run();
}

double divisible_limit(std::vector<PackItem> items, double bins) {
  double forced = 0;  // on the slower bin
  double whole = 0;   // on the equal ones, come what may
  std::vector<PackItem> free;
  for (const PackItem& item : items) {
    const bool nowhere = !std::isfinite(item.cpu_time);
    if (bins == 0 || !std::isfinite(item.time)) {
      if (nowhere) return kInfinity;
      forced += item.cpu_time;
    } else if (nowhere) {
      whole += item.time;
    } else {
      free.push_back(item);
    }
  }
  if (bins == 0) return forced;
  std::stable_sort(free.begin(), free.end(),
                   [](const PackItem& a, const PackItem& b) { return gain_of(a) > gain_of(b); });
  // rest[i]: on the equal bins when the first i are moved over. Added up from the end: taking large
  // times off a sum would leave nothing of the small ones.
  std::vector<double> rest(free.size() + 1, whole);
  for (std::size_t i = free.size(); i-- > 0;) rest[i] = rest[i + 1] + free[i].time;
  // Move the best item over until the slower bin is the busier: the crossing is the answer.
  for (std::size_t i = 0; i < free.size(); ++i) {
    const PackItem& item = free[i];
    if (forced + item.cpu_time >= rest[i + 1] / bins) {
      const double slope = item.time / bins + item.cpu_time;
      const double part = slope > 0 ? (rest[i] / bins - forced) / slope : 0;
      return forced + std::clamp(part, 0.0, 1.0) * item.cpu_time;
    }
    forced += item.cpu_time;
  }
  return std::max(forced, whole / bins);
}

}  // namespace kerf::place
