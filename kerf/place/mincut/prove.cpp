// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Depth-first branch and bound: is there a split with every load below T? Each improvement lowers
// T; an exhausted tree proves T. Optimal within the gap unless the budget ends first.
#include "kerf/place/mincut/prove.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "kerf/base/infinity.h"
#include "kerf/place/mincut/cut_network.h"
#include "kerf/place/mincut/fuse.h"
#include "kerf/place/mincut/half_split.h"
#include "kerf/place/pack/cost_scale.h"
#include "kerf/place/search_budget.h"

namespace kerf::place {
namespace {

// Cuts are exact in whole numbers; what bringing costs to those may have rounded is taken off
// bounds.
constexpr double kRounding = 1e-8;

enum class Verdict { refuted, unknown, too_large };

// Nodes keep a bit for each pair of units and device: past this they do not fit memory.
constexpr std::size_t kMostUnits = 2000;

// At the least. Every net asks a flow, so does every unit less, and a flow looks at every unit.
std::int64_t fusing_steps(const Instance& problem) {
  const std::size_t units = problem.num_units();
  const std::size_t fewer = units - std::min(units, kMostUnits);
  return static_cast<std::int64_t>(units * std::max<std::size_t>(problem.num_nets(), fewer) / 8);
}

// Splits below a limit that falls as they are found.
class CutSearch {
 public:
  // `proved`: no split is below this, so that one which meets it ends the search.
  CutSearch(const Instance& instance, LoadAnswer& best, double limit, double proved, double gap,
            SearchBudget& budget)
      : instance_(&instance), best_(&best), proved_(proved), gap_(gap), budget_(&budget) {
    scratch_.budget = &budget;
    if (fusing_steps(instance) > budget.work) return;
    const double per_one = scale_for(limit);
    fused_ = fuse(instance, limit, per_one, scratch_);
    // Out of budget before the fusing is done: most likely too many to build what they need.
    if (fused_.instance.num_units() > kMostUnits || scratch_.out_of_budget()) return;
    network_.emplace(fused_.instance, per_one);
    limit_ = network_->to_limit(limit);
  }

  Verdict run() {
    if (!network_) return Verdict::too_large;
    HalfSplit root(*network_, limit_, scratch_);
    return explore(root, 0);
  }
  std::int64_t nodes() const { return nodes_; }
  std::int64_t steps() const { return scratch_.steps; }

 private:
  Verdict explore(HalfSplit& node, std::size_t kept) {
    ++nodes_;
    scratch_.steps += kNodeWork * network_->num_units();
    if (!node.propagate(limit_, scratch_, *budget_)) return Verdict::refuted;
    if (node.complete()) {
      take(node.devices());
      return Verdict::refuted;  // nothing better than what was just taken
    }
    if (budget_->spent(scratch_.steps) || kept > kMostBytes) return Verdict::unknown;
    kept += node.num_bytes();
    const std::vector<HalfSplit::Choice> choices = node.find_branch(limit_);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const bool last = i + 1 == choices.size();
      HalfSplit child = last ? std::move(node) : node;
      if (child.take(choices[i]) && explore(child, kept) != Verdict::refuted) {
        return Verdict::unknown;
      }
      // Not in whole numbers: far above the bound they are too coarse to tell.
      if (!best_->device.empty() && best_->objective * (1 - gap_) <= proved_) break;
    }
    return Verdict::refuted;
  }

  void take(const Split& of_fused) {
    Split device;
    for (const UnitId t : fused_.group) device.push_back(of_fused[t]);
    const Loads loads = find_loads(*instance_, device);
    if (!loads.fits || (!best_->device.empty() && loads.busiest >= best_->objective)) return;
    best_->device = std::move(device);
    best_->objective = loads.busiest;
    limit_ = std::min(limit_, network_->to_limit(loads.busiest * (1 - gap_)));
  }

  static constexpr std::size_t kMostBytes = std::size_t{1} << 31;  // of nodes to come back to
  // For each unit: what a node costs beside its cuts.
  static constexpr std::int64_t kNodeWork = 16;

  const Instance* instance_;
  LoadAnswer* best_;
  double proved_;
  double gap_;
  SearchBudget* budget_;
  FlowScratch scratch_;
  Fused fused_;
  std::optional<CutNetwork> network_;  // none where the budget ends before it is small enough
  Flow limit_ = 0;
  std::int64_t nodes_ = 0;
};

// More than any split pays.
double above_all(const Instance& problem) {
  const double most = sum_of_costs(problem);
  return most > 0 ? 2 * most : 1;
}

bool meets(const LowerBound& bound, const LoadAnswer& answer, double gap) {
  return bound.value >= answer.objective * (1 - gap) * (1 - 2 * kRounding);
}

// Questions "is there a split below T?" for rising T: a refusal raises the bound, a split found is
// improved until nothing better is left. An incumbent a long way above the bound thus costs little.
class Prover {
 public:
  Prover(const Instance& problem, const LoadAnswer& incumbent, const ProofOptions& options)
      : problem_(&problem), options_(options) {
    proof_.answer = incumbent;
    proof_.answer.optimal = false;
    if (incumbent.device.empty()) proof_.answer.objective = kInfinity;
    work_left_ = options.work_budget;
    budget_ = SearchBudget::of(options.work_budget, options.time_budget);
  }

  Proof run(const LowerBound& known) {
    // A node keeps the devices of a unit as bits; with more accelerators the bounds must do.
    const bool searchable = problem_->num_devices <= kCpu;
    if (!raise(known) && searchable) climb();
    // It climbs until the matter is settled, its work is used up or the clock strikes.
    proof_.answer.truncated = searchable && !proof_.answer.optimal;
    return std::move(proof_);
  }

 private:
  // Keeps the larger bound, and says whether it ends the matter.
  bool raise(LowerBound bound) {
    if (proof_.bound.name.empty() || bound.value > proof_.bound.value) {
      proof_.bound = std::move(bound);
    }
    proof_.answer.optimal = meets(proof_.bound, proof_.answer, options_.gap);
    return proof_.answer.optimal;
  }

  double ceiling() const {
    return std::min(proof_.answer.objective * (1 - options_.gap), above_all(*problem_));
  }

  // Steps double while refusals come easily, and halve once a question was too hard.
  void climb() {
    double step = kFirstStep;
    bool hard = false;
    while (work_left_ > 0 && !budget_.timed_out && step >= kLastStep) {
      const double low = std::max(proof_.bound.value, ceiling() * 1e-6);
      const double next = low * (1 + step);
      const double limit = next > ceiling() * (1 - step / 4) ? ceiling() : next;
      const std::int64_t before = work_left_;
      const double value_before = proof_.answer.objective;
      const Verdict verdict = ask(limit, hard ? work_left_ / 4 : work_left_ / 4 * 3);
      // Larger limits fuse no more units, and smaller ones hardly.
      if (proof_.answer.optimal || verdict == Verdict::too_large) return;
      // So much better that the whole numbers of this question were too coarse: the next is asked
      // in others.
      constexpr double kMuchBetter = 1e-3;
      if (proof_.answer.objective < value_before * kMuchBetter) continue;
      if (verdict == Verdict::unknown) {
        hard = true;
        step = std::min(step, limit / low - 1) / 2;
      } else if (!hard && before - work_left_ < before / 64) {
        step *= 2;
      }
    }
  }

  Verdict ask(double limit, std::int64_t work) {
    budget_.work = std::max<std::int64_t>(work, kLeastWork);
    CutSearch search(*problem_, proof_.answer, limit, proof_.bound.value, options_.gap, budget_);
    const Verdict verdict = search.run();
    proof_.nodes += search.nodes();
    proof_.answer.work += search.steps();
    work_left_ -= search.steps();
    if (verdict == Verdict::refuted) {
      raise({"search", std::min(limit, ceiling()) * (1 - kRounding),
             "a search by minimum cuts has ruled out every split below this"});
      // Nothing at all was found below more than anything pays.
      if (limit >= above_all(*problem_) && proof_.answer.device.empty()) {
        proof_.answer.optimal = true;
        proof_.bound.value = kInfinity;
      }
    }
    return verdict;
  }

  static constexpr double kFirstStep = 1.0 / 128;
  static constexpr double kLastStep = 1e-4;
  static constexpr std::int64_t kLeastWork = 100'000;

  const Instance* problem_;
  ProofOptions options_;
  Proof proof_;
  SearchBudget budget_;
  std::int64_t work_left_ = 0;
};

}  // namespace

Proof prove(const Instance& problem, const LoadAnswer& incumbent, const LowerBound& known,
            const ProofOptions& options) {
  const CostScale scale = find_cost_scale(problem);
  const Instance scaled = scale_costs(problem, scale);
  LoadAnswer start = incumbent;
  start.objective = scale.to_scale(incumbent.objective);
  LowerBound bound = known;
  bound.value = std::ldexp(known.value, scale.shift);
  Proof proof = Prover(scaled, start, options).run(bound);
  proof.bound.value = scale.from_scale(proof.bound.value);
  if (!proof.answer.device.empty()) {
    const bool same = proof.answer.device == incumbent.device;
    proof.answer.objective =
        same ? incumbent.objective : find_loads(problem, proof.answer.device).busiest;
  }
  return proof;
}

}  // namespace kerf::place
