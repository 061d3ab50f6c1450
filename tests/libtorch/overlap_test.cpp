// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/overlap.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

namespace kerf {
namespace {

TEST(Tensors, OfOneMemoryShareBytesOnlyWhereTheyMeet) {
  const at::Tensor base = at::zeros({8, 6});
  EXPECT_TRUE(may_share_bytes(base.narrow(0, 0, 4), base.narrow(0, 3, 4)));
  EXPECT_FALSE(may_share_bytes(base.narrow(0, 0, 4), base.narrow(0, 4, 4)));
  EXPECT_FALSE(may_share_bytes(base.narrow(1, 0, 3), base.narrow(1, 3, 3)));
  EXPECT_TRUE(may_share_bytes(base.narrow(1, 0, 4), base.narrow(1, 3, 3)));
  EXPECT_FALSE(may_share_bytes(base.slice(0, 0, 8, 2), base.slice(0, 1, 8, 2)));
  EXPECT_TRUE(may_share_bytes(base.t(), base));
  EXPECT_TRUE(may_share_bytes(base, base.view(at::kByte).narrow(1, 23, 1)));
  EXPECT_FALSE(may_share_bytes(base, at::zeros({8, 6})));
  EXPECT_FALSE(may_share_bytes(base, base.narrow(0, 2, 0)));
}

TEST(Samples, ShareBytesAcrossWhereRowsOverlap) {
  const at::Tensor base = at::zeros({8, 6});
  const auto across = [](const at::Tensor& a, const at::Tensor& b, std::int64_t dim = 0) {
    return may_share_across(a, dim, b, dim);
  };
  EXPECT_FALSE(across(base, base));
  EXPECT_FALSE(across(base.t(), base.t(), 1));
  EXPECT_FALSE(across(base, base.narrow(1, 2, 3)));  // other columns of the same rows
  EXPECT_TRUE(across(base.narrow(0, 0, 4), base.narrow(0, 1, 4)));
  EXPECT_TRUE(across(base.narrow(0, 1, 4), base.narrow(0, 0, 4)));
  const at::Tensor row = at::zeros({1, 6}).expand({4, 6});
  EXPECT_TRUE(across(row, row));
  const at::Tensor windows = at::zeros({20}).as_strided({4, 6}, {3, 1});
  EXPECT_TRUE(across(windows, windows));
  EXPECT_FALSE(across(base.narrow(0, 0, 1), base.narrow(0, 0, 1)));
}

// Two random parts of one memory, looked at byte by byte.
TEST(Tensors, ShareBytesAsTheirElementsDo) {
  std::mt19937 random(1);
  const auto draw = [&](int most) { return static_cast<std::int64_t>(random() % (most + 1)); };
  const at::Tensor base = at::zeros({200}, at::kShort);
  const auto part = [&] {
    return base.as_strided({1 + draw(3), 1 + draw(3)}, {draw(12), draw(7)}, draw(40));
  };
  const auto marks = [&](const at::Tensor& tensor) {
    at::Tensor out = at::zeros({400}, at::kBool);
    for (std::int64_t i = 0; i < tensor.size(0); ++i) {
      for (std::int64_t j = 0; j < tensor.size(1); ++j) {
        const std::int64_t at =
            tensor.storage_offset() + i * tensor.stride(0) + j * tensor.stride(1);
        out.narrow(0, 2 * at, 2).fill_(true);
      }
    }
    return out;
  };
  for (int i = 0; i < 500; ++i) {
    const at::Tensor a = part();
    const at::Tensor b = part();
    const bool meet = at::logical_and(marks(a), marks(b)).any().item<bool>();
    EXPECT_EQ(may_share_bytes(a, b), meet) << a.strides() << b.strides() << i;
  }
}

}  // namespace
}  // namespace kerf
