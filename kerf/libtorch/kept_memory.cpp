// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/kept_memory.h"

#include <cstdlib>
#include <cstring>
#include <mutex>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace kerf {
namespace {

#ifdef __GLIBC__

constexpr int kKept = 1 << 30;  // of freed bytes at the end of a heap
constexpr int kOwnMappingFrom =
    1 << 25;  // the largest that glibc takes; its own rule ends there too
constexpr int kKeptByDefault = 1 << 26;  // twice the former: where its own rule ends

bool is_ours_to_set() {
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  if (tunables != nullptr && std::strstr(tunables, "glibc.malloc.") != nullptr) return false;
  return std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr &&
         std::getenv("MALLOC_TOP_PAD_") == nullptr &&
         std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr;
}

void keep() {
  if (!is_ours_to_set()) return;
  ::mallopt(M_TRIM_THRESHOLD, kKept);
  ::mallopt(M_MMAP_THRESHOLD, kOwnMappingFrom);
}

void give_back() {
  if (!is_ours_to_set()) return;
  ::mallopt(M_TRIM_THRESHOLD, kKeptByDefault);
  ::malloc_trim(0);
}

#else

void keep() {}
void give_back() {}

#endif

std::mutex mutex;
int living = 0;

}  // namespace

KeptMemory::KeptMemory() {
  const std::lock_guard lock(mutex);
  if (living++ == 0) keep();
}

KeptMemory::~KeptMemory() {
  const std::lock_guard lock(mutex);
  if (--living == 0) give_back();
}

}  // namespace kerf
