// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/allocator_watch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace kerf {
namespace {

at::Tensor block_of(std::int64_t count) { return at::empty({count}, at::kByte); }

TEST(AnAllocatorWatch, CountsWhatAStepOnTheHostGivesBack) {
  AllocatorWatch watch(3, at::kCPU);
  ASSERT_TRUE(watch.works());
  at::Tensor kept = block_of(1024);
  watch.start();
  watch.step(0);
  { const at::Tensor workspace = block_of(4096); }
  at::Tensor result = block_of(2048);
  watch.step(1);
  kept.reset();  // of an earlier step: no workspace of this one
  result.reset();
  const at::Tensor more = block_of(1024);
  watch.step(2);
  const at::Tensor made = block_of(1024);
  { const at::Tensor workspace = block_of(8192); }
  watch.stop();
  const std::vector<double> expected{2048, 0, 8192};
  EXPECT_EQ(watch.take(), expected);
}

}  // namespace
}  // namespace kerf
