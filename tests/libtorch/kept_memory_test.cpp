// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/kept_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <vector>

namespace kerf {
namespace {

long page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// 128 MiB: more than the allocator keeps by itself, in pieces that it does not map one by one.
void use_and_free() {
  std::vector<at::Tensor> held;
  for (int i = 0; i < 32; ++i) held.push_back(at::ones({1 << 20}));
}

TEST(KeptMemory, IsNotFetchedFromTheSystemAgain) {
  const KeptMemory kept;
  const KeptMemory another;                    // as with two pipelines
  for (int i = 0; i < 8; ++i) use_and_free();  // pieces are aligned: it settles after a few
  const long before = page_faults();
  use_and_free();
  EXPECT_LT(page_faults() - before, 1000);  // of 32,768
}

TEST(KeptMemory, GoesBackWithTheLastOne) {
  {
    const KeptMemory kept;
    use_and_free();
  }
  const long before = page_faults();
  use_and_free();
  EXPECT_GT(page_faults() - before, 10'000);
}

}  // namespace
}  // namespace kerf
