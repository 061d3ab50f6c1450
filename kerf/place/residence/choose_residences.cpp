// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/residence/choose_residences.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "kerf/base/infinity.h"
#include "kerf/base/sort_unique.h"
#include "kerf/place/residence/host_share.h"
#include "kerf/place/residence/relaxed.h"
#include "kerf/place/residence/residence_counts.h"
#include "kerf/place/residence/stream_time.h"

namespace kerf {
namespace {

constexpr std::size_t kMostSlotSizes = 24;
constexpr std::size_t kManyGroups = 1000;   // one size of slots is tried, without a search
constexpr std::size_t kLooks = 20'000'000;  // at groups, of all searches together
constexpr std::size_t kMostSlots = 16;      // more smooth nothing
constexpr double kRounding = 1e-9;          // relative, of times
constexpr double kGoodEnough = 1.02;        // times the bound: no other way is tried

// Groups, and the units of each in the order of use.
struct Grouped {
  std::vector<UnitGroup> groups;
  std::vector<std::vector<std::size_t>> units;
};

Grouped group_units(const std::vector<StreamUnit>& units) {
  std::map<std::tuple<std::int64_t, double, double, bool>, std::size_t> known;
  Grouped out;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const StreamUnit& unit = units[u];
    const auto [found, is_new] = known.try_emplace(
        {-unit.bytes.count, unit.device_time.count, unit.host_time.count, unit.stays},
        known.size());
    if (is_new) {
      out.groups.push_back({unit, 0});
      out.units.emplace_back();
    }
    ++out.groups[found->second].count;
    out.units[found->second].push_back(u);
  }
  return out;
}

// A number of slots and their size, with a range of sizes that it stands for: bounds take the
// smallest, answers the largest.
struct SlotSize {
  std::size_t slots = 0;
  std::int64_t bytes = 0;
  std::int64_t smallest = 0;
};

std::vector<SlotSize> slot_sizes(const std::vector<UnitGroup>& groups) {
  std::vector<std::int64_t> sizes;
  for (const UnitGroup& group : groups) {
    if (!group.unit.stays && group.unit.bytes.count > 0) sizes.push_back(group.unit.bytes.count);
  }
  sort_unique(sizes);
  const std::size_t most = groups.size() > kManyGroups ? 1 : kMostSlotSizes;
  const std::size_t tried = std::min(sizes.size(), most);
  std::vector<SlotSize> out = {{0, 0, 0}};  // nothing streams
  std::size_t first = 0;
  for (std::size_t t = 1; t <= tried; ++t) {
    const std::size_t last = t * sizes.size() / tried - 1;
    for (const std::size_t slots : {2, 1}) out.push_back({slots, sizes[last], sizes[first]});
    first = last + 1;
  }
  return out;
}

// With one slot a copy waits for the last use of the slot: the slot is what is busy.
std::vector<UnitGroup> with_slots(std::vector<UnitGroup> groups, const ResidenceProblem& problem,
                                  const SlotSize& size) {
  for (UnitGroup& group : groups) {
    group.may_stream = !group.unit.stays && size.slots > 0 && group.unit.bytes.count <= size.bytes;
    group.copy = problem.copy_time(group.unit.bytes).count;
    if (size.slots == 1) group.copy += group.unit.device_time.count;
  }
  return groups;
}

double memory_beside(const ResidenceProblem& problem, std::size_t slots, std::int64_t bytes) {
  return static_cast<double>(problem.memory.count) -
         static_cast<double>(slots) * static_cast<double>(bytes);
}

// `count` of `total` places, evenly: is this one of them?
bool is_chosen(std::size_t place, std::size_t count, std::size_t total) {
  return (place + 1) * count / total > place * count / total;
}

// Streamed units are spread among the others of their kind, and so are the host's among the rest.
std::vector<Residence> spread(const Grouped& grouped, const ResidenceCounts& counts,
                              std::size_t num_units) {
  std::vector<Residence> of(num_units, Residence::resident);
  for (std::size_t g = 0; g < grouped.groups.size(); ++g) {
    const auto& units = grouped.units[g];
    const auto [resident, host] = counts.of[g];
    const std::size_t streamed = units.size() - resident - host;
    std::size_t rest = 0;
    for (std::size_t i = 0; i < units.size(); ++i) {
      if (is_chosen(i, streamed, units.size())) {
        of[units[i]] = Residence::streamed;
      } else if (is_chosen(rest++, host, units.size() - streamed)) {
        of[units[i]] = Residence::host;
      }
    }
  }
  return of;
}

Residences with_free_slots(const ResidenceProblem& problem, std::vector<Residence> of,
                           const SlotSize& size) {
  Residences out;
  std::size_t streamed = 0;
  std::int64_t used = 0;
  for (std::size_t u = 0; u < of.size(); ++u) {
    if (of[u] == Residence::resident) used += problem.units[u].bytes.count;
    if (of[u] != Residence::streamed) continue;
    ++streamed;
    out.slot_bytes = std::max(out.slot_bytes, problem.units[u].bytes);
  }
  out.of = std::move(of);
  if (streamed == 0) return out;
  out.slots = std::min(size.slots, streamed);
  if (out.slot_bytes.count > 0) {
    const auto fit = static_cast<std::size_t>((problem.memory.count - used) / out.slot_bytes.count);
    out.slots = std::max(out.slots, std::min({fit, streamed, kMostSlots}));
  }
  return out;
}

class Search {
 public:
  explicit Search(const ResidenceProblem& problem)
      : problem_(problem), grouped_(group_units(problem.units)) {
    if (grouped_.groups.size() > kManyGroups) looks_ = 0;
  }

  Outcome<ResidenceChoice, ResidenceShortage> run() {
    for (const SlotSize& size : slot_sizes(grouped_.groups)) try_size(size);
    if (!best_) return shortage();
    // The sums know no order. Where small and large units alternate, more slots even them out.
    for (const std::size_t slots : {3, 4, 8, 16}) {
      if (best_->residences.slots > 0) answer({slots, best_size_.bytes, best_size_.bytes}, share_);
    }
    if (best_->time.count > bound_ * kGoodEnough) share_evenly();
    best_->bound = {"relaxed", shaved(bound_, problem_.units.size()), argument()};
    check_bound(best_->bound, best_->time.count);
    return *best_;
  }

 private:
  void try_size(const SlotSize& size) {
    const std::vector<UnitGroup> groups = with_slots(grouped_.groups, problem_, size);
    const double least_memory = memory_beside(problem_, size.slots, size.smallest);
    const RelaxedResidence relaxed = tightest_relaxation(groups, least_memory);
    const double bound = relaxed.least(0, least_memory);
    if (bound < bound_) {
      bound_ = bound;
      share_ = relaxed.link_share();
    }
    if (!best_ || bound < best_->time.count) answer(size, relaxed.link_share());
  }

  // `link_share`: a good one; many groups go without the best.
  void answer(const SlotSize& size, double link_share) {
    const std::vector<UnitGroup> groups = with_slots(grouped_.groups, problem_, size);
    const double memory = memory_beside(problem_, size.slots, size.bytes);
    if (memory < 0) return;
    const RelaxedResidence relaxed = groups.size() > kManyGroups
                                         ? RelaxedResidence(groups, link_share)
                                         : tightest_relaxation(groups, memory);
    const ResidenceCounts counts = count_residences(groups, memory, relaxed, looks_);
    if (counts.of.empty()) return;
    Residences residences =
        with_free_slots(problem_, spread(grouped_, counts, problem_.units.size()), size);
    const Nanoseconds time = stream_time(problem_, residences);
    // More slots leave fewer residents: not for what is rounding.
    if (best_ && time.count >= best_->time.count * (1 - kRounding)) return;
    best_ = {std::move(residences), time, {}};
    best_size_ = size;
  }

  // Where all units of some kinds are streamed, and all of others the host's, one of the two may
  // have to wait for the other however many slots there are. So also: as without a host, which then
  // takes its share evenly from what is streamed.
  void share_evenly() {
    ResidenceProblem without = problem_;
    RowTimes times;
    for (StreamUnit& unit : without.units) {
      times.device_time.push_back(unit.device_time);
      times.host_time.push_back(unit.stays ? kNotOnTheHost : unit.host_time);
      unit.host_time = kNotOnTheHost;
    }
    if (times.host_time == std::vector(without.units.size(), kNotOnTheHost)) return;
    const auto streamed = Search(without).run();
    if (!streamed) return;
    const HostShare share = share_with_host(without, streamed->residences, {&times, 1});
    if (share.time >= best_->time) return;
    best_ = *streamed;
    best_->time = share.time;
    for (std::size_t u = 0; u < share.most_rows.size(); ++u) {
      if (share.most_rows[u] > 0) best_->residences.of[u] = Residence::host;
    }
  }

  std::string argument() const {
    const std::string memory = to_string(problem_.memory);
    const std::string least = to_string(Nanoseconds{bound_});
    if (share_ >= 1) {
      return fmt::format("weights that do not fit in {} keep the link busy for {} per call", memory,
                         least);
    }
    if (share_ <= 0)
      return fmt::format("computing takes {} per call with all weights there", least);
    return fmt::format(
        "{:.2f} of the link's time and {:.2f} of the computing time of a call are {} "
        "together at least, whatever stays in {}",
        share_, 1 - share_, least, memory);
  }

  // With one slot of any size, or none.
  ResidenceShortage shortage() const {
    ResidenceShortage out{{std::numeric_limits<std::int64_t>::max()}, problem_.memory};
    std::int64_t most = -1;
    for (std::size_t u = 0; u < problem_.units.size(); ++u) {
      const StreamUnit& unit = problem_.units[u];
      if (!unit.stays && unit.host_time < kNotOnTheHost) continue;
      if (unit.bytes.count > most) out.largest = u, most = unit.bytes.count;
    }
    for (const SlotSize& size : slot_sizes(grouped_.groups)) {
      std::int64_t needed = size.slots > 0 ? size.bytes : 0;
      for (const UnitGroup& group : with_slots(grouped_.groups, problem_, size)) {
        const bool elsewhere =
            group.may_stream || (!group.unit.stays && group.unit.host_time < kNotOnTheHost);
        if (!elsewhere) needed += group.unit.bytes.count * static_cast<std::int64_t>(group.count);
      }
      out.needed = std::min(out.needed, Bytes{needed});
    }
    return out;
  }

  const ResidenceProblem& problem_;
  Grouped grouped_;
  std::size_t looks_ = kLooks;
  std::optional<ResidenceChoice> best_;
  SlotSize best_size_;
  double bound_ = kInfinity;
  double share_ = 1;
};

}  // namespace

Outcome<ResidenceChoice, ResidenceShortage> choose_residences(const ResidenceProblem& problem) {
  if (problem.units.empty()) {
    return ResidenceChoice{{}, {}, {"relaxed", 0, "there is nothing to compute"}};
  }
  return Search(problem).run();
}

}  // namespace kerf
