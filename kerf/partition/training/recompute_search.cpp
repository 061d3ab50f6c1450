// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/training/recompute_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>

#include "kerf/base/infinity.h"
#include "kerf/base/interrupt.h"
#include "kerf/base/sort_unique.h"
#include "kerf/base/stop_clock.h"
#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/training/recompute_bound.h"
#include "kerf/place/lower_bound.h"
#include "kerf/plan/recompute.h"
#include "kerf/simulate/make_plan.h"
#include "kerf/simulate/memory.h"

namespace kerf::partition {
namespace {

std::vector<std::string> candidate_blocks(const Graph& graph) {
  std::vector<std::string> blocks = recomputed_by(graph, "as_traced");
  const std::vector<std::string> layers = recomputed_by(graph, "all");
  blocks.insert(blocks.end(), layers.begin(), layers.end());
  return blocks;
}

std::string recompute_note(std::size_t chosen, std::size_t all) {
  return fmt::format("{} of {} blocks {} computed again so that everything fits", chosen, all,
                     chosen == 1 ? "is" : "are");
}

// By memory: bytes above its limit.
std::vector<std::int64_t> excess_of(const Cluster& cluster, std::span<const DeviceMemory> memory) {
  std::vector<std::int64_t> excess(static_cast<std::size_t>(cluster.num_memory_groups()));
  for (std::size_t d = 0; d < memory.size(); ++d) {
    if (!memory[d].limited) continue;
    const auto group = static_cast<std::size_t>(cluster.devices[d].memory_group);
    excess[group] = std::max<std::int64_t>(0, (memory[d].predicted - memory[d].limit).count);
  }
  return excess;
}

using Chosen = std::vector<std::size_t>;  // blocks, ascending

// Sets of blocks of one memory that may free enough, from the cheapest on. Blocks that free the
// same are one class, of which the cheapest are taken first, and of equals those that run first:
// their backwards run last, when others have released what they keep. Best first search (A*) over
// how many of each class, where what is missing is taken in part from the classes to come.
class CoverQueue {
 public:
  struct Item {
    std::size_t block;
    double time;
    std::int64_t freed;
  };
  CoverQueue(std::vector<Item> items, std::int64_t wanted) : wanted_(wanted) {
    std::map<std::int64_t, std::vector<Item>> by_bytes;
    for (const Item& item : items) by_bytes[item.freed].push_back(item);
    for (auto& [freed, members] : by_bytes) {
      std::stable_sort(members.begin(), members.end(),
                       [](const Item& a, const Item& b) { return a.time < b.time; });
      classes_.push_back(std::move(members));
    }
    std::stable_sort(classes_.begin(), classes_.end(), [](const auto& a, const auto& b) {
      return static_cast<double>(a.front().freed) * b.front().time >
             static_cast<double>(b.front().freed) * a.front().time;
    });
    push({std::vector<std::uint32_t>(classes_.size(), 0), 0, 0, 0, 0});
  }

  // nullopt: there is no other, or there are too many.
  std::optional<Chosen> next() {
    while (!open_.empty() && pops_left_-- > 0) {
      State state = open_.top();
      open_.pop();
      expand(state);
      if (state.freed >= wanted_) return blocks_of(state);
    }
    return std::nullopt;
  }

 private:
  struct State {
    std::vector<std::uint32_t> count;  // by class
    std::size_t last;                  // the last class that has any
    double time;
    std::int64_t freed;
    double bound;  // no state that comes of this one is cheaper
    bool operator<(const State& other) const { return bound > other.bound; }
  };

  void push(State state) {
    state.bound = state.time + missing_time(state);
    if (state.bound < kInfinity) open_.push(std::move(state));
  }

  void expand(const State& state) {
    for (std::size_t k = state.last; k < classes_.size(); ++k) {
      if (state.count[k] == classes_[k].size()) continue;
      const Item& item = classes_[k][state.count[k]];
      State more{state.count, k, state.time + item.time, state.freed + item.freed, 0};
      ++more.count[k];
      push(std::move(more));
    }
  }

  double missing_time(const State& state) const {
    double left = static_cast<double>(wanted_ - state.freed);
    double time = 0;
    for (std::size_t k = state.last; k < classes_.size() && left > 0; ++k) {
      // The cheapest of a class stands for all: no more than the truth.
      const std::size_t count = classes_[k].size() - state.count[k];
      if (count == 0) continue;
      const Item& item = classes_[k][state.count[k]];
      const double most = static_cast<double>(item.freed) * static_cast<double>(count);
      const double taken = std::min(left, most);
      time += item.time * taken / static_cast<double>(item.freed);
      left -= taken;
    }
    return left > 0 ? kInfinity : time;
  }

  Chosen blocks_of(const State& state) const {
    Chosen chosen;
    for (std::size_t k = 0; k < classes_.size(); ++k) {
      for (std::uint32_t i = 0; i < state.count[k]; ++i) chosen.push_back(classes_[k][i].block);
    }
    std::sort(chosen.begin(), chosen.end());
    return chosen;
  }

  std::int64_t wanted_;
  std::vector<std::vector<Item>> classes_;  // those that free most per time first
  std::priority_queue<State> open_;
  int pops_left_ = 20'000;
};

// The same split with some blocks computed again. What devices hold depends on the blocks of their
// own memory alone, so each memory looks for its set by itself, and all of them are judged at once.
class Fitting {
 public:
  Fitting(const Problem& problem, const Plan& plan)
      : problem_(problem), bare_(make_bare(problem_, plan)) {
    figures_.emplace(problem_, bare_, candidate_blocks(problem.graph));
    missing_ = excess_of(bare_.cluster, bare_.memory);
    least_time_ = figures_->least_time(missing_);
    for (std::size_t b = 0; b < figures_->num_blocks(); ++b) {
      if (is_useful(b)) useful_.push_back(b);
    }
  }

  Outcome<Plan, Infeasible> run() {
    if (!find_overflow(bare_)) return finish({});
    if (least_time_ == kInfinity) return finish(useful_);
    if (useful_.size() <= kExactBlocks) return try_all();
    Chosen chosen = cover();
    if (is_fitting(chosen)) improve(chosen);
    return finish(std::move(chosen));
  }

 private:
  static Plan make_bare(Problem& problem, const Plan& plan) {
    set_recomputed(problem, {});
    std::vector<std::vector<NodeId>> stages;
    for (const Stage& stage : plan.stages) stages.push_back(stage.nodes);
    return make_plan(problem, std::move(stages), plan.stage_devices(), plan.method);
  }

  // It can free something where that is missing, or take nodes from a block that can.
  bool is_useful(std::size_t block) const {
    bool frees = figures_->overlaps(block);
    for (int g = 0; g < bare_.cluster.num_memory_groups(); ++g) {
      frees |= missing_[static_cast<std::size_t>(g)] > 0 && figures_->part(g, block).freed > 0;
    }
    return frees;
  }

  std::vector<std::string> names_of(const Chosen& chosen) const {
    std::vector<std::string> names;
    for (const std::size_t b : chosen) names.push_back(figures_->name(b));
    return names;
  }

  // By memory; of the memory engine's figures alone, without making a plan.
  std::vector<std::int64_t> excess(const Chosen& chosen) {
    constexpr std::int64_t kStepsEach = 60;
    poll_interrupt();
    count_steps(kStepsEach * plan_size(problem_, bare_.num_stages()));
    --judgements_left_;
    Plan tried = bare_;
    tried.recomputed = names_of(chosen);
    return excess_of(tried.cluster, plan_memory(problem_.graph, tried, problem_.profile));
  }
  static bool is_zero(const std::vector<std::int64_t>& excess) {
    return std::all_of(excess.begin(), excess.end(), [](std::int64_t bytes) { return bytes == 0; });
  }
  bool is_fitting(const Chosen& chosen) { return is_zero(excess(chosen)); }
  bool is_out_of_time() const { return judgements_left_ <= 0 || deadline_passed(); }
  double time_of(const Chosen& chosen) const { return figures_->added_time(chosen); }
  bool is_least(double time) const { return time <= least_time_ * (1 + 1e-9); }

  Outcome<Plan, Infeasible> finish(Chosen chosen) {
    set_recomputed(problem_, names_of(chosen));
    std::vector<std::vector<NodeId>> stages;
    for (const Stage& stage : bare_.stages) stages.push_back(stage.nodes);
    Plan plan = make_plan(problem_, std::move(stages), bare_.stage_devices(), bare_.method);
    if (std::optional<Infeasible> overflow = find_overflow(plan)) return *std::move(overflow);
    if (chosen.empty()) return plan;
    const double time = time_of(chosen);
    plan.notes.push_back(fmt::format(
        "{}: {} per micro-batch, {}", recompute_note(chosen.size(), figures_->num_blocks()),
        to_string(Nanoseconds{time}),
        proved_ || is_least(time)
            ? "the least with this split"
            : fmt::format("at least {} with this split", to_string(Nanoseconds{least_time_}))));
    return plan;
  }

  // Sets from the cheapest to the most expensive; the first that fits.
  Outcome<Plan, Infeasible> try_all() {
    std::vector<std::pair<double, Chosen>> sets;
    for (std::size_t bits = 1; bits < (std::size_t{1} << useful_.size()); ++bits) {
      Chosen set;
      for (std::size_t b = 0; b < useful_.size(); ++b) {
        if ((bits >> b & 1) != 0) set.push_back(useful_[b]);
      }
      const double time = time_of(set);
      if (time >= least_time_ * (1 - 1e-9)) sets.emplace_back(time, std::move(set));
    }
    std::stable_sort(sets.begin(), sets.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    Chosen closest;
    judgements_left_ = static_cast<int>(sets.size());
    for (const auto& [time, set] : sets) {
      if (deadline_passed()) break;
      const std::vector<std::int64_t> left = excess(set);
      proved_ = is_zero(left);
      if (proved_) return finish(set);
      const std::int64_t sum = std::accumulate(left.begin(), left.end(), std::int64_t{0});
      if (sum < least) {
        least = sum;
        closest = set;
      }
    }
    return finish(judgements_left_ > 0 ? useful_ : closest);
  }

  std::vector<CoverQueue::Item> items_of(int memory) const {
    std::vector<CoverQueue::Item> items;
    for (const std::size_t b : useful_) {
      const std::int64_t freed = figures_->part(memory, b).freed;
      const std::size_t alone[] = {b};
      if (freed > 0) items.push_back({b, figures_->added_time(alone), freed});
    }
    return items;
  }

  std::int64_t freed_by(int memory, const Chosen& chosen) const {
    std::int64_t sum = 0;
    for (const std::size_t b : chosen) sum += figures_->part(memory, b).freed;
    return sum;
  }

  // What one memory has come to.
  struct Choice {
    int memory;
    std::vector<CoverQueue::Item> items;
    CoverQueue queue;
    Chosen chosen = {};
    int tried = 0;
    bool given_up = false;  // all that can be taken is
  };

  // The next set of a memory that may do. One by one at first; when those fall short, by as much
  // more as was missing.
  void choose_next(Choice& choice, std::int64_t short_by) {
    constexpr int kOneByOne = 40;
    if (++choice.tried > kOneByOne) {
      const std::int64_t wanted = freed_by(choice.memory, choice.chosen) + short_by;
      choice.queue = CoverQueue(choice.items, wanted);
    }
    std::optional<Chosen> next = choice.queue.next();
    if (next) {
      choice.chosen = *std::move(next);
      return;
    }
    choice.chosen.clear();
    for (const CoverQueue::Item& item : choice.items) choice.chosen.push_back(item.block);
    choice.given_up = true;
  }

  static Chosen all_of(const std::vector<Choice>& choices) {
    Chosen all;
    for (const Choice& choice : choices) {
      all.insert(all.end(), choice.chosen.begin(), choice.chosen.end());
    }
    sort_unique(all);
    return all;
  }

  Chosen cover() {
    std::vector<Choice> choices;
    for (int g = 0; g < bare_.cluster.num_memory_groups(); ++g) {
      const std::int64_t wanted = missing_[static_cast<std::size_t>(g)];
      if (wanted == 0) continue;
      std::vector<CoverQueue::Item> items = items_of(g);
      CoverQueue queue(items, wanted);
      choices.push_back({g, std::move(items), std::move(queue)});
      choose_next(choices.back(), 0);
    }
    for (;;) {
      const Chosen all = all_of(choices);
      const std::vector<std::int64_t> left = excess(all);
      bool changed = false;
      for (Choice& choice : choices) {
        const std::int64_t short_by = left[static_cast<std::size_t>(choice.memory)];
        if (short_by == 0 || choice.given_up) continue;
        choose_next(choice, short_by);
        changed = true;
      }
      if (!changed) return all;
      if (is_out_of_time()) return useful_;
    }
  }

  static Chosen with(Chosen chosen, std::size_t block) {
    chosen.insert(std::upper_bound(chosen.begin(), chosen.end(), block), block);
    return chosen;
  }

  // Drops blocks that are not needed after all, and takes cheaper ones in place of one or two
  // others. (Memories are covered side by side, and a block that a border cuts is in two of them:
  // what one tries may spoil what would do for the other.)
  void improve(Chosen& chosen) {
    double time = time_of(chosen);
    const auto accept = [&](Chosen other) {
      const double other_time = time_of(other);
      if (other_time >= time * (1 - 1e-12) || !is_fitting(other)) return false;
      time = other_time;
      chosen = std::move(other);
      return true;
    };
    const auto without = [&](std::size_t b) {
      Chosen fewer = chosen;
      std::erase(fewer, b);
      return fewer;
    };
    for (bool gained = true; gained && !is_least(time);) {
      gained = false;
      for (const std::size_t b : Chosen(chosen)) {
        if (is_out_of_time()) return;
        gained |= accept(without(b));
      }
      for (const std::size_t b : Chosen(chosen)) {
        for (const std::size_t other : useful_) {
          if (is_least(time) || is_out_of_time()) return;
          if (std::binary_search(chosen.begin(), chosen.end(), other)) continue;
          if (!accept(with(without(b), other))) continue;
          gained = true;
          break;
        }
      }
      const auto swap_two = [&] {
        for (const std::size_t a : chosen) {
          for (const std::size_t b : chosen) {
            for (const std::size_t other : useful_) {
              if (is_least(time) || is_out_of_time()) return false;
              if (a >= b || std::binary_search(chosen.begin(), chosen.end(), other)) continue;
              Chosen fewer = without(a);
              std::erase(fewer, b);
              if (accept(with(std::move(fewer), other))) return true;
            }
          }
        }
        return false;
      };
      gained = gained || swap_two();
    }
  }

  Problem problem_;
  Plan bare_;  // nothing computed again
  std::optional<BlockFigures> figures_;
  std::vector<std::int64_t> missing_;  // by memory
  double least_time_ = 0;
  Chosen useful_;  // blocks that can help
  int judgements_left_ = 400;
  bool proved_ = false;
};

Problem without_limits(Problem problem) {
  for (Device& device : problem.cluster.devices) device.memory_limited = false;
  return problem;
}

bool is_limited(const Problem& problem) {
  return std::any_of(problem.cluster.devices.begin(), problem.cluster.devices.end(),
                     [](const Device& device) { return device.memory_limited; });
}

Problem with_recomputed(Problem problem, std::vector<std::string> names) {
  set_recomputed(problem, std::move(names));
  return problem;
}

// The best of several plans, each made with other blocks computed again.
class AutoRecompute {
 public:
  AutoRecompute(const Problem& problem, const Options& options, const Solve& solve)
      : problem_(problem), options_(options), solve_(solve), bound_(best_lower_bound(problem)) {}

  Outcome<Plan, Infeasible> run() {
    offer(solve_(problem_, options_));  // nothing computed again
    if (!is_met()) fit_fastest();
    if (!is_met()) offer_all();
    if (best_ && !is_met() && !is_planned(best_->recomputed)) {
      offer(solve_(with_recomputed(problem_, best_->recomputed), options_));
    }
    if (!best_) {
      closest_->caveat = Infeasible().caveat;  // not every set of blocks was tried
      return *std::move(closest_);
    }
    check_bound(bound_, best_->objective_value());
    best_->lower_bound = bound_;
    best_->truncated = best_->truncated && !is_met();
    note_recomputed();
    return *std::move(best_);
  }

 private:
  // Nothing that would be computed again makes it better.
  bool is_met() const {
    return best_ && is_allowed(*best_) &&
           best_->objective_value() <= bound_.value * (1 + kRounding);
  }
  bool is_allowed(const Plan& plan) const { return options_.mixed || !has_mixed_stages(plan); }

  bool is_better(const Plan& a, const Plan& b) const {
    if (is_allowed(a) != is_allowed(b)) return is_allowed(a);
    const double value = a.objective_value();
    const double other = b.objective_value();
    if (value < other * (1 - kRounding)) return true;
    return value <= other * (1 + kRounding) && a.step_time.count < b.step_time.count;
  }

  void offer(const Outcome<Plan, Infeasible>& outcome) {
    if (!outcome) return keep_closest(closest_, outcome.reason());
    if (!best_ || is_better(*outcome, *best_)) best_ = *outcome;
  }

  // The same split with as few blocks as it takes.
  void offer_fitted(const Plan& split) {
    const DeadlineScope deadline(options_.time_budget * kLesserShare);
    Outcome<Plan, Infeasible> fitted = fit_by_recompute(problem_, split);
    if (fitted) {
      fitted->truncated = split.truncated;
      fitted->timed_out = split.timed_out || deadline.timed_out();
    }
    offer(fitted);
  }

  void fit_fastest() {
    Options part = options_;
    part.time_budget *= kLesserShare;
    const Outcome<Plan, Infeasible> fastest = solve_(without_limits(problem_), part);
    if (!fastest) return;
    // Whatever is computed again takes time: no plan is faster than all without limits are.
    if (problem_.objective == Objective::throughput && bound_.value < fastest->lower_bound.value) {
      bound_ = fastest->lower_bound;
    }
    offer_fitted(*fastest);
  }

  // Everything, and all that can be computed again: where the model has regions of its own, more
  // than everything. Less what can be kept after all.
  void offer_all() {
    for (const std::vector<std::string>& names :
         {recomputed_by(problem_.graph, "all"), candidate_blocks(problem_.graph)}) {
      if (is_planned(names)) continue;
      planned_.push_back(names);
      const Outcome<Plan, Infeasible> most = solve_(with_recomputed(problem_, names), options_);
      offer(most);
      if (most) offer_fitted(*most);
    }
  }

  // A split that was made for its blocks has not said so.
  void note_recomputed() {
    if (best_->recomputed.empty()) return;
    const std::string note =
        recompute_note(best_->recomputed.size(), candidate_blocks(problem_.graph).size());
    for (const std::string& said : best_->notes) {
      if (said.starts_with(note)) return;
    }
    best_->notes.push_back(note);
  }

  bool is_planned(const std::vector<std::string>& names) const {
    return std::find(planned_.begin(), planned_.end(), names) != planned_.end();
  }

  static constexpr double kRounding = 1e-9;
  static constexpr double kLesserShare = 1.0 / 3;  // of the budget, for what promises nothing

  const Problem& problem_;
  const Options& options_;
  const Solve& solve_;
  LowerBound bound_;
  std::vector<std::vector<std::string>> planned_ = {{}};  // sets with a plan by `solve_`
  std::optional<Plan> best_;
  std::optional<Infeasible> closest_;
};

}  // namespace

Outcome<Plan, Infeasible> fit_by_recompute(const Problem& problem, const Plan& plan) {
  return Fitting(problem, plan).run();
}

Outcome<Plan, Infeasible> solve_recompute(const Problem& problem, const Options& options,
                                          const Solve& solve) {
  if (!is_limited(problem)) return solve(problem, options);
  return AutoRecompute(problem, options, solve).run();
}

}  // namespace kerf::partition
