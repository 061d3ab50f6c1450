// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What PyTorch's optimizers hold beside parameters and gradients.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kerf {

// In bytes per byte of trainable parameter, with the optimizer's default settings. Counters of
// steps are left out: a number for each parameter, in host memory.
struct Optimizer {
  std::string name;
  int state = 0;        // kept from step to step
  int temporaries = 0;  // more while it steps: an accelerator steps all parameters at once
  bool steps = true;    // false: gradients are made and nobody uses them
};

// Throws Error(invalid_argument) that lists the names, with the nearest one.
const Optimizer& optimizer(std::string_view name);
std::vector<std::string> optimizer_names();

}  // namespace kerf
