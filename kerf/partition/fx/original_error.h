// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace kerf::partition::fx {

// What the original raises where it fails, with its own text.
struct OriginalError : std::runtime_error {
  enum class Kind : std::uint8_t {
    runtime,
    key_node,       // the text is the node: `key`
    key_partition,  // the text is the number: `key`
    key_device,     // the text is the number: `key`
    index,
    type,
    zero_division,
    assertion,
    recursion,
    endless,  // the original does not return
  };
  OriginalError(Kind error_kind, const std::string& text, std::int64_t error_key = -1)
      : std::runtime_error(text), kind(error_kind), key(error_key) {}
  Kind kind;
  std::int64_t key;
};

}  // namespace kerf::partition::fx
