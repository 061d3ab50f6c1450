// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "kerf/profile/profile.h"

namespace kerf {

// Throws Error(invalid_argument), which begins with [who], unless the profile was made for
// training: another has no backward times.
void check_backward_times(const Profile& profile, std::string_view who);

}  // namespace kerf
