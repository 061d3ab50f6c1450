// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// For messages: the known name that somebody who wrote an unknown one most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kerf {

// The name with the fewest letters to change, add, drop or swap with a neighbour, capitals aside;
// the first of several. Empty when none is near: more than a third of the longer word differs.
// Time: names x (their length x the word's).
std::string_view nearest_name(std::string_view word, std::span<const std::string> names);

// "; did you mean 'adamw'?" or, when none is near, nothing.
std::string nearest_name_hint(std::string_view word, std::span<const std::string> names);

}  // namespace kerf
