// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, pooling, resizing and padding of images and signals.
#include <algorithm>

#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

// The first `kept` dimensions of x stay; the others are run over; all else is for all samples.
BatchState leading(const Call& call, ValueId x, ValueId result, int kept) {
  std::vector<int> to = straight(call.rank(x));
  for (int d = std::max(kept, 0); d < call.rank(x); ++d) to[static_cast<std::size_t>(d)] = kRunOver;
  std::vector<Operand> operands;
  for (const ValueId id : call.graph().inputs_of(call.id())) {
    operands.push_back({id, id == x ? to : std::vector<int>()});
  }
  return carry(call, operands, result);
}

// x[N, C, ...] with w[O, I, ...]; without N nothing is carried.
BatchState convolution_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "input");
  const auto weight = call.tensor(1, "weight");
  if (!x || !weight) return call.unknown(kNoRule);
  return leading(call, *x, result, call.rank(*x) == call.rank(*weight) ? 1 : 0);
}

template <int Spatial>
BatchState pool_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown(kNoRule);
  return leading(call, *x, result, call.rank(*x) - Spatial);
}

// x[N, C, ...], whatever comes after.
BatchState resize_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "input");
  if (!x) return call.unknown(kNoRule);
  return leading(call, *x, result, 2);
}

BatchState first_dim_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x || call.rank(*x) != call.rank(result)) return call.unknown(kNoRule);
  return leading(call, *x, result, 1);
}

// im2col and col2im take [N, ...] or one sample.
BatchState columns_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const bool to_columns = operator_name(call.node().op) == "im2col";
  if (!x || call.rank(*x) != (to_columns ? 4 : 3)) return call.unknown(kNoRule);
  return leading(call, *x, result, 1);
}

// pad(x, [last before, last after, ...]): dimensions with (0, 0) stay as they are.
BatchState pad_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto amounts = call.integers(1, "pad");
  if (!x || !amounts) return call.unknown(kNoRule);
  std::vector<int> to = straight(call.rank(*x));
  for (std::size_t i = 0; i < amounts->size(); ++i) {
    if ((*amounts)[i] == 0) continue;
    if (i / 2 >= to.size()) return call.unknown(kNoRule);
    to[to.size() - 1 - i / 2] = kRunOver;
  }
  return carry(call, {{*x, to}}, result);
}

// grid_sampler(x[N, ...], grid[N, ...])
BatchState grid_sample_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "input");
  const auto grid = call.tensor(1, "grid");
  if (!x || !grid || call.rank(*x) < 1 || call.rank(*grid) < 1) return call.unknown(kNoRule);
  std::vector<Operand> operands;
  for (const ValueId id : {*x, *grid}) {
    operands.push_back({id, std::vector<int>(static_cast<std::size_t>(call.rank(id)), kRunOver)});
    operands.back().to[0] = 0;
  }
  return carry(call, operands, result);
}

}  // namespace

void add_window_rules(BatchRules& rules) {
  rules.add({"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
             "conv_transpose3d", "convolution"},
            convolution_rule);
  rules.add({"max_pool1d", "avg_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d",
             "max_pool1d_with_indices"},
            pool_rule<1>);
  rules.add({"max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d",
             "max_pool2d_with_indices", "_adaptive_avg_pool2d"},
            pool_rule<2>);
  rules.add({"max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d",
             "max_pool3d_with_indices", "_adaptive_avg_pool3d", "pixel_shuffle", "pixel_unshuffle"},
            pool_rule<3>);
  rules.add({"upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
             "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
             "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
             "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"},
            resize_rule);
  rules.add({"channel_shuffle", "native_channel_shuffle"}, first_dim_rule);
  rules.add({"im2col", "col2im"}, columns_rule);
  rules.add({"pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
             "replication_pad1d", "replication_pad2d", "replication_pad3d"},
            pad_rule);
  rules.add({"grid_sampler", "grid_sampler_2d", "grid_sampler_3d"}, grid_sample_rule);
}

}  // namespace kerf
