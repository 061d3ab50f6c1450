// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/device/cluster.h"
#include "kerf/profile/profile.h"

namespace kerf::cli {

// The kind an estimate is made for: that of the first accelerator, else of the first device.
std::string profiled_kind(const Cluster& cluster);

// The operators the estimator had no formula for, for stderr; empty when there are none.
std::string unknown_ops_text(const Profile& profile);

}  // namespace kerf::cli
