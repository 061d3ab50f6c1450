// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/check_bound.h"

#include <fmt/format.h>

#include "kerf/base/error.h"

namespace kerf::place {

void check_bound(std::string_view name, double bound, double value) {
  constexpr double kRounding = 1e-9;  // of sums in another order
  if (bound <= value * (1 + kRounding)) return;
  throw Error(ErrorKind::internal,
              fmt::format("[partition.check_bound] the lower bound '{}' of {} is above the value "
                          "of a plan, {}; expected no plan below a bound; this is a fault of "
                          "Kerf's: please report it with the problem that was planned",
                          name, bound, value));
}

}  // namespace kerf::place
