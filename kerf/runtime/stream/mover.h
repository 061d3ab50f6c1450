// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace kerf {

// Brings the weights of units into slots, one copy after the other, while others are in use.
class Mover {
 public:
  virtual ~Mover() = default;

  // Begins a copy and returns. It does not overtake what still reads the slot, see `release`.
  virtual void start(std::size_t unit, std::size_t slot) = 0;
  // What the caller does next may read what the last `start` brought into the slot. Throws what
  // went wrong with it.
  virtual void wait(std::size_t slot) = 0;
  // What reads the slot has been issued by now.
  virtual void release(std::size_t slot) = 0;
};

}  // namespace kerf
