// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/metis/metis_split.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "kerf/base/error.h"
#include "kerf/base/infinity.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/metis/kway.h"
#include "kerf/place/metis/metis_starts.h"
#include "kerf/place/refine/split_state.h"

namespace kerf::place {
namespace {

// Moves units out of memories that are too full.
class MemoryMender {
 public:
  MemoryMender(const Instance& units, const Split& device) : units_(units), state_(units, device) {}

  // False: there is no room, or no time.
  bool mend(const StopClock& clock) {
    for (SlotId d{0}; d < units_.num_devices; ++d) {
      while (state_.bytes(d) > units_.memory[d]) {
        if (clock.struck() || !move_cheapest(d)) return false;
      }
    }
    return true;
  }
  std::span<const SlotId> devices() const { return state_.devices(); }

 private:
  bool move_cheapest(SlotId from) {
    double least = kInfinity;
    UnitId best;
    SlotId best_to = from;
    count_steps(std::int64_t{units_.num_units()} * units_.num_devices);
    for (UnitId u{0}; u < units_.num_units(); ++u) {
      if (state_.device(u) != from || units_.bytes[u] <= 0) continue;
      for (SlotId to{0}; to < units_.num_devices; ++to) {
        if (to == from || !state_.fits(u, to)) continue;
        const double load = state_.load(to) + state_.peek(u, to).to;
        const double cost = load / units_.bytes[u];
        if (cost >= least) continue;
        least = cost;
        best = u;
        best_to = to;
      }
    }
    if (best_to == from) return false;
    state_.move(best, best_to);
    return true;
  }

  const Instance& units_;
  SplitState state_;
};

}  // namespace

LoadAnswer metis_split(const Instance& units, const LoadOptions& options) {
  if (!has_metis()) {
    throw Error(
        ErrorKind::missing_backend,
        "[partition.metis] this Kerf was built without METIS; expected its library; install "
        "it (Debian: libmetis-dev) and build again, or use method multilevel");
  }
  constexpr std::uint64_t kSeeds = 4;
  const StopClock clock(options.safety_stop());
  const StopClock share(options.time_budget);
  std::vector<Split> splits;
  for (std::uint64_t seed = 0; seed < kSeeds && (seed == 0 || !share.struck()); ++seed) {
    for (auto& split : metis_starts(units, options.seed + seed)) splits.push_back(std::move(split));
  }
  // One device, or fewer units than devices: nothing to partition.
  if (splits.empty()) {
    Split& split = splits.emplace_back();
    for (UnitId u{0}; u < units.num_units(); ++u) {
      const bool can = units.on_accelerator[u] != 0 && units.cpu > 0;
      split.push_back(can ? SlotId{u % units.cpu} : units.cpu);
    }
  }
  LoadAnswer out;
  out.objective = kInfinity;
  for (const Split& split : splits) {
    if (!out.device.empty() && share.struck()) break;
    MemoryMender mender(units, split);
    if (!mender.mend(clock)) continue;
    const Loads loads = find_loads(units, mender.devices());
    if (!loads.fits || loads.busiest >= out.objective) continue;
    out.device.assign(mender.devices().begin(), mender.devices().end());
    out.objective = loads.busiest;
  }
  out.truncated = clock.has_struck() || share.has_struck();
  return out;
}

}  // namespace kerf::place
