// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "kerf/profile/profile.h"

namespace kerf {

// The profile with times that somebody gives, by name of a node: of its forward, and in a profile
// of training of its backward too, together, which are split as they were (a third forward where
// nothing is known of a node that has a backward). Other figures, and other nodes, are as before.
// Throws Error(invalid_argument) for names that the graph does not have, and for times that are
// none; as check_profile_matches does.
Profile with_given_times(Profile profile, const Graph& graph,
                         const std::map<std::string, Nanoseconds>& times);

}  // namespace kerf
