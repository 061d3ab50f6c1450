// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kerf/plan/plan.h"

namespace kerf {

// For each stage the bytes that leave its device in one micro-batch, a tensor once for each other
// device that needs it. They add up to Plan::cut_bytes().
std::vector<Bytes> cut_bytes_of_stages(const Plan& plan);
// Training: the bytes of gradients that each stage sends back to other devices in one micro-batch.
// They add up to Plan::gradient_bytes().
std::vector<Bytes> gradient_bytes_of_stages(const Plan& plan);

}  // namespace kerf
