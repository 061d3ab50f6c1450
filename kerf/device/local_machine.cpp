// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/device/local_machine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace kerf {
namespace {

std::vector<int> allowed_cores() {
  // The set is sized for the machine: the fixed cpu_set_t ends at 1024 cores.
  const long configured = std::max(1L, sysconf(_SC_NPROCESSORS_CONF));
  const std::size_t limit = std::max<std::size_t>(static_cast<std::size_t>(configured), 8192);
  cpu_set_t* set = CPU_ALLOC(limit);
  const std::size_t size = CPU_ALLOC_SIZE(limit);
  CPU_ZERO_S(size, set);
  std::vector<int> cores;
  if (sched_getaffinity(0, size, set) == 0) {
    for (std::size_t core = 0; core < limit; ++core) {
      if (CPU_ISSET_S(core, size, set)) cores.push_back(static_cast<int>(core));
    }
  }
  CPU_FREE(set);
  if (cores.empty()) cores.push_back(0);
  return cores;
}

// A container's limit is below the machine's; "max" (no limit) does not parse as a number.
std::int64_t control_group_limit() {
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    std::int64_t bytes = 0;
    if (file >> bytes && bytes > 0) return bytes;
  }
  return 0;
}

}  // namespace

LocalMachine local_machine() {
  std::int64_t memory = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  const std::int64_t limit = control_group_limit();
  if (limit > 0) memory = std::min(memory, limit);
  return {allowed_cores(), Bytes{std::max<std::int64_t>(0, memory)}};
}

}  // namespace kerf
