// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/backward_times.h"

#include <fmt/format.h>

#include "kerf/base/error.h"

namespace kerf {

void check_backward_times(const Profile& profile, std::string_view who) {
  if (profile.training) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[{}] the profile has no backward times; expected one made for training; "
                          "use kerf.profile or kerf.estimate with training=True (kerf estimate "
                          "--training)",
                          who));
}

}  // namespace kerf
