// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/device/local_machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <set>
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

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// "1024K"; 0 where it is something else.
std::int64_t size_in_bytes(const std::string& text) {
  std::int64_t count = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || count < 0 || count > (std::int64_t{1} << 30)) return 0;
  const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  if (unit == "K") return count << 10;
  if (unit == "M") return count << 20;
  return 0;
}

}  // namespace

Bytes cache_bytes(std::span<const int> cores, const std::string& folder) {
  constexpr std::int64_t kUnknown = std::int64_t{32} << 20;
  const std::vector<int> all = cores.empty() ? allowed_cores() : std::vector<int>();
  std::set<std::string> seen;
  std::int64_t sum = 0;
  for (const int core : cores.empty() ? std::span<const int>(all) : cores) {
    for (int index = 0;; ++index) {
      const std::string cache = fmt::format("{}/cpu{}/cache/index{}/", folder, core, index);
      const std::string level = first_word(cache + "level");
      if (level.empty()) break;
      const std::string type = first_word(cache + "type");
      if (type == "Instruction") continue;
      const std::string sharers = first_word(cache + "shared_cpu_list");
      if (seen.insert(fmt::format("{} {} {}", level, type, sharers)).second) {
        sum += size_in_bytes(first_word(cache + "size"));
      }
    }
  }
  return {sum > 0 ? sum : kUnknown};
}

LocalMachine local_machine() {
  std::int64_t memory = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  const std::int64_t limit = control_group_limit();
  if (limit > 0) memory = std::min(memory, limit);
  return {allowed_cores(), Bytes{std::max<std::int64_t>(0, memory)}};
}

}  // namespace kerf
