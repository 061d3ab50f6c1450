// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/utf8.h"

namespace kerf {
namespace {

bool is_continuation(unsigned char c) { return (c & 0xc0U) == 0x80U; }

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const auto first = byte(0);
  const auto second = byte(1);
  const auto within = [&](unsigned low, unsigned high) { return second >= low && second <= high; };
  if (first >= 0xc2 && first <= 0xdf) return within(0x80, 0xbf) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool sound = within(first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
    return sound && is_continuation(static_cast<unsigned char>(byte(2))) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool sound = within(first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
    return sound && is_continuation(static_cast<unsigned char>(byte(2))) &&
                   is_continuation(static_cast<unsigned char>(byte(3)))
               ? 4
               : 0;
  }
  return 0;
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length =
        static_cast<unsigned char>(text[at]) < 0x80 ? 1 : utf8_length(text, at);
    if (length == 0) return at;
    at += length;
  }
  return text.size();
}

}  // namespace kerf
