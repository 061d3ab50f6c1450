// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace kerf {

// Bytes of the character longer than one byte at `at`; 0: it is none (table 3-7 of the Unicode
// standard).
std::size_t utf8_length(std::string_view text, std::size_t at);

// Where the first byte stands that is no UTF-8; the text's size: nowhere.
std::size_t find_invalid_utf8(std::string_view text);

}  // namespace kerf
