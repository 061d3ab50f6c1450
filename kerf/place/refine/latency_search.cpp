// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: the split whose one sample takes least time (spec of find_latency), memory respected.
// Method: few units: all splits. Else simulated annealing from several starts, then from the best
// of them again at lower heat, then again and again from the best at higher heats until the work is
// used up. Moves take single units, runs of a topological order, the rest of a device's run, the
// holders of a tensor, or what hangs together on a device, so that borders of pieces wander and
// whole pieces change places. O(edges) a proposal; not optimal in general.
#include "kerf/place/refine/latency_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/base/infinity.h"
#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/refine/found_splits.h"
#include "kerf/place/refine/latency_enumeration.h"
#include "kerf/place/refine/latency_starts.h"
#include "kerf/place/refine/latency_timer.h"

namespace kerf::place {
namespace {

constexpr double kWorkPerSecond = 5e7;       // about 0.5 s of a core of 2.8 GHz
constexpr double kWorkPerSquaredUnit = 3e3;  // before the first restart
constexpr std::int64_t kWorkPerSplit = 16;   // what does not grow with the edges

struct Heat {
  double first;
  double last;
};

// An annealing to do.
struct Attempt {
  Split start;
  Heat heat;
};

// What all trials read.
struct Setting {
  const LoadProblem& problem;
  LoweredLoad lowered;
  Order order;
  bool serial;
};

class LatencyAnnealer {
 public:
  LatencyAnnealer(const Setting& setting, const Split& start, Rng& rng)
      : setting_(setting),
        units_(setting.lowered.instance),
        rng_(rng),
        timer_(setting.problem, setting.serial),
        device_(start),
        node_device_(setting.lowered.to_nodes(start)),
        bytes_(units_.num_devices, 0),
        place_(start.size()),
        seen_(start.size(), 0) {
    for (std::uint32_t i = 0; i < setting.order.size(); ++i) place_[setting.order[i]] = i;
    sum_bytes();
    now_ = timer_.latency(node_device_);
    best_ = {start, now_, 0};
  }

  Found run(std::int64_t work, Heat heat, double good_enough, const StopClock& clock) {
    constexpr int kBetweenLooks = 16;
    double warmth = heat.first;
    std::int64_t counted = best_.work;
    for (int i = 0; best_.work < work && best_.objective > good_enough; ++i) {
      if (i % kBetweenLooks == 0) {
        count_steps(best_.work - std::exchange(counted, best_.work));
        if (clock.struck()) break;
        const double done = static_cast<double>(best_.work) / static_cast<double>(work);
        warmth = best_.objective * heat.first * std::pow(heat.last / heat.first, done);
      }
      propose(warmth);
    }
    return std::move(best_);
  }

 private:
  std::uint32_t below(std::size_t bound) { return static_cast<std::uint32_t>(rng_.below(bound)); }
  UnitId any_unit() { return UnitId{below(units_.num_units())}; }
  SlotId any_device() { return SlotId{below(units_.num_devices)}; }

  void propose(double warmth) {
    best_.work += kWorkPerSplit;
    const UnitId unit = any_unit();
    moved_.clear();
    const std::uint32_t kind = below(12);
    if (kind < 4) {
      put(unit, target(unit));
    } else if (kind < 5) {
      swap(unit, any_unit());
    } else if (kind < 8) {
      put_run(place_[unit], run_length(), target(unit), false);
    } else if (kind < 10) {
      put_run(place_[unit], units_.num_units(), target(unit), true);
    } else if (kind < 11) {
      put_connected(unit, any_device());
    } else if (below(2) == 0) {
      put_holders(unit, any_device());
    } else {
      swap_connected(unit, any_unit());
    }
    if (moved_.empty()) return;
    if (!fits()) return undo();
    best_.work += timer_.work();
    const double after = timer_.latency(node_device_);
    if (after > now_ && after - now_ > -warmth * std::log(rng_.uniform())) return undo();
    now_ = after;
    if (now_ >= best_.objective * (1 - kEqual)) return;
    sum_bytes();
    if (!fits()) return;
    best_.objective = now_;
    best_.device = device_;
  }

  // A neighbour's device, or any.
  SlotId target(UnitId unit) {
    const auto nets = units_.nets[unit];
    if (nets.empty() || below(3) == 0) return any_device();
    const auto pins = units_.pins[nets[below(nets.size())]];
    return device_[pins[below(pins.size())]];
  }

  // Short ones often, long ones now and then.
  std::uint32_t run_length() {
    const double most = std::log(std::max(2.0, 0.5 * units_.num_units()));
    return static_cast<std::uint32_t>(std::exp(rng_.uniform() * most)) + 1;
  }

  // Units in order from `begin`, forwards or backwards; `same`: while they share its device.
  void put_run(std::uint32_t begin, std::uint32_t length, SlotId to, bool same) {
    const bool forward = below(2) == 0;
    const SlotId from = device_[setting_.order[begin]];
    const std::uint32_t count = units_.num_units();
    for (std::uint32_t i = 0; i < length; ++i) {
      if (forward ? begin + i >= count : begin < i) break;
      const UnitId unit = setting_.order[forward ? begin + i : begin - i];
      if (same && device_[unit] != from) break;
      put(unit, to);
    }
  }

  void swap(UnitId unit, UnitId other) {
    const SlotId to = device_[other];
    put(other, device_[unit]);
    put(unit, to);
  }

  // All that hold one of its tensors.
  void put_holders(UnitId unit, SlotId to) {
    const auto nets = units_.nets[unit];
    if (nets.empty()) return put(unit, to);
    for (const UnitId pin : units_.pins[nets[below(nets.size())]]) put(pin, to);
  }

  void put_connected(UnitId unit, SlotId to) {
    find_connected(unit);
    for (const UnitId each : connected_) put(each, to);
  }

  void swap_connected(UnitId unit, UnitId other) {
    const SlotId from = device_[unit];
    const SlotId to = device_[other];
    if (from == to) return;
    find_connected(unit);
    const std::vector<UnitId> first = connected_;
    find_connected(other);
    for (const UnitId each : first) put(each, to);
    for (const UnitId each : connected_) put(each, from);
  }

  // The units of its device that tensors join to it, over others of that device.
  void find_connected(UnitId unit) {
    ++sight_;
    connected_.assign(1, unit);
    seen_[unit] = sight_;
    for (std::size_t i = 0; i < connected_.size(); ++i) {
      for (const NetId net : units_.nets[connected_[i]]) {
        best_.work += 1;
        for (const UnitId pin : units_.pins[net]) {
          if (seen_[pin] == sight_ || device_[pin] != device_[unit]) continue;
          seen_[pin] = sight_;
          connected_.push_back(pin);
        }
      }
    }
  }

  void put(UnitId unit, SlotId to) {
    if (device_[unit] == to || !units_.runs_on(unit, to)) return;
    moved_.emplace_back(unit, device_[unit]);
    set(unit, to);
  }

  void set(UnitId unit, SlotId to) {
    bytes_[device_[unit]] -= units_.bytes[unit];
    bytes_[to] += units_.bytes[unit];
    device_[unit] = to;
    for (const std::uint32_t node : setting_.lowered.nodes[unit]) node_device_[node] = to;
  }

  // From scratch: additions and subtractions leave rests.
  void sum_bytes() {
    std::fill(bytes_.begin(), bytes_.end(), 0.0);
    for (std::size_t u = 0; u < device_.size(); ++u) bytes_[device_[u]] += units_.bytes[u];
  }

  bool fits() const {
    for (SlotId d{0}; d < units_.num_devices; ++d) {
      if (bytes_[d] > units_.memory[d]) return false;
    }
    return true;
  }

  void undo() {
    for (auto i = moved_.rbegin(); i != moved_.rend(); ++i) set(i->first, i->second);
  }

  const Setting& setting_;
  const Instance& units_;
  Rng& rng_;
  LatencyTimer timer_;
  Split device_, node_device_;
  std::vector<double> bytes_;                     // by device
  std::vector<std::uint32_t> place_;              // by unit, in the order
  std::vector<std::pair<UnitId, SlotId>> moved_;  // unit, device before
  std::vector<UnitId> connected_;
  std::vector<std::uint64_t> seen_;  // by unit: when find_connected last met it
  std::uint64_t sight_ = 0;
  double now_ = 0;
  Found best_;
};

class LatencySearch {
 public:
  LatencySearch(const LoadProblem& problem, const LoadOptions& options, bool serial)
      : options_(options),
        clock_(options.safety_stop()),
        setting_(make_setting(problem, serial)),
        found_(options) {
    work_ = kWorkPerSecond * std::clamp(options.time_budget, 0.0, 1e6);
  }

  LoadAnswer run() {
    Rng rng(options_.seed ^ 0x6c62272e07bb0142ULL);
    for (Split& start : latency_starts(setting_.lowered.instance, setting_.order, clock_, rng)) {
      add_start(std::move(start));
    }
    if (may_try_all()) {
      try_all();
      return found_.answer(tried_all_, clock_);
    }
    const auto count = static_cast<double>(setting_.lowered.instance.num_units());
    const double first = std::min(work_, kWorkPerSquaredUnit * count * count);
    // The first rounds choose, the last ones finish.
    cool(8, 0.4 * first, {3e-3, 3e-5});
    cool(3, 0.3 * first, {1e-3, 1e-5});
    cool(2, 0.3 * first, {3e-4, 1e-6});
    while (!over()) restart();
    return found_.answer(tried_all_, clock_);
  }

 private:
  static Setting make_setting(const LoadProblem& problem, bool serial) {
    KERF_CHECK(problem.charging == Charging::host_staged,
               "latency is charged as host_staged, and this problem is not");
    KERF_CHECK(problem.slowness.empty() && problem.memories.empty(),
               "latency is searched for equal accelerators");
    LoweredLoad lowered = lower_load(problem);
    const LatencyTimer timer(problem, serial);
    Order order = order_of_units(lowered, timer.order());
    return {problem, std::move(lowered), std::move(order), serial};
  }

  double latency(const Split& device) const {
    if (!find_loads(setting_.lowered.instance, device).fits) return kInfinity;
    return find_latency(setting_.problem, setting_.lowered.to_nodes(device), setting_.serial);
  }

  void add_start(Split start) {
    const double objective = latency(start);
    found_.keep({std::move(start), objective, 0});
  }

  bool may_try_all() const {
    const LatencyTimer timer(setting_.problem, setting_.serial);
    const auto each = static_cast<double>(timer.work() + kWorkPerSplit);
    const double splits = count_splits(setting_.lowered.instance);
    return splits <= 1 || splits * each <= 0.5 * work_;
  }

  void try_all() {
    if (found_.is_good()) return;
    LatencyTimer timer(setting_.problem, setting_.serial);
    LoadAnswer all = try_all_splits(setting_.lowered, timer, options_.good_enough, clock_);
    tried_all_ = all.optimal;
    Found best{std::move(all.device), all.objective, all.work};
    if (!best.device.empty()) check(best);
    found_.keep(std::move(best));
  }

  bool over() const {
    return found_.empty() || found_.is_good() || found_.work() >= work_ || clock_.struck();
  }

  // The best `kept` again.
  void cool(std::size_t kept, double work, Heat heat) {
    if (over()) return;
    std::vector<Attempt> attempts;
    for (const Found& found : found_.keep_best(kept)) attempts.push_back({found.device, heat});
    round(attempts, work);
  }

  // From the best two with heats that let go of a little or of nearly everything; ever longer.
  void restart() {
    constexpr double kHeats[] = {0.3, 0.1, 0.03, 0.01};
    std::vector<Attempt> attempts;
    for (const Found& found : found_.keep_best(2)) {
      for (const double heat : kHeats) attempts.push_back({found.device, {heat, 1e-3 * heat}});
    }
    round(attempts, std::min(work_ - found_.work(), 0.5 * found_.work()));
  }

  void round(const std::vector<Attempt>& attempts, double work) {
    const auto each = static_cast<std::int64_t>(work / static_cast<double>(attempts.size())) + 1;
    found_.run(attempts.size(), [&](std::size_t i, Rng& rng) {
      LatencyAnnealer annealer(setting_, attempts[i].start, rng);
      Found found = annealer.run(each, attempts[i].heat, options_.good_enough, clock_);
      check(found);
      return found;
    });
  }

  // The objective from scratch; the timer must agree.
  void check(Found& found) const {
    const double objective = latency(found.device);
    KERF_DCHECK(std::abs(objective - found.objective) <= 1e-6 * (1 + found.objective),
                "the timer's latency differs from find_latency's");
    found.objective = objective;
  }

  const LoadOptions& options_;
  StopClock clock_;
  Setting setting_;
  FoundSplits found_;
  double work_;
  bool tried_all_ = false;
};

}  // namespace

LoadAnswer latency_search(const LoadProblem& problem, const LoadOptions& options, bool serial) {
  return LatencySearch(problem, options, serial).run();
}

}  // namespace kerf::place
