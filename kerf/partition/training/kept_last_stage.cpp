// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/training/kept_last_stage.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "kerf/graph/passes/coarsen.h"
#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/place/lower_bound.h"
#include "kerf/plan/recompute.h"

namespace kerf::partition {
namespace {

using Blocks = std::vector<std::string>;

Problem with_again(const Problem& problem, const Blocks& blocks) {
  Problem out = problem;
  out.keep_last_stage = false;
  out.recompute = "list";
  set_recomputed(out, blocks);
  return out;
}

class KeptLastStage {
 public:
  KeptLastStage(const Problem& problem, const Options& options)
      : problem_(problem), options_(options) {
    options_.time_budget *= kShareOfATurn;
    // Whatever is computed again takes time: without, no plan is slower.
    bound_ = best_lower_bound(with_again(problem_, {}));
  }

  void search(const Solve& solve) {
    solve_ = &solve;
    settle(problem_.graph);
    if (best_ && cuts_a_block()) settle(with_whole_blocks());
    reach_further();
  }

  Outcome<Plan, Infeasible> take() {
    if (!best_) return *std::move(closest_);
    check_bound(bound_, best_->objective_value());
    best_->lower_bound = bound_;
    best_->recompute = problem_.recompute;
    note();
    return *std::move(best_);
  }

 private:
  // Plans of a graph (the problem's, or one with more glue) until what was supposed is so.
  void settle(const Graph& graph) {
    Blocks again = problem_.recomputed;
    std::set<Blocks> supposed;
    for (int turn = 0; turn < kMostTurns && supposed.insert(again).second; ++turn) {
      std::optional<Blocks> found = plan_with(graph, again);
      if (!found) return;
      again = *std::move(found);
    }
  }

  // Where the loop rests there may be a better split with more in the last stage: one block after
  // the other is supposed to be kept, too, as long as that gains.
  void reach_further() {
    for (int turn = 0; turn < kMostTurns && best_ && !best_->recomputed.empty(); ++turn) {
      const double before = best_->objective_value();
      Blocks again = best_->recomputed;
      again.erase(last_of(again));
      if (!plan_with(problem_.graph, again) || best_->objective_value() >= before) return;
    }
  }

  // The block that reaches furthest in the graph's order.
  Blocks::iterator last_of(Blocks& blocks) const {
    const std::vector<std::uint32_t> block_of = recompute_blocks(problem_.graph, blocks);
    const auto last = std::find_if(block_of.rbegin(), block_of.rend(),
                                   [](std::uint32_t block) { return block != 0; });
    if (last == block_of.rend()) return blocks.end() - 1;
    return blocks.begin() + static_cast<std::ptrdiff_t>(*last - 1);
  }

  // Offers the split that is found with these blocks supposed to run again; gives those that do.
  std::optional<Blocks> plan_with(const Graph& graph, const Blocks& supposed) {
    Problem posed = with_again(problem_, supposed);
    posed.graph = graph;
    const Outcome<Plan, Infeasible> outcome = (*solve_)(posed, options_);
    if (!outcome) {
      keep_closest(closest_, outcome.reason());
      return std::nullopt;
    }
    Blocks again =
        recomputed_but_last(problem_.graph, problem_.recomputed, outcome->stages.back().nodes);
    offer(*outcome, again);
    return again;
  }

  // The split with what it keeps itself.
  void offer(const Plan& split, const Blocks& again) {
    Outcome<Plan, Infeasible> outcome = replace_problem(split, with_again(problem_, again));
    if (!outcome) return keep_closest(closest_, outcome.reason());
    outcome->truncated = split.truncated;
    outcome->timed_out = split.timed_out;
    if (!best_ || is_better(*outcome, *best_)) best_ = *std::move(outcome);
  }

  bool is_better(const Plan& a, const Plan& b) const {
    const bool allowed = options_.mixed || !has_mixed_stages(a);
    if (allowed != (options_.mixed || !has_mixed_stages(b))) return allowed;
    constexpr double kRounding = 1e-9;
    const double value = a.objective_value();
    const double other = b.objective_value();
    if (value < other * (1 - kRounding)) return true;
    return value <= other * (1 + kRounding) && a.step_time < b.step_time;
  }

  bool cuts_a_block() const { return best_->stages.back().recompute.count > 0; }

  Graph with_whole_blocks() const {
    Blocks modules;  // regions are none
    for (const Scope& scope : problem_.graph.scopes()) {
      const Blocks& all = problem_.recomputed;
      const bool is_block = std::find(all.begin(), all.end(), scope.path) != all.end();
      if (is_block && !scope.path.empty()) modules.push_back(scope.path);
    }
    return coarsen(problem_.graph, {kAllDepths, std::move(modules)});
  }

  void note() {
    const std::size_t all = problem_.recomputed.size();
    const std::size_t kept = all - best_->recomputed.size();
    std::string text = fmt::format("the last stage computes nothing again: {} of {} block{} kept",
                                   kept, all, all == 1 ? "" : "s");
    if (cuts_a_block()) text += "; a block that its border cuts runs again";
    best_->notes.push_back(std::move(text));
  }

  static constexpr int kMostTurns = 8;
  static constexpr double kShareOfATurn = 1.0 / 3;

  const Problem& problem_;
  Options options_;
  const Solve* solve_ = nullptr;
  LowerBound bound_;
  std::optional<Plan> best_;
  std::optional<Infeasible> closest_;
};

}  // namespace

Outcome<Plan, Infeasible> solve_kept_last_stage(const Problem& problem, const Options& options,
                                                const std::vector<Solve>& solves) {
  KeptLastStage kept(problem, options);
  for (const Solve& solve : solves) kept.search(solve);
  return kept.take();
}

}  // namespace kerf::partition
