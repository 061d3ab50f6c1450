// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/search/polish.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/simulate/make_plan.h"

namespace kerf::partition {
namespace {

using Devices = std::vector<DeviceId>;

// A step from one placement to another: some units go to a device, or two devices swap theirs.
struct Move {
  std::vector<std::size_t> units;
  DeviceId to;
  DeviceId swapped;  // valid: `to` and this one change places, units play no part
};

class Polisher {
 public:
  Polisher(const Problem& problem, const SplitModel& model, BestPlan& best,
           const PolishOptions& options)
      : problem_(problem),
        model_(model),
        best_(best),
        rng_(options.seed),
        clock_(options.clock > 0 ? options.clock : 2 * options.seconds) {
    // Of plan_size, on one core.
    constexpr double kSizeASecond = 8e5;
    const auto size = static_cast<double>(plan_size(problem, problem.cluster.num_devices()));
    plans_left_ = static_cast<std::int64_t>(options.seconds * kSizeASecond / size) + 1;
  }

  bool run() {
    if (!best_.plan() || problem_.cluster.num_devices() < 2) return true;
    while (pass()) {
    }
    return !stopped_;
  }

 private:
  // Tries every move from where it stands, each gain taken at once. True: something was gained.
  bool pass() {
    Devices current = devices_of(*best_.plan());
    std::vector<Move> moves = list_moves(current);
    for (std::size_t i = moves.size(); i > 1; --i) std::swap(moves[i - 1], moves[rng_.below(i)]);
    bool gained = false;
    for (const Move& move : moves) {
      stopped_ = --plans_left_ < 0 || clock_.struck();
      if (stopped_) return false;
      Devices next = after(current, move);
      if (next == current) continue;
      if (best_.offer(place_units(problem_, model_, next, "polish", best_.mixed()))) {
        current = std::move(next);
        gained = true;
      }
    }
    return gained;
  }

  Devices devices_of(const Plan& plan) const {
    Devices device(model_.units.size());
    for (const Stage& stage : plan.stages) {
      for (const NodeId node : stage.nodes) device[model_.unit_of[node.index()]] = stage.device;
    }
    return device;
  }

  static Devices after(Devices device, const Move& move) {
    if (move.swapped.valid()) {
      for (DeviceId& d : device) {
        d = d == move.to ? move.swapped : d == move.swapped ? move.to : d;
      }
      return device;
    }
    for (const std::size_t u : move.units) device[u] = move.to;
    return device;
  }

  std::vector<Move> list_moves(const Devices& device) const {
    std::vector<Move> moves;
    std::set<std::pair<std::size_t, DeviceId>> seen;
    for (std::size_t u = 0; u < model_.units.size(); ++u) {
      for (const std::size_t before : model_.units[u].before) {
        if (device[before] == device[u]) continue;
        if (seen.emplace(u, device[before]).second) moves.push_back({{u}, device[before], {}});
        if (seen.emplace(before, device[u]).second) moves.push_back({{before}, device[u], {}});
      }
    }
    const std::size_t num_devices = problem_.cluster.num_devices();
    for (const Stage& stage : best_.plan()->stages) {
      std::set<std::size_t> units;
      for (const NodeId node : stage.nodes) units.insert(model_.unit_of[node.index()]);
      for (std::size_t d = 0; d < num_devices; ++d) {
        if (stage.device != DeviceId{d}) {
          moves.push_back({{units.begin(), units.end()}, DeviceId{d}, {}});
        }
      }
    }
    for (std::size_t a = 0; a < num_devices; ++a) {
      for (std::size_t b = a + 1; b < num_devices; ++b)
        moves.push_back({{}, DeviceId{a}, DeviceId{b}});
    }
    return moves;
  }

  const Problem& problem_;
  const SplitModel& model_;
  BestPlan& best_;
  Rng rng_;
  std::int64_t plans_left_ = 0;
  StopClock clock_;
  bool stopped_ = false;
};

}  // namespace

bool polish(const Problem& problem, const SplitModel& model, BestPlan& best,
            const PolishOptions& options) {
  return Polisher(problem, model, best, options).run();
}

}  // namespace kerf::partition
