// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/profile/profile.h"

namespace kerf::cli {

// The operators the estimator had no formula for, for stderr; empty when there are none.
std::string unknown_ops_text(const Profile& profile);

}  // namespace kerf::cli
