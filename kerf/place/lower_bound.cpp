// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/lower_bound.h"

#include <fmt/format.h>

#include <limits>

#include "kerf/base/error.h"

namespace kerf {
namespace {

constexpr double kRounding = 1e-9;  // of sums in another order

}  // namespace

LowerBound tightest(const std::vector<LowerBound>& bounds) {
  const LowerBound* best = &bounds.front();
  for (const LowerBound& bound : bounds) {
    if (bound.value > best->value * (1 + kRounding)) best = &bound;
  }
  return *best;
}

void check_bound(const LowerBound& bound, double value) {
  if (bound.value <= value * (1 + kRounding)) return;
  throw Error(ErrorKind::internal,
              fmt::format("[partition.check_bound] the lower bound '{}' of {} is above the value "
                          "of a plan, {}; expected no plan below a bound; this is a bug in Kerf, "
                          "please report it with the problem that was planned",
                          bound.name, bound.value, value));
}

double shaved(double bound, std::size_t terms) {
  constexpr double kEpsilons = 4 * std::numeric_limits<double>::epsilon();
  return bound * (1 - kEpsilons * (static_cast<double>(terms) + 256));
}

}  // namespace kerf
