// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: the split of units over devices with the least max load. Method: starts (lines of units
// cut best possible, coarse problems annealed from scratch), then cycles as multilevel hypergraph
// partitioners run them (Walshaw 2004, iterated multilevel): merge units within devices at a random
// coarseness, anneal the coarse problem at low heat, keep what got better. The best few starts get
// most of the work. What no split below the incumbent can separate is merged first. Not optimal in
// general.
#include "kerf/place/refine/refine.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/base/infinity.h"
#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/coarsen/contract.h"
#include "kerf/place/cut/cut_order.h"
#include "kerf/place/order/grow.h"
#include "kerf/place/pack/memory_fill.h"
#include "kerf/place/refine/anneal.h"
#include "kerf/place/refine/found_splits.h"
#include "kerf/place/refine/trials.h"

namespace kerf::place {
namespace {

constexpr double kWorkPerSecond = 1.8e8;     // about 0.6 s of a core of 2.8 GHz
constexpr double kSizeInCache = 1e5;         // larger problems take longer for the same work
constexpr double kWorkPerSquaredUnit = 2e4;  // small problems are exhausted long before the clock
constexpr double kLeastWork = 2e6;
constexpr double kWorkPerCycleUnit = 12e3;  // of one cycle
// What takes time beside the annealing, for each unit and each unit of a net; in work.
constexpr double kWorkOfOrder = 250;
constexpr double kWorkOfContraction = 60;
constexpr double kWorkOfCoarsening = 300;
constexpr double kWorkPerAnnealedUnit = 1000;  // less than that hardly changes a split

bool is_split(const Instance& problem, const Split& device) {
  if (device.size() != problem.num_units()) return false;
  for (UnitId u{0}; u < device.size(); ++u) {
    if (device[u] >= problem.num_devices) return false;
    if (!problem.runs_on(u, device[u])) return false;
  }
  return true;
}

// What is not annealing, in steps as clocks count them.
void count_work(double work_each, double size) {
  count_steps(static_cast<std::int64_t>(work_each * size) / kWorkOfAStep);
}

// Infinite when it does not fit.
double objective_of(const Instance& problem, const Split& device) {
  if (!is_split(problem, device)) return kInfinity;
  const Loads loads = find_loads(problem, device);
  return loads.fits ? loads.busiest : kInfinity;
}

// What no split below the incumbent separates, merged.
struct Uncut {
  const Instance& problem() const { return contraction.instance; }

  Contraction contraction;
  double limit;
};

class Refiner {
 public:
  Refiner(const Instance& problem, const LoadOptions& options)
      : problem_(problem),
        options_(options),
        clock_(options.safety_stop()),
        found_(options),
        mean_load_(problem.total_accelerator_time() / std::max<std::uint32_t>(problem.cpu, 1)) {
    const auto count = static_cast<double>(problem.num_units());
    size_ = count + static_cast<double>(problem.pins.num_values());
    const double slower = std::max(1.0, size_ / kSizeInCache);
    work_ = std::min(kWorkPerSecond / slower * std::clamp(options.time_budget, 0.0, 1e6),
                     kLeastWork + kWorkPerSquaredUnit * count * count);
  }

  LoadAnswer run(std::span<const Split> starts) {
    for (const Split& start : starts) found_.keep({start, objective_of(problem_, start), 0});
    add_own_starts();
    if (!done()) coarse_starts(0.25);
    struct Round {
      std::size_t kept;
      double share;  // of the work
    };
    // Half of the cycles' work goes to two splits only; the other rounds choose them.
    for (const Round round : {Round{6, 0.2}, Round{3, 0.15}, Round{2, 0.2}, Round{2, 0.2}}) {
      if (!done()) cycles(round.kept, round.share);
    }
    return found_.answer(false, clock_);
  }

 private:
  bool done() const { return found_.empty() || found_.is_good() || clock_.struck(); }

  void add_order(const Order& order) {
    count_work(kWorkOfOrder, size_);
    if (auto split = cut_order(problem_, order, found_.objective(), clock_)) {
      const double objective = objective_of(problem_, *split);
      found_.keep({*std::move(split), objective, 0});
    }
  }

  void add_own_starts() {
    Rng rng = found_.next_rng();
    if (auto filled = fill_memory(problem_, clock_, rng)) {
      const double objective = objective_of(problem_, *filled);
      found_.keep({*std::move(filled), objective, 0});
    }
    if (problem_.num_units() == 0 || clock_.struck()) return;
    const UnitId end = far_unit(problem_, UnitId{0});
    const UnitId ends[] = {end, far_unit(problem_, end), UnitId{0}};
    // Large problems in little time do with fewer.
    auto left = std::max(2.0, 0.3 * work_ / (kWorkOfOrder * size_));
    for (const double noise : {0.0, 0.3}) {
      if (left-- < 1 || clock_.struck()) return;
      add_order(reach_order(problem_, rng));
      for (const UnitId first : ends) {
        if (left-- < 1 || clock_.struck()) return;
        add_order(grow_order(problem_, first, noise, clock_, rng));
      }
    }
  }

  // Anneals coarse problems from random splits.
  void coarse_starts(double share) {
    struct Kind {
      double fraction;  // of the units, left
      bool sharp;
    };
    // The small ones cost little, and where tensors are expensive they find the best splits.
    constexpr Kind kKinds[] = {{0.15, true}, {0.5, false}, {0.15, true}, {0.3, false},
                               {0.15, true}, {0.4, false}, {0.15, true}, {0.25, true},
                               {0.15, true}, {0.6, false}, {0.15, true}, {0.25, true}};
    const double trials = share * work_ / (3 * kWorkOfCoarsening * size_);
    const auto count =
        static_cast<std::size_t>(std::clamp(trials, 0.0, static_cast<double>(std::size(kKinds))));
    if (count == 0) return;
    double total = 0;
    for (std::size_t i = 0; i < count; ++i) total += kKinds[i].fraction;
    contract();
    found_.run(count, [&](std::size_t i, Rng& rng) {
      const Kind& kind = kKinds[i];
      return coarse_start(kind.fraction, kind.sharp, share * kind.fraction / total, rng);
    });
  }

  Found coarse_start(double fraction, bool sharp, double share, Rng& rng) const {
    constexpr double kFewest = 16;  // fewer units are not worth merging
    const auto target = static_cast<std::size_t>(
        std::max({fraction * static_cast<double>(uncut_->problem().num_units()), 3.0 * problem_.cpu,
                  kFewest}));
    if (clock_.struck()) return {};
    count_work(kWorkOfCoarsening, size_);
    const Contraction coarse = coarsen(uncut_->problem(), target, mean_load_, {}, clock_, rng);
    if (clock_.struck()) return {};
    const Instance& units = coarse.instance;
    const auto start = random_fill(units, clock_, rng);
    if (!start) return {};
    // Where tensors are expensive, loads are never even: the busiest device alone must lead.
    AnnealSchedule schedule = sharp ? AnnealSchedule{1e-2, 1e-5, 32, 64} : AnnealSchedule{};
    // Few units are large ones: less heat would not move them.
    schedule.first_heat =
        std::max(schedule.first_heat, 0.1 * problem_.cpu / std::max(units.num_units(), 1U));
    schedule.last_heat *= cooling(units);
    schedule.work = static_cast<std::int64_t>(share * work_);
    const Annealed found = annealed(units, *start, schedule, rng);
    return checked(
        {uncut_->contraction.to_fine(coarse.to_fine(found.device)), found.busiest, found.work});
  }

  void cycles(std::size_t kept, double share) {
    const double worth = share * work_ / (kWorkPerAnnealedUnit * std::max(size_, 1.0));
    kept = static_cast<std::size_t>(std::clamp(worth, 1.0, static_cast<double>(kept)));
    contract();
    const std::vector<Found> from = found_.keep_best(kept);
    found_.run(from.size(), [&](std::size_t i, Rng& rng) {
      return cycle(from[i], share / static_cast<double>(from.size()), rng);
    });
  }

  // Cycles from one split until the share of the work is used up.
  Found cycle(const Found& from, double share, Rng& rng) const {
    if (clock_.struck()) return {};
    const Instance& problem = uncut_->problem();
    Found best{uncut_->contraction.to_coarse(from.device), kInfinity, 0};
    best.objective = objective_of(problem, best.device);
    // The split may hold apart what only equally good ones can; merged, it may not fit.
    if (best.objective == kInfinity) return {};
    const double work = share * work_;
    const double most = kWorkPerCycleUnit * static_cast<double>(problem.num_units());
    AnnealSchedule schedule{1e-4, 1e-5, 16, 64,
                            static_cast<std::int64_t>(std::min(work / 3, most))};
    // Where merging would take most of the time, units move one by one.
    const bool merges = kWorkOfCoarsening * size_ < 0.5 * static_cast<double>(schedule.work);
    if (!merges) schedule.work = static_cast<std::int64_t>(work);
    const double cooler = cooling(problem);
    schedule.first_heat *= cooler;
    schedule.last_heat *= cooler;
    while (static_cast<double>(best.work) < work && !clock_.struck() && schedule.work > 0 &&
           !found_.is_good(best.objective)) {
      if (merges) {
        improve_coarse(best, schedule, rng);
      } else {
        improve(best, annealed(problem, best.device, schedule, rng));
      }
    }
    best.device = uncut_->contraction.to_fine(best.device);
    return checked(std::move(best));
  }

  void improve_coarse(Found& best, const AnnealSchedule& schedule, Rng& rng) const {
    const double fraction = 0.2 + 0.8 * rng.uniform();
    const auto target =
        static_cast<std::size_t>(fraction * static_cast<double>(uncut_->problem().num_units()));
    count_work(kWorkOfCoarsening, size_);
    const Contraction coarse =
        coarsen(uncut_->problem(), target, mean_load_, best.device, clock_, rng);
    if (clock_.struck()) return;
    Annealed found = annealed(coarse.instance, coarse.to_coarse(best.device), schedule, rng);
    found.device = coarse.to_fine(found.device);
    improve(best, std::move(found));
  }

  // Of many units each one is a small part of a load: heat that moves a few of hundreds would
  // scatter thousands.
  static double cooling(const Instance& units) {
    constexpr double kUnitsOfFullHeat = 400;
    return std::min(1.0, kUnitsOfFullHeat / std::max(units.num_units(), 1U));
  }

  // Equally good ones too: they lead elsewhere.
  static void improve(Found& best, Annealed found) {
    best.work += found.work;
    if (found.busiest > best.objective) return;
    best.objective = found.busiest;
    best.device = std::move(found.device);
  }

  Annealed annealed(const Instance& problem, const Split& start, const AnnealSchedule& schedule,
                    Rng& rng) const {
    Annealed found = anneal(problem, start, schedule, options_.good_enough, clock_, rng);
    KERF_DCHECK(agree(find_loads(problem, found.device).busiest, found.busiest),
                "kept-up loads differ from loads found from scratch");
    return found;
  }

  static bool agree(double a, double b) { return std::abs(a - b) <= 1e-6 * (1 + std::abs(b)); }

  // The objective from scratch; what was kept up move by move must agree. Infinite when sums of
  // bytes, rounded in another order, do not fit after all.
  Found checked(Found found) const {
    const double objective = objective_of(problem_, found.device);
    KERF_DCHECK(objective == kInfinity || agree(objective, found.objective),
                "kept-up loads differ from loads found from scratch");
    found.objective = objective;
    return found;
  }

  // What every split better than the best has together; large problems in little time go without.
  void contract() {
    const double limit = found_.objective() * (1 - kEqual);
    const bool affordable = kWorkOfContraction * size_ < 0.02 * work_;
    if (uncut_ && (!affordable || uncut_->limit == limit)) return;
    if (affordable) count_work(kWorkOfContraction, size_);
    uncut_ = Uncut{contract_uncuttable(problem_, affordable ? limit : kInfinity, clock_), limit};
  }

  const Instance& problem_;
  const LoadOptions& options_;
  StopClock clock_;
  FoundSplits found_;
  double mean_load_;
  double work_;  // to be done in all
  double size_;  // units and units of nets
  std::optional<Uncut> uncut_;
};

}  // namespace

LoadAnswer refine(const Instance& problem, const LoadOptions& options,
                  std::span<const Split> starts) {
  return Refiner(problem, options).run(starts);
}

}  // namespace kerf::place
