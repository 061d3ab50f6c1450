// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/method_options.h"

#include <fmt/format.h>

#include <string>

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

void check_options(const MethodOptions& options, std::string_view method, Takes takes) {
  const auto refuse = [&](const std::string& found, std::string_view expected) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[partition.plan] {} for method '{}'; expected {}", found, method, expected));
  };
  const int stages = options.mixed_pipe.stages;
  if (stages < 0) {
    refuse(fmt::format("{} stages", stages), "1 or more, or 0 to let the method choose");
  }
  if (takes != Takes::mixed_pipe && options.mixed_pipe != MixedPipeOptions{}) {
    refuse(fmt::format("{} stages", stages), "method mixed_pipe, or no number of stages");
  }
  const auto [minimise, imbalance] = options.balance;
  if (!(imbalance >= 0) || imbalance > 1e6) {
    refuse(fmt::format("an imbalance of {}", imbalance), "0 or more, such as 0.03");
  }
  const BalanceOptions defaults;
  if (takes != Takes::balance && minimise != defaults.minimise) {
    refuse("minimising edge_cut", "method acyclic or multilevel, or stage_time");
  }
  if (imbalance != defaults.imbalance &&
      (takes != Takes::balance || minimise != Minimise::edge_cut)) {
    refuse(fmt::format("an imbalance of {}", imbalance),
           "method acyclic or multilevel that minimises edge_cut");
  }
}

}  // namespace kerf::place
