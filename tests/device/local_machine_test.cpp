// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/device/local_machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace kerf {
namespace {

constexpr std::int64_t kKiB = 1024;

// A folder like the system's: two cores with caches of their own and one that they share.
class CacheBytes : public ::testing::Test {
 protected:
  // Of its own: ctest runs the tests of a file side by side.
  CacheBytes() : folder_(::testing::TempDir() + "kerf_caches_XXXXXX") {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    for (int core = 0; core < 2; ++core) {
      const std::string own = std::to_string(core);
      add(core, 0, {"1", "Data", "48K", own});
      add(core, 1, {"1", "Instruction", "32K", own});
      add(core, 2, {"2", "Unified", "1024K", own});
      add(core, 3, {"3", "Unified", "32M", "0-1"});
    }
  }
  ~CacheBytes() override { std::filesystem::remove_all(folder_); }

  struct Cache {
    const char* level;
    const char* type;
    const char* size;
    std::string sharers;
  };
  void add(int core, int index, const Cache& cache) const {
    const std::string path =
        folder_ + "/cpu" + std::to_string(core) + "/cache/index" + std::to_string(index);
    std::filesystem::create_directories(path);
    std::ofstream(path + "/level") << cache.level << '\n';
    std::ofstream(path + "/type") << cache.type << '\n';
    std::ofstream(path + "/size") << cache.size << '\n';
    std::ofstream(path + "/shared_cpu_list") << cache.sharers << '\n';
  }

  std::string folder_;
};

TEST_F(CacheBytes, CountSharedCachesOnceAndNoInstructions) {
  EXPECT_EQ(cache_bytes(std::vector{0}, folder_), (Bytes{(48 + 1024 + 32 * 1024) * kKiB}));
  EXPECT_EQ(cache_bytes(std::vector{0, 1}, folder_),
            (Bytes{(2 * 48 + 2 * 1024 + 32 * 1024) * kKiB}));
}

TEST_F(CacheBytes, AreGuessedWhereTheSystemDoesNotTell) {
  const Bytes guess{32 * 1024 * kKiB};
  EXPECT_EQ(cache_bytes(std::vector{0}, folder_ + "/nothing"), guess);
  add(7, 0, {"3", "Unified", "many", "7"});
  EXPECT_EQ(cache_bytes(std::vector{7}, folder_), guess);
  EXPECT_GT(cache_bytes({}), Bytes{});  // of this machine, whatever it has
}

}  // namespace
}  // namespace kerf
