// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: units to devices so that the busiest device is least busy and every memory holds what is
// on it. Method: Mixed-Pipe's phases with its faults mended (specs/autopipe.md 2.5). Coarsening
// keeps to runs of a topological order, so that no block can wait for itself; the assignment takes
// the longest block first and minds memory; refinement minds it too. A heuristic: no bound on how
// far it is from the best.
#include "kerf/partition/mixed_pipe/mixed_pipe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "kerf/partition/mixed_pipe/boundary.h"
#include "kerf/partition/mixed_pipe/line.h"
#include "kerf/partition/refine/anneal.h"
#include "kerf/partition/refine/contract.h"
#include "kerf/partition/refine/memory_fill.h"
#include "kerf/partition/refine/tasks.h"
#include "kerf/partition/stop_clock.h"

namespace kerf::partition {
namespace {

using Split = std::vector<std::uint32_t>;

struct Candidate {
  Split device;
  double busiest = std::numeric_limits<double>::infinity();
  std::size_t blocks = 0;
};

class MixedPipe {
 public:
  MixedPipe(const LoadProblem& problem, const LoadOptions& options)
      : options_(options),
        clock_(options.safety_stop()),
        problem_(to_units(problem)),
        units_(problem_),
        lines_(topological_lines(ideals::to_groups(problem), units_)) {}

  LoadAnswer run() {
    const std::vector<std::size_t> counts = block_counts();
    const std::size_t tasks = counts.size() * lines_.size();
    std::vector<Candidate> found(tasks);
    run_tasks(tasks, options_.threads, [&](std::size_t i) {
      found[i] = try_blocks(lines_[i % lines_.size()], counts[i / lines_.size()], i,
                            1 / static_cast<double>(tasks));
      return false;
    });
    return answer(found);
  }

 private:
  // L, or what is tried in its place.
  std::vector<std::size_t> block_counts() const {
    if (options_.stages > 0) return {static_cast<std::size_t>(options_.stages)};
    const std::size_t devices = problem_.num_devices();
    std::vector<std::size_t> counts;
    for (const std::size_t times : {1U, 2U, 3U, 4U, 6U, 8U, 12U, 16U}) {
      const std::size_t count = std::min(times * devices, problem_.units.size());
      if (counts.empty() || count > counts.back()) counts.push_back(count);
    }
    return counts;
  }

  Candidate try_blocks(const Line& line, std::size_t count, std::size_t task, double share) const {
    Candidate out;
    if (clock_.struck() && task > 0) return out;
    Rng rng(options_.seed * 0x9e3779b97f4a7c15ULL + task + 1);
    const Split block = cut_blocks(line, count);
    const std::size_t blocks = *std::max_element(block.begin(), block.end()) + std::size_t{1};
    const Contraction coarse = merge(problem_, block, blocks);
    const FlatUnits coarse_units(coarse.problem);
    // The longest first, with room: Mixed-Pipe's assignment.
    const std::optional<Split> start = fill_memory(coarse_units, clock_, rng);
    if (!start) return out;
    const Split placed = share_out(coarse_units, *start,
                                   static_cast<std::int64_t>(work() * share * kBlockShare), rng);
    SplitState state(units_, coarse.to_fine(placed));
    improve_borders(units_, state, static_cast<std::int64_t>(work() * share * kBorderShare),
                    clock_);
    state.refresh();
    out.device.assign(state.devices().begin(), state.devices().end());
    const Loads loads = find_loads(problem_, out.device);
    if (!loads.fits) return Candidate{};
    out.busiest = loads.busiest;
    out.blocks = blocks;
    return out;
  }

  // Moves and swaps of whole blocks.
  Split share_out(const FlatUnits& blocks, const Split& start, std::int64_t most_work,
                  Rng& rng) const {
    constexpr double kWorkPerBlock = 4e3;
    AnnealSchedule schedule{2e-2, 1e-4, 8, 64};
    schedule.work = std::min(
        most_work, static_cast<std::int64_t>(kWorkPerBlock * blocks.num_units() *
                                             std::sqrt(static_cast<double>(blocks.num_units()))));
    return anneal(blocks, start, schedule, options_.good_enough, clock_, rng).device;
  }

  double work() const { return kWorkPerSecond * options_.time_budget; }

  LoadAnswer answer(std::vector<Candidate>& found) const {
    constexpr double kAsGood = 1.005;
    double least = std::numeric_limits<double>::infinity();
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
    out.truncated = clock_.struck();
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
  UnitProblem problem_;
  FlatUnits units_;
  std::vector<Line> lines_;
};

}  // namespace

LoadAnswer mixed_pipe(const LoadProblem& problem, const LoadOptions& options) {
  return MixedPipe(problem, options).run();
}

}  // namespace kerf::partition
