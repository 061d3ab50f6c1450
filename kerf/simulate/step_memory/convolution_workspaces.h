// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What cuDNN takes beside the operands of a convolution. Private to simulate/step_memory.
//
// Which kernel runs is cuDNN's choice, by tables of its own. What a kind of kernel needs follows
// from the shapes, and is exact where the kind is right; when cuDNN takes which was read off the
// convolutions of benchmarks/prediction (h200_blocks.json.gz, h200_training.json.gz: batch 8, one
// H200, cuDNN 9.19), and held to peaks at batch 16 (benchmarks/symbolic_profile). A measured
// profile knows better: StepRequest::profile.
//
// Let x, y and w be the bytes of the input, the result and the weight. The kinds:
// - Products of matrices, one a sample, for windows of one element that skip no place. Nothing is
//   copied; the gradient of the weight has a part of w for each sample before they are added up.
// - One implicit product over all samples, which takes channels last: what lies otherwise is
//   copied, x + w + y. For the gradient of the weight the sum over all places is split, so that
//   the tiles of all parts fill the multiprocessors; each part is a whole w.
// - Winograd's, for the gradient of a 3x3 weight of a small convolution: x, y and w transformed.
// - Direct kernels, for few channels: nothing. Depthwise convolutions are PyTorch's own, and take
//   nothing either, unless channels are last.
#pragma once

#include <cstdint>
#include <optional>

#include "kerf/graph/graph.h"

namespace kerf {

struct Convolution {
  Bytes input;
  Bytes weight;
  Bytes result;
  ValueId kernel;
  std::int64_t samples = 0;
  std::int64_t pixels = 1;        // of the result: of the input of a transposed one
  std::int64_t channels_in = 1;   // of a group
  std::int64_t channels_out = 1;  // of all groups
  std::int64_t groups = 1;
  std::int64_t window = 1;        // elements of the kernel
  std::int64_t window_width = 1;  // of them, in the last dimension
  std::int64_t width = 1;         // of the input
  std::int64_t squares = 0;       // of 4 x 4 pixels, in part or full; 0: not two dimensions
  std::int64_t stride = 1;
  bool is_square = false;  // the window
  bool is_single = false;  // precision
  bool is_channels_last = false;

  std::int64_t places() const { return samples * pixels; }
  bool is_depthwise() const { return groups > 1 && channels_in == 1; }
};

// Nothing for other operators, and for convolutions without a batch.
std::optional<Convolution> find_convolution(const Graph& graph, NodeId node, std::int64_t batch);

// While it makes the result; the gradient of the input; that of the weight.
Bytes result_workspace(const Convolution& c);
Bytes input_gradient_workspace(const Convolution& c);
Bytes weight_gradient_workspace(const Convolution& c);

}  // namespace kerf
