// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kerf {

// Text from outside for a message: control characters, which would end it early, break its line or
// drive a terminal, are written as \x1b. A newline before two spaces stays: messages go on so.
std::string printable(std::string_view text);

}  // namespace kerf
