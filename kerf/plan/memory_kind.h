// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What memory is used for: one set of names for predictions, simulated and measured steps.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "kerf/base/units.h"

namespace kerf {

enum class MemoryKind : std::uint8_t {
  weights,
  gradients,    // of weights
  optimizer,    // its state
  saved,        // kept from forward for backward
  temporaries,  // everything else that comes and goes
  inputs,
  results,
  workspace,  // of libraries and of single operators
};
inline constexpr std::size_t kNumMemoryKinds = 8;
std::string_view to_string(MemoryKind kind);

// By MemoryKind.
using MemoryKinds = std::array<Bytes, kNumMemoryKinds>;
inline Bytes& of(MemoryKinds& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}
inline Bytes of(const MemoryKinds& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}
Bytes sum(const MemoryKinds& bytes);

}  // namespace kerf
