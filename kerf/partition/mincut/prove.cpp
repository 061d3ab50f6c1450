// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Depth-first branch and bound: is there a split with every load below T? Each improvement lowers
// T; an exhausted tree proves T. Optimal within the gap unless the budget ends first.
#include "kerf/partition/mincut/prove.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "kerf/base/error.h"
#include "kerf/partition/mincut/cut_problem.h"
#include "kerf/partition/mincut/fuse.h"
#include "kerf/partition/mincut/half_split.h"
#include "kerf/partition/mincut/load_bounds.h"

namespace kerf::partition {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

using Clock = std::chrono::steady_clock;

struct Budget {
  std::int64_t work = 0;
  Clock::time_point end;
  bool timed_out = false;
  bool spent(std::int64_t steps) {
    if (steps >= work) return true;
    timed_out = timed_out || Clock::now() >= end;
    return timed_out;
  }
};

enum class Verdict { refuted, unknown };

// Splits below a limit that falls as they are found.
class CutSearch {
 public:
  CutSearch(const UnitProblem& units, LoadAnswer& best, double limit, double gap)
      : units_(&units),
        best_(&best),
        gap_(gap),
        per_one_(scale_for(limit)),
        problem_(units, fuse_units(units, limit, per_one_, scratch_.steps), per_one_),
        limit_(problem_.to_limit(limit)) {}

  Verdict run(Budget& budget) {
    HalfSplit root(problem_, limit_, scratch_);
    return explore(root, budget);
  }
  std::int64_t nodes() const { return nodes_; }
  std::int64_t steps() const { return scratch_.steps; }

 private:
  Verdict explore(HalfSplit& node, Budget& budget) {
    ++nodes_;
    if (!node.propagate(limit_, scratch_)) return Verdict::refuted;
    if (node.complete()) {
      take(node.devices());
      return Verdict::refuted;  // nothing better than what was just taken
    }
    if (budget.spent(scratch_.steps)) return Verdict::unknown;
    const std::vector<HalfSplit::Choice> choices = node.find_branch(limit_);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const bool last = i + 1 == choices.size();
      HalfSplit child = last ? std::move(node) : node;
      if (child.take(choices[i]) && explore(child, budget) == Verdict::unknown) {
        return Verdict::unknown;
      }
    }
    return Verdict::refuted;
  }

  void take(const std::vector<std::uint32_t>& by_class) {
    std::vector<std::uint32_t> device;
    for (const std::uint32_t c : problem_.group) device.push_back(by_class[c]);
    const Loads loads = find_loads(*units_, device);
    if (!loads.fits || (!best_->device.empty() && loads.busiest >= best_->objective)) return;
    best_->device = std::move(device);
    best_->objective = loads.busiest;
    limit_ = std::min(limit_, problem_.to_limit(loads.busiest * (1 - gap_)));
  }

  const UnitProblem* units_;
  LoadAnswer* best_;
  double gap_;
  double per_one_;
  FlowScratch scratch_;
  CutProblem problem_;
  Flow limit_;
  std::int64_t nodes_ = 0;
};

// More than any split pays: everything everywhere, every tensor moved by all.
double above_all(const UnitProblem& problem) {
  double most = 1;
  for (const LoadUnit& unit : problem.units) most += unit.accelerator_time + unit.cpu_time;
  for (const LoadNet& net : problem.nets) most += net.cost;
  return most;
}

bool meets(const LoadBound& bound, const LoadAnswer& answer, double gap) {
  return bound.value >= answer.objective * (1 - gap) - 1e-12;
}

// Keeps the larger bound, and says whether it ends the matter.
bool bound_is_enough(Proof& proof, LoadBound bound, double gap) {
  if (proof.bound.name.empty() || bound.value > proof.bound.value) proof.bound = std::move(bound);
  proof.answer.optimal = meets(proof.bound, proof.answer, gap);
  return proof.answer.optimal;
}

}  // namespace

Proof prove(const UnitProblem& problem, const LoadAnswer& incumbent, const ProofOptions& options) {
  Proof proof;
  proof.answer = incumbent;
  if (incumbent.device.empty()) proof.answer.objective = kNever;
  proof.answer.optimal = false;
  KERF_CHECK(problem.num_accelerators < static_cast<int>(kCpu), "at most 62 accelerators");
  Budget budget{options.work_budget,
                Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(options.time_budget))};
  // The quick ones first: they often suffice.
  for (const auto& bound : {work_bound, unit_bound, memory_bound, cut_bound}) {
    if (bound_is_enough(proof, bound(problem), options.gap)) return proof;
  }
  if (bound_is_enough(proof, pair_bound(problem), options.gap)) return proof;
  if (bound_is_enough(proof, packing_bound(problem), options.gap)) return proof;
  const double limit =
      std::min(proof.answer.objective * (1 - options.gap), above_all(problem));
  CutSearch search(problem, proof.answer, limit, options.gap);
  const Verdict verdict = search.run(budget);
  proof.nodes = search.nodes();
  proof.answer.work += search.steps();
  proof.answer.truncated = budget.timed_out;
  if (verdict == Verdict::refuted) {
    proof.answer.optimal = true;
    proof.bound = {"search", proof.answer.objective * (1 - options.gap),
                   "a search by minimum cuts has ruled out every split below this"};
  }
  return proof;
}

}  // namespace kerf::partition
