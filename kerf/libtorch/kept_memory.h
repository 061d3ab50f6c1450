// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kerf {

// While one lives, the host's allocator keeps what tensors free, up to what the process had at its
// peak, instead of giving it back to the system and asking for it again: a page that comes back is
// cleared, and taking pages away interrupts the process's other threads. With stages on several
// threads that was 15 % of a step. The last one to go gives back what nobody uses.
//
// Whoever set MALLOC_TRIM_THRESHOLD_, MALLOC_TOP_PAD_, MALLOC_MMAP_THRESHOLD_ or glibc.malloc's
// GLIBC_TUNABLES has decided it. Does nothing where the allocator is not glibc's.
class KeptMemory {
 public:
  KeptMemory();
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;
};

}  // namespace kerf
