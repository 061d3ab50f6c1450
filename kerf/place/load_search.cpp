// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/load_search.h"

#include <fmt/format.h>

#include "kerf/base/error.h"

namespace kerf::place {

std::string_view to_string(Minimise minimise) {
  return minimise == Minimise::edge_cut ? "edge_cut" : "stage_time";
}

Minimise parse_minimise(std::string_view name) {
  for (const Minimise minimise : {Minimise::stage_time, Minimise::edge_cut}) {
    if (to_string(minimise) == name) return minimise;
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.minimise] '{}'; expected stage_time or edge_cut", name));
}

}  // namespace kerf::place
