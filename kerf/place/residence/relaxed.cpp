// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/residence/relaxed.h"

#include <algorithm>
#include <iterator>

#include "kerf/base/infinity.h"

namespace kerf {
namespace {

constexpr double kGolden = 0.6180339887498949;
constexpr int kSections = 44;        // of the range of shares, to 1e-9
constexpr int kSectionsOfMany = 10;  // any share is a bound
constexpr std::size_t kMany = 1000;

struct Bound {
  double share;
  double value;
};

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

// The bound is a concave function of the share: golden sections, one new share a step.
RelaxedResidence tightest_relaxation(const std::vector<UnitGroup>& groups, double memory) {
  const auto bound_at = [&](double share) {
    return Bound{share, RelaxedResidence(groups, share).least(0, memory)};
  };
  double low = 0;
  double high = 1;
  Bound left = bound_at(1 - kGolden);
  Bound right = bound_at(kGolden);
  const int steps = groups.size() > kMany ? kSectionsOfMany : kSections;
  for (int i = 0; i < steps && high - low > 1e-9; ++i) {
    if (left.value < right.value) {
      low = left.share;
      left = right;
      right = bound_at(low + kGolden * (high - low));
    } else {
      high = right.share;
      right = left;
      left = bound_at(high - kGolden * (high - low));
    }
  }
  const Bound tried[] = {left, right, bound_at(0), bound_at(1)};
  const Bound* const best =
      std::max_element(std::begin(tried), std::end(tried),
                       [](const Bound& a, const Bound& b) { return a.value < b.value; });
  return RelaxedResidence(groups, best->share);
}

}  // namespace kerf
