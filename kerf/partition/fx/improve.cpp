// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/improve.h"

#include <algorithm>
#include <utility>

#include "kerf/base/stop_clock.h"

namespace kerf::partition::fx {
namespace {

constexpr double kEqual = 1e-12;   // of a figure: rounding, not a difference
constexpr int kPatience = 60;      // moves of a pass without a new best
constexpr int kSwapPartners = 24;  // looked at for one op

bool less(double a, double b) { return a < b - kEqual * b; }

}  // namespace

bool better(const Score& a, const Score& b) {
  if (less(a.cost, b.cost)) return true;
  if (less(b.cost, a.cost)) return false;
  return less(a.transfers, b.transfers);
}

void Improver::spend(std::int64_t steps) {
  constexpr std::int64_t kStepsOfAClock = 3;  // an op's edges are looked at, too
  steps_ -= steps;
  count_steps(kStepsOfAClock * steps);
}

Improver::Improver(const OpTable& table, CostModel model, std::int64_t steps, std::uint64_t seed)
    : table_(table), model_(model), steps_(steps), rng_(seed), path_(table) {}

// Ops in graph order; a device does one thing at a time, fetches included, each tensor once.
double Improver::serial_length(const Placement& placement) {
  const std::size_t devices = placement.num_devices();
  end_.resize(table_.size());
  free_.assign(devices, 0);
  fetched_.resize(table_.size() * devices, 0);
  ++fetch_stamp_;
  double length = 0;
  for (std::size_t op = 0; op < table_.size(); ++op) {
    const SlotId d = placement.device(op);
    double& free = free_[d];
    for (const OpTable::Edge& edge : table_.in(op)) {
      std::uint64_t& fetched = fetched_[edge.op * devices + d];
      if (placement.device(edge.op) != d && fetched != fetch_stamp_) {
        free = std::max(free, end_[edge.op]) + edge.seconds;
        fetched = fetch_stamp_;
      }
    }
    free += table_.time[op];
    end_[op] = free;
    length = std::max(length, free);
  }
  return length;
}

Score Improver::judge(const Placement& placement) {
  spend(static_cast<std::int64_t>(table_.size()));
  if (deadline_passed()) steps_ = std::min<std::int64_t>(steps_, 0);
  Score score;
  score.cost =
      model_ == CostModel::serial ? serial_length(placement) : path_.update(placement.devices());
  for (std::size_t op = 0; op < table_.size(); ++op) {
    for (const OpTable::Edge& edge : table_.in(op)) {
      if (placement.device(edge.op) != placement.device(op)) score.transfers += edge.seconds;
    }
  }
  return score;
}

void Improver::restore_path(const Placement& placement) {
  if (model_ != CostModel::critical_path) return;
  spend(static_cast<std::int64_t>(table_.size()));
  path_.update(placement.devices());
}

// Change of Score::transfers.
double Improver::transfers_after(const Placement& placement, std::size_t op, SlotId to) const {
  const SlotId from = placement.device(op);
  double change = 0;
  const auto count = [&](const OpTable::Edge& edge) {
    const SlotId other = placement.device(edge.op);
    if (other == from) change += edge.seconds;
    if (other == to) change -= edge.seconds;
  };
  for (const OpTable::Edge& edge : table_.in(op)) count(edge);
  for (const OpTable::Edge& edge : table_.out(op)) count(edge);
  return change;
}

// Devices of neighbours; under the serial model any device may relieve a busy one.
void Improver::candidates(const Placement& placement, std::size_t op,
                          std::vector<SlotId>& out) const {
  out.clear();
  const SlotId here = placement.device(op);
  if (model_ == CostModel::serial && placement.num_devices() <= 8) {
    for (SlotId d{0}; d < placement.num_devices(); ++d) {
      if (d != here) out.push_back(d);
    }
    return;
  }
  const auto add = [&](const OpTable::Edge& edge) {
    const SlotId d = placement.device(edge.op);
    if (d != here && std::find(out.begin(), out.end(), d) == out.end()) out.push_back(d);
  };
  for (const OpTable::Edge& edge : table_.in(op)) add(edge);
  for (const OpTable::Edge& edge : table_.out(op)) add(edge);
}

bool Improver::accept(Placement& placement, Score& now) {
  const Score after = judge(placement);
  if (!better(after, now)) return false;
  now = after;
  return true;
}

bool Improver::try_move(Placement& placement, std::size_t op, SlotId to, Score& now) {
  const SlotId from = placement.device(op);
  if (!placement.try_move(op, to)) return false;
  if (accept(placement, now)) return true;
  placement.move(op, from);
  restore_path(placement);
  return false;
}

// Ops on the other device in exchange: those nearest in the order first.
bool Improver::try_swaps(Placement& placement, std::size_t op, SlotId to, Score& now) {
  const SlotId from = placement.device(op);
  int looked = 0;
  for (std::size_t distance = 1; distance < table_.size() && looked < kSwapPartners; ++distance) {
    for (const int side : {-1, 1}) {
      if (side < 0 && distance > op) continue;
      const std::size_t partner = side < 0 ? op - distance : op + distance;
      if (partner >= table_.size() || placement.device(partner) != to) continue;
      ++looked;
      if (--steps_ <= 0) return false;
      placement.move(op, to);
      placement.move(partner, from);
      if (!placement.over(from) && !placement.over(to) && accept(placement, now)) return true;
      placement.move(partner, to);
      placement.move(op, from);
    }
  }
  if (looked > 0) restore_path(placement);
  return false;
}

bool Improver::improve_op(Placement& placement, std::size_t op, Score& now) {
  std::vector<SlotId> devices;
  candidates(placement, op, devices);
  for (const SlotId to : devices) {
    if ((steps_ -= 4) <= 0) return false;
    if (model_ == CostModel::critical_path) {
      // A move changes only the paths through the op.
      const double through = path_.through(op, to, placement.devices());
      if (less(now.cost, through)) continue;
      const bool fewer = transfers_after(placement, op, to) < -kEqual * now.transfers;
      const double before = path_.through(op, placement.device(op), placement.devices());
      const bool shorter = !less(before, now.cost) && less(through, now.cost);
      if (!fewer && !shorter) continue;
    }
    if (try_move(placement, op, to, now)) return true;
    if (try_swaps(placement, op, to, now)) return true;
  }
  return false;
}

Score Improver::descend(Placement& placement) {
  Score now = judge(placement);
  for (bool changed = true; changed && steps_ > 0;) {
    changed = false;
    for (std::size_t op = 0; op < table_.size() && steps_ > 0; ++op) {
      if (improve_op(placement, op, now)) changed = true;
    }
  }
  return now;
}

Score Improver::pass(Placement& placement) {
  Score best = judge(placement);
  if (model_ == CostModel::serial) return best;
  Score now = best;
  std::vector<std::pair<std::size_t, SlotId>> undo;  // op, where it was
  std::size_t best_length = 0;
  std::vector<bool> locked(table_.size());
  std::vector<SlotId> devices;
  int since_best = 0;
  while (since_best < kPatience && steps_ > 0) {
    std::size_t chosen = table_.size();
    SlotId target{0};
    Score least{};
    for (std::size_t op = 0; op < table_.size(); ++op) {
      if (locked[op]) continue;
      candidates(placement, op, devices);
      for (const SlotId to : devices) {
        spend(4);
        const Score guess{std::max(now.cost, path_.through(op, to, placement.devices())),
                          now.transfers + transfers_after(placement, op, to)};
        if (chosen < table_.size() && !better(guess, least)) continue;
        const SlotId from = placement.device(op);
        if (!placement.try_move(op, to)) continue;
        placement.move(op, from);
        chosen = op;
        target = to;
        least = guess;
      }
    }
    if (chosen == table_.size()) break;
    locked[chosen] = true;
    undo.emplace_back(chosen, placement.device(chosen));
    placement.move(chosen, target);
    now = judge(placement);
    ++since_best;
    if (!better(now, best)) continue;
    best = now;
    best_length = undo.size();
    since_best = 0;
  }
  while (undo.size() > best_length) {
    placement.move(undo.back().first, undo.back().second);
    undo.pop_back();
  }
  return judge(placement);
}

Score Improver::kick(Placement& placement, int times) {
  Placement best = placement;
  Score best_score = judge(placement);
  for (int round = 0; round < times && steps_ > 0; ++round) {
    const std::size_t first = rng_.below(table_.size());
    const std::size_t length = 1 + rng_.below(1 + table_.size() / 4);
    const SlotId to{rng_.below(placement.num_devices())};
    for (std::size_t op = first; op < std::min(first + length, table_.size()); ++op) {
      placement.try_move(op, to);
    }
    if (rng_.below(2) == 0) {
      for (int i = 0; i < 3; ++i) {
        placement.try_move(rng_.below(table_.size()), SlotId{rng_.below(placement.num_devices())});
      }
    }
    const Score score = descend(placement);
    if (better(score, best_score)) {
      best = placement;
      best_score = score;
    } else if (better(best_score, score)) {
      placement = best;
    }
  }
  placement = std::move(best);
  return best_score;
}

}  // namespace kerf::partition::fx
