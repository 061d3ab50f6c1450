// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/acyclic/bisection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "kerf/base/infinity.h"
#include "kerf/place/acyclic/order_cut.h"
#include "kerf/place/acyclic/undirected.h"
#include "kerf/place/metis/kway.h"
#include "kerf/place/order/two_way_orders.h"

namespace kerf::place::acyclic {
namespace {

// The vertices with half[vertex] == which, and what is among them.
Instance one_half(const Instance& level, std::span<const SlotId> half, SlotId which,
                  Order& vertices) {
  std::vector<UnitId> number(level.num_units());
  for (UnitId v{0}; v < level.num_units(); ++v) {
    if (half[v] != which) continue;
    number[v] = UnitId{vertices.size()};
    vertices.push_back(v);
  }
  return merge_ordered(level, number, vertices.size());
}

class Halving {
 public:
  Halving(const Devices& parts, const Goal& goal, Rng& rng, Budget& budget)
      : parts_(parts),
        goal_(goal),
        rng_(rng),
        budget_(budget),
        speed_(speed_of(SlotId{0}, SlotId{goal.parts()})) {}
  // Parts first .. last - 1 for the vertices of the level.
  Split run(Instance level, SlotId first, SlotId last, double share_of_work) {
    if (last - first == 1 || level.num_units() == 0) return Split(level.num_units(), first);
    const SlotId middle{first + (last - first) / 2};
    const Goal two = set_halves(level, first, middle, last);
    const auto depth = static_cast<int>(std::bit_width(last - first - 1));
    const double end = budget_.work + share_of_work;
    const Split half = find_halves(level, two, share_of_work / depth);
    Split out(level.num_units());
    for (SlotId which{0}; which < 2; ++which) {
      Order vertices;
      Instance part = one_half(level, half, which, vertices);
      // What one leaves over is there for those that follow.
      const double left = std::max(0.0, end - budget_.work);
      const Split inner = which == 0 ? run(std::move(part), first, middle, left / 2)
                                     : run(std::move(part), middle, last, left);
      for (std::size_t i = 0; i < vertices.size(); ++i) out[vertices[i]] = inner[i];
    }
    return out;
  }

 private:
  double speed_of(SlotId first, SlotId last) const {
    double out = 0;
    for (SlotId p = first; p < last; ++p) out += 1 / parts_.slowness[p];
    return out;
  }
  // The level's devices become the two halves. What a part may hold more than its share is spent
  // evenly over the halvings to come.
  Goal set_halves(Instance& level, SlotId first, SlotId middle, SlotId last) const {
    Goal out;
    out.minimise = Minimise::edge_cut;
    out.total_time = level.total_accelerator_time();
    out.total_bytes = std::accumulate(level.bytes.begin(), level.bytes.end(), 0.0);
    const double speed = speed_of(first, last);
    const double part_limit = goal_.is_cut() ? goal_.limit[first] * parts_.slowness[first] * speed_
                                             : goal_.total_time * 1.02;
    const double room = part_limit / speed_ * speed / std::max(out.total_time, 1e-300);
    const auto depth = static_cast<int>(std::bit_width(last - first - 1));
    const double ratio = std::max(1.0005, std::pow(std::max(room, 1.0), 1.0 / depth));
    level.cpu = SlotId{2};
    level.num_devices = 2;
    level.slowness.clear();
    level.memory.clear();
    for (const auto& [from, to] : {std::pair{first, middle}, std::pair{middle, last}}) {
      const double part_speed = speed_of(from, to);
      level.slowness.push_back(1 / part_speed);
      out.limit.push_back(ratio * out.total_time * part_speed / speed);
      double memory = 0;
      for (SlotId p = from; p < to; ++p) memory += parts_.memory[p];
      // Several parts are seldom filled to the brim.
      level.memory.push_back(to - from > 1 ? memory * 0.97 : memory);
      out.memory_binds = out.memory_binds || memory < out.total_bytes;
    }
    out.least_load = out.total_time / speed;
    return out;
  }
  static bool differs(const Score& a, const Score& b) { return is_better(a, b) || is_better(b, a); }
  // Candidates before any moves, those that promise most first.
  std::vector<Found> find_candidates(const Instance& level, const Goal& two, Rounds& rounds,
                                     Budget& budget) {
    std::vector<Found> out;
    const double size = static_cast<double>(level.num_units()) + level.num_nets();
    const double effort = 30 * size;
    const bool is_short = budget.most < 4 * effort;
    const int orders = is_short ? 1 : 4;
    for (int i = 0; i < orders; ++i) out.push_back(rounds.runs_of_order());
    constexpr int kSeeds = 8;
    for (int i = 0; i < kSeeds && (i == 0 || budget.work + effort < 0.4 * budget.most); ++i) {
      for (const Split& half : undirected_halves(level, two, rng_.next() % 1000)) {
        // Orders know of limits: what is cut from them is balanced.
        const Order order = order_by_halves(level, half, true);
        out.push_back(rounds.judged(cut_order(level, two, order, budget.work)));
        if (is_short) continue;
        out.push_back(rounds.judged(pulled_up(level, half)));
        out.push_back(rounds.judged(pushed_down(level, half)));
      }
      budget.work += effort;
    }
    // A little too much on one side is soon mended.
    const auto promise = [](const Found& found) {
      Score score = found.score;
      score.value *= 1 + 20 * score.time;
      score.time = score.time > 0.15 ? score.time : 0;
      return score;
    };
    std::ranges::stable_sort(
        out, [&](const Found& a, const Found& b) { return is_better(promise(a), promise(b)); });
    return out;
  }
  Split find_halves(const Instance& level, const Goal& two, double share_of_work) {
    Budget budget{0, share_of_work, budget_.clock};
    Rounds rounds(level, two, rng_, budget);
    const std::vector<Found> candidates = find_candidates(level, two, rounds, budget);
    Found best = rounds.improved(candidates.front().part);
    const auto offer = [&](Found next) {
      const bool gained = is_better(next.score, best.score);
      if (gained) best = std::move(next);
      return gained;
    };
    std::size_t tries = 6;
    for (std::size_t i = 1; i < candidates.size() && tries > 0; ++i) {
      if (budget.work > 0.7 * budget.most || budget.is_over()) break;
      if (!differs(candidates[i].score, candidates[i - 1].score)) continue;
      offer(rounds.improved(candidates[i].part));
      --tries;
    }
    for (int fruitless = 0; fruitless < 2 && !budget.is_over(); ++fruitless) {
      if (offer(rounds.again(best))) fruitless = -1;
    }
    if (!has_metis() && !budget.is_over()) offer(rounds.from_coarse());
    budget_.work += budget.work;
    return best.part;
  }

  const Devices& parts_;
  const Goal& goal_;
  Rng& rng_;
  Budget& budget_;
  double speed_;
};

}  // namespace

Split bisect(const Instance& level, const Goal& goal, Rng& rng, Budget& budget) {
  return Halving(level, goal, rng, budget)
      .run(level, SlotId{0}, SlotId{goal.parts()}, std::max(0.0, budget.most - budget.work));
}

}  // namespace kerf::place::acyclic
