// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/by_position.h"

#include <algorithm>
#include <array>
#include <map>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/chain/coarse.h"
#include "kerf/partition/chain/measure.h"
#include "kerf/partition/chain/training_figures.h"
#include "kerf/partition/lower/contiguous.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/place/lower_bound.h"
#include "kerf/profile/optimizer.h"

namespace kerf::partition {
namespace {

constexpr std::size_t kMostPositions = 256;
constexpr std::size_t kMostTableSteps = 100'000'000;  // of one dynamic program
constexpr int kMostPlans = 60;                        // for one number of stages
constexpr std::size_t kSoonDone = 256;                // done in no time, whatever the clock says

// Where an interval stands: its ends, its place, and the number of stages.
using Standing = std::array<std::size_t, 4>;
using Learned = std::map<Standing, std::int64_t>;  // bytes

std::vector<std::size_t> numbers_of(const std::vector<bool>& chosen) {
  std::vector<std::size_t> numbers;
  for (std::size_t p = 0; p < chosen.size(); ++p) {
    if (chosen[p]) numbers.push_back(p);
  }
  return numbers;
}

// The dynamic program for pipelines of one number of stages, split at some positions.
class PlacedTable {
 public:
  PlacedTable(const ChainInput& input, const Lineup& lineup, const TrainingTable& table,
              std::size_t num_stages, const Learned& learned)
      : input_(input),
        lineup_(lineup),
        table_(table),
        num_stages_(num_stages),
        learned_(learned),
        moments_(
            pipeline_moments(input.problem.schedule, num_stages, input.problem.n_microbatches)),
        temporaries_(optimizer(input.problem.optimizer).temporaries),
        memory_(table.num_positions() * table.num_positions() * num_stages, kUnknown) {
    for (std::size_t s = 0; s < lineup.num_states(); ++s) {
      used_.push_back(static_cast<std::size_t>(lineup.sums(static_cast<LineState>(s)).used));
    }
  }

  // The split whose busiest device is least, below `cap`.
  std::optional<Arrangement> solve(double cap) {
    const std::size_t rows = table_.num_positions();
    best_.assign(rows * num_states(), kInfinity);
    steps_.assign(best_.size(), {});
    for (std::size_t state = 0; state < num_states(); ++state) {
      if (used_[state] == num_stages_) best_[(rows - 1) * num_states() + state] = 0;
    }
    for (std::size_t first = rows - 1; first-- > 0;) {
      for (std::size_t state = 0; state < num_states(); ++state) {
        const bool is_start = first == 0;
        if (used_[state] < num_stages_ && (used_[state] == 0) == is_start) {
          solve_from(first, static_cast<LineState>(state), cap);
        }
      }
    }
    if (best_[0] == kInfinity) return std::nullopt;
    return arrangement();
  }

 private:
  static constexpr std::int64_t kUnknown = -1;
  struct Step {
    std::uint32_t last = 0;
    std::uint32_t kind = 0;
  };

  std::size_t num_states() const { return lineup_.num_states(); }
  std::size_t slot(std::size_t first, std::size_t last, std::size_t place) const {
    return (first * table_.num_positions() + last) * num_stages_ + place;
  }

  std::int64_t memory(std::size_t first, std::size_t last, std::size_t place, bool host) {
    std::int64_t& known = memory_[slot(first, last, place)];
    if (known != kUnknown) return known;
    const auto found =
        learned_.find({table_.position(first), table_.position(last), place, num_stages_});
    if (found != learned_.end()) return known = found->second;
    const TrainingFigures& figures = table_.at(first, last);
    std::int64_t activations = figures.activations(moments_[place]);
    if (!host) activations = std::max(activations, figures.trained * temporaries_);
    return known = figures.forward.weights + activations;
  }

  void solve_from(std::size_t first, LineState state, double cap) {
    const std::size_t here = first * num_states() + state;
    for (std::size_t k = 0; k < lineup_.kinds().size(); ++k) {
      if (!lineup_.can_take(state, k)) continue;
      const DeviceKind& kind = lineup_.kinds()[k];
      const bool host = input_.problem.cluster.device(lineup_.next_device(state, k)).host;
      count_steps(static_cast<std::int64_t>(table_.num_positions() - first));
      for (std::size_t last = first + 1; last < table_.num_positions(); ++last) {
        const double rest = best_[last * num_states() + state + kind.step];
        const IntervalFigures& figures = table_.at(first, last).forward;
        if (figures.time * kind.model.slowness >= std::min(cap, best_[here])) break;
        if (rest == kInfinity) continue;
        const double value = std::max(rest, kind.model.load(figures));
        if (value >= std::min(cap, best_[here])) continue;
        if (memory(first, last, used_[state], host) > kind.model.limit) continue;
        best_[here] = value;
        steps_[here] = {static_cast<std::uint32_t>(last), static_cast<std::uint32_t>(k)};
      }
    }
  }

  Arrangement arrangement() const {
    Arrangement found;
    LineState state = 0;
    for (std::size_t row = 0; row + 1 < table_.num_positions();) {
      const Step& step = steps_[row * num_states() + state];
      found.devices.push_back(lineup_.next_device(state, step.kind));
      found.cuts.push_back(table_.position(step.last));
      state += lineup_.kinds()[step.kind].step;
      row = step.last;
    }
    return found;
  }

  const ChainInput& input_;
  const Lineup& lineup_;
  const TrainingTable& table_;
  std::size_t num_stages_;
  const Learned& learned_;
  std::vector<std::vector<Moment>> moments_;  // by place
  std::int64_t temporaries_;
  std::vector<std::size_t> used_;     // by state
  std::vector<std::int64_t> memory_;  // by interval and place, where it was asked for
  std::vector<double> best_;          // by row and state
  std::vector<Step> steps_;
};

class ByPosition {
 public:
  ByPosition(const ChainInput& input, const Lineup& lineup) : input_(input), lineup_(lineup) {}

  std::optional<Plan> run() {
    const std::size_t most = most_positions();
    if (most < 8) return std::nullopt;
    const std::vector<std::size_t> all = numbers_of(input_.cuttable);
    if (all.size() <= most) {
      look_at(all);
      return std::move(best_);
    }
    look_at(numbers_of(coarse_positions(input_.intervals, input_.cuttable, most - 2)));
    if (best_ && !is_late()) look_at(near_cuts(all, most));
    return std::move(best_);
  }

 private:
  bool is_late() const { return input_.intervals.num_nodes() > kSoonDone && deadline_passed(); }
  std::size_t most_positions() const {
    const std::size_t per_pair = lineup_.num_states() * lineup_.kinds().size();
    std::size_t most = kMostPositions;
    while (most * most / 2 * per_pair > kMostTableSteps) most /= 2;
    return most;
  }

  // The positions closest to the best plan's cuts, as many for each.
  std::vector<std::size_t> near_cuts(const std::vector<std::size_t>& all, std::size_t most) const {
    std::vector<bool> chosen(input_.intervals.num_nodes() + 1);
    chosen.front() = chosen.back() = true;
    const std::size_t reach = most / (2 * best_->num_stages());
    for (const Stage& stage : best_->stages) {
      const std::size_t cut = stage.nodes.front().index();
      const auto at =
          static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), cut) - all.begin());
      for (std::size_t p = at > reach ? at - reach : 0; p < std::min(at + reach, all.size()); ++p) {
        chosen[all[p]] = true;
      }
    }
    return numbers_of(chosen);
  }

  void look_at(std::vector<std::size_t> positions) {
    const TrainingTable table(input_.problem, input_.intervals, std::move(positions));
    const std::size_t most = std::min(lineup_.num_devices(), table.num_positions() - 1);
    for (std::size_t stages = most; stages > 0; --stages) {
      if (is_late() && stages < most) return;
      look_for(table, stages);
    }
  }

  void look_for(const TrainingTable& table, std::size_t num_stages) {
    for (int round = 0; round < kMostPlans; ++round) {
      PlacedTable placed(input_, lineup_, table, num_stages, learned_);
      const std::optional<Arrangement> found =
          placed.solve(best_ ? best_->busiest.count / kSlack : kInfinity);
      if (!found || try_out(*found)) return;
      if (is_late()) return;
    }
  }

  // True: it fits. Where it does not, what its stages need at their places is known now.
  bool try_out(const Arrangement& arrangement) {
    Plan plan =
        make_plan(input_.problem, intervals(arrangement.cuts), arrangement.devices, "chain");
    if (!find_overflow(plan)) {
      plan.lower_bound = input_.bound;
      check_bound(plan.lower_bound, plan.objective_value());
      if (!best_ || plan.busiest < best_->busiest) best_ = std::move(plan);
      return true;
    }
    const std::size_t count = arrangement.devices.size();
    for (std::size_t s = 0; s < count; ++s) {
      const DeviceId device = arrangement.devices[s];
      const DeviceMemory& memory = plan.memory[device.index()];
      const bool alone =
          input_.problem.cluster.group(input_.problem.cluster.device(device).memory_group).size() ==
          1;
      const bool too_much = memory.limited && memory.predicted > memory.limit;
      if (!alone && !too_much) continue;
      learned_[{arrangement.cuts[s], arrangement.cuts[s + 1], s, count}] = memory.predicted.count;
    }
    return false;
  }

  const ChainInput& input_;
  const Lineup& lineup_;
  Learned learned_;
  std::optional<Plan> best_;
};

}  // namespace

std::optional<Plan> fit_by_position(const ChainInput& input, const Lineup& lineup) {
  const auto is_limited = [](const Device& device) { return device.memory_limited; };
  const std::vector<Device>& devices = input.problem.cluster.devices;
  if (!input.problem.training || std::none_of(devices.begin(), devices.end(), is_limited)) {
    return std::nullopt;
  }
  return ByPosition(input, lineup).run();
}

}  // namespace kerf::partition
