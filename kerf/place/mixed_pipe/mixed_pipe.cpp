// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: units to devices so that the busiest device is least busy and every memory holds what is
// on it. Method: Mixed-Pipe's phases with its faults mended (specs/autopipe.md 2.5). Coarsening
// keeps to runs of a topological order, so that no block can wait for itself; the assignment takes
// the longest block first and minds memory; refinement minds it too. A heuristic: no bound on how
// far it is from the best.
#include "kerf/place/mixed_pipe/mixed_pipe.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kerf/base/infinity.h"
#include "kerf/base/sort_unique.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/cut/blocks.h"
#include "kerf/place/mixed_pipe/boundary.h"
#include "kerf/place/order/line.h"
#include "kerf/place/pack/memory_fill.h"
#include "kerf/place/refine/anneal.h"
#include "kerf/place/refine/trials.h"

namespace kerf::place {
namespace {

struct Candidate {
  Split device;
  double busiest = kInfinity;
  std::size_t blocks = 0;
  std::size_t line = 0;
  std::size_t asked = 0;  // blocks
};

class MixedPipe {
 public:
  MixedPipe(const Instance& instance, const LoadOptions& options)
      : options_(options),
        clock_(options.safety_stop()),
        units_(instance),
        lines_(topological_lines(instance)) {}

  LoadAnswer run() {
    std::vector<Trial> trials;
    for (const std::size_t count : block_counts()) {
      for (std::size_t line = 0; line < lines_.size(); ++line) trials.push_back({line, count});
    }
    // All numbers of blocks shortly, then the most promising again, ever fewer and longer.
    std::vector<Candidate> found;
    for (const double effort : {1.0, 4.0, 16.0}) {
      try_all(trials, effort, found);
      keep_promising(found, trials);
    }
    // Memory may be too short for anything but single units.
    const auto nothing = [](const Candidate& candidate) { return candidate.device.empty(); };
    if (std::all_of(found.begin(), found.end(), nothing)) {
      try_all({{0, units_.num_units()}}, 1, found);
    }
    return answer(found);
  }

 private:
  struct Trial {
    std::size_t line;
    std::size_t blocks;  // asked for
  };

  void try_all(const std::vector<Trial>& trials, double effort, std::vector<Candidate>& found) {
    constexpr double kRounds = 3;
    const std::size_t first = found.size();
    found.resize(first + trials.size());
    const double most_work = work() / kRounds / static_cast<double>(trials.size());
    run_trials(trials.size(), options_.threads, [&](std::size_t i) {
      if (first + i > 0 && clock_.struck()) return false;
      Rng rng(options_.seed * 0x9e3779b97f4a7c15ULL + first + i + 1);
      found[first + i] = try_blocks(trials[i], most_work, effort, rng);
      return false;
    });
  }

  // The trials of the best few, each twice: chance has its part.
  static void keep_promising(const std::vector<Candidate>& found, std::vector<Trial>& trials) {
    constexpr std::size_t kKept = 4;
    std::vector<const Candidate*> ranked;
    for (const Candidate& candidate : found) {
      if (!candidate.device.empty()) ranked.push_back(&candidate);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const Candidate* a, const Candidate* b) {
      return a->busiest < b->busiest;
    });
    if (ranked.empty()) return;
    ranked.resize(std::min(ranked.size(), kKept));
    trials.clear();
    for (const Candidate* candidate : ranked) {
      trials.push_back({candidate->line, candidate->asked});
      trials.push_back({candidate->line, candidate->asked});
    }
  }

  // L, or what is tried in its place.
  std::vector<std::size_t> block_counts() const {
    const int stages = options_.method.mixed_pipe.stages;
    if (stages > 0) return {static_cast<std::size_t>(stages)};
    std::vector<std::size_t> counts;
    for (const std::size_t times : {1U, 2U, 3U, 4U, 6U, 8U, 12U, 16U}) {
      // With the CPU and without: it may be too slow to be given a block.
      for (const std::size_t devices : {units_.cpu.index(), std::size_t{units_.num_devices}}) {
        counts.push_back(std::clamp<std::size_t>(times * devices, 1, units_.num_units()));
      }
    }
    sort_unique(counts);
    return counts;
  }

  Candidate try_blocks(const Trial& trial, double most_work, double effort, Rng& rng) const {
    Candidate out;
    const std::vector<UnitId> block = cut_blocks(lines_[trial.line], trial.blocks);
    const std::size_t blocks = *std::max_element(block.begin(), block.end()) + std::size_t{1};
    const Instance coarse = merge(units_, block, blocks);
    // The longest first, with room: Mixed-Pipe's assignment.
    const std::optional<Split> start = fill_memory(coarse, clock_, rng);
    if (!start) return out;
    const Split placed = share_out(coarse, *start, most_work * kBlockShare, effort, rng);
    Split device;
    for (const UnitId b : block) device.push_back(placed[b]);
    SplitState state(units_, device);
    improve_borders(units_, state, static_cast<std::int64_t>(most_work * kBorderShare), clock_);
    state.refresh();
    out.device.assign(state.devices().begin(), state.devices().end());
    const Loads loads = find_loads(units_, out.device);
    if (!loads.fits) return Candidate{};
    out.busiest = loads.busiest;
    out.blocks = blocks;
    out.line = trial.line;
    out.asked = trial.blocks;
    return out;
  }

  // Moves and swaps of whole blocks.
  Split share_out(const Instance& blocks, const Split& start, double most_work, double effort,
                  Rng& rng) const {
    constexpr double kWorkPerBlock = 4e3;
    const double count = blocks.num_units();
    AnnealSchedule schedule{2e-2, 1e-4, 8, 64};
    schedule.work = static_cast<std::int64_t>(
        std::min(most_work, effort * kWorkPerBlock * count * std::sqrt(count)));
    return anneal(blocks, start, schedule, options_.good_enough, clock_, rng).device;
  }

  double work() const { return kWorkPerSecond * options_.time_budget; }

  LoadAnswer answer(std::vector<Candidate>& found) const {
    constexpr double kAsGood = 1.005;
    double least = kInfinity;
    for (const Candidate& candidate : found) least = std::min(least, candidate.busiest);
    const Candidate* best = nullptr;
    for (const Candidate& candidate : found) {
      if (candidate.device.empty() || candidate.busiest > least * kAsGood) continue;
      const bool better = best == nullptr || candidate.blocks < best->blocks ||
                          (candidate.blocks == best->blocks && candidate.busiest < best->busiest);
      if (better) best = &candidate;
    }
    LoadAnswer out;
    out.objective = least;
    out.truncated = clock_.has_struck();
    if (best != nullptr) {
      out.device = best->device;
      out.objective = best->busiest;
    }
    return out;
  }

  static constexpr double kWorkPerSecond = 1.8e8;  // as refine's
  static constexpr double kBlockShare = 0.4;
  static constexpr double kBorderShare = 0.4;

  const LoadOptions& options_;
  StopClock clock_;
  const Instance& units_;
  std::vector<Line> lines_;
};

}  // namespace

LoadAnswer mixed_pipe(const Instance& instance, const LoadOptions& options) {
  return MixedPipe(instance, options).run();
}

}  // namespace kerf::place
