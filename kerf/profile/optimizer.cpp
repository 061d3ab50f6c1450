// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/optimizer.h"

#include <fmt/ranges.h>

#include "kerf/base/error.h"
#include "kerf/base/nearest_name.h"

namespace kerf {
namespace {

// torch/optim of PyTorch 2.11 to 2.13: state, and the lists that the _foreach_ functions of a step
// return rather than write in place.
const std::vector<Optimizer>& optimizers() {
  static const std::vector<Optimizer> all = {
      {"sgd", 0, 0},         {"sgd_momentum", 1, 0},  // momentum_buffer
      {"adam", 2, 1},                                 // exp_avg, exp_avg_sq; the root of exp_avg_sq
      {"adamw", 2, 1},                                // the same
      {"rmsprop", 1, 1},                              // square_avg; its root
      {"adagrad", 1, 2},                              // sum; its root and the scaled gradients
      {"none", 0, 0, false},
  };
  return all;
}

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Optimizer& each : optimizers()) names.push_back(each.name);
  return names;
}

const Optimizer& optimizer(std::string_view name) {
  for (const Optimizer& each : optimizers()) {
    if (each.name == name) return each;
  }
  const std::vector<std::string> names = optimizer_names();
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[profile.optimizer] unknown optimizer '{}'; expected one of {}{}", name,
                          fmt::join(names, ", "), nearest_name_hint(name, names)));
}

}  // namespace kerf
