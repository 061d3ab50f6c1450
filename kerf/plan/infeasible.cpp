// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/infeasible.h"

#include <fmt/format.h>

namespace kerf {

std::string Infeasible::message() const {
  return fmt::format(
      "[partition.{}] no plan fits in memory; the tightest device is {}: it needs {} and has {}, "
      "{} "
      "({} bytes) short; {}{}",
      method, device, to_string(needed), to_string(limit), to_string(short_by), short_by.count,
      what_would_help,
      timed_out ? " (stopped by the clock: another run may find a plan that fits)" : "");
}

}  // namespace kerf
