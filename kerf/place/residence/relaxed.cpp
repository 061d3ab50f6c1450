// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/residence/relaxed.h"

#include <algorithm>

#include "kerf/base/infinity.h"

namespace kerf {
namespace {

constexpr int kThirds = 50;
constexpr int kThirdsOfMany = 14;  // any share is a bound
constexpr std::size_t kMany = 1000;

}  // namespace

RelaxedResidence::RelaxedResidence(const std::vector<UnitGroup>& groups, double link_share)
    : groups_(groups),
      link_share_(link_share),
      away_(groups.size()),
      cost_from_(groups.size() + 1),
      bytes_from_(groups.size() + 1) {
  const double computing = 1 - link_share;
  for (std::size_t g = groups.size(); g-- > 0;) {
    const UnitGroup& group = groups[g];
    const double here = computing * group.unit.device_time.count;
    const double streamed = group.may_stream ? link_share * group.copy + here : kInfinity;
    // Nothing is multiplied with an infinite time: 0 times it is no number.
    const bool on_host = !group.unit.stays && group.unit.host_time < kNotOnTheHost;
    const double host = on_host ? computing * group.unit.host_time.count : kInfinity;
    away_[g] = std::min(streamed, host);
    const bool must_stay = away_[g] == kInfinity;
    const auto count = static_cast<double>(group.count);
    cost_from_[g] = cost_from_[g + 1] + count * (must_stay ? here : away_[g]);
    bytes_from_[g] = bytes_from_[g + 1] + (must_stay ? count * group.bytes() : 0);
    if (!must_stay && away_[g] > here) {
      const double bytes = group.bytes();
      gains_.push_back({g, bytes > 0 ? (away_[g] - here) / bytes : kInfinity});
    }
  }
  std::stable_sort(gains_.begin(), gains_.end(),
                   [](const Gain& a, const Gain& b) { return a.per_byte > b.per_byte; });
}

double RelaxedResidence::least(std::size_t first, double memory) const {
  double left = memory - bytes_from_[first];
  if (left < 0) return kInfinity;
  double cost = cost_from_[first];
  for (const Gain& gain : gains_) {
    if (gain.group < first) continue;
    const UnitGroup& group = groups_[gain.group];
    const double bytes = group.bytes() * static_cast<double>(group.count);
    const double saved = (away_[gain.group] - (1 - link_share_) * group.unit.device_time.count) *
                         static_cast<double>(group.count);
    if (bytes > left) return cost - saved * (left / bytes);
    cost -= saved;
    left -= bytes;
  }
  return cost;
}

// The bound is a concave function of the share.
RelaxedResidence tightest_relaxation(const std::vector<UnitGroup>& groups, double memory) {
  double low = 0;
  double high = 1;
  const auto bound = [&](double share) { return RelaxedResidence(groups, share).least(0, memory); };
  const int steps = groups.size() > kMany ? kThirdsOfMany : kThirds;
  for (int i = 0; i < steps && high - low > 1e-9; ++i) {
    const double a = low + (high - low) / 3;
    const double b = high - (high - low) / 3;
    if (bound(a) < bound(b)) {
      low = a;
    } else {
      high = b;
    }
  }
  double best = low;
  for (const double share : {0.0, 1.0, high}) {
    if (bound(share) > bound(best)) best = share;
  }
  return RelaxedResidence(groups, best);
}

}  // namespace kerf
