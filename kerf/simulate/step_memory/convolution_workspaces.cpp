// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/step_memory/convolution_workspaces.h"

#include <algorithm>

#include "kerf/graph/arguments.h"
#include "kerf/graph/batch_flow/call.h"

namespace kerf {
namespace {

constexpr Bytes kAlignment{16};
constexpr std::int64_t kMultiprocessors = 132;  // of an H100 and an H200
constexpr std::int64_t kTile = 128;             // rows and columns that one of them makes at a time
constexpr std::int64_t kColours = 4;            // channels of pictures, at most
constexpr std::int64_t kFewChannels = 32;
constexpr std::int64_t kSomeChannels = 64;
constexpr std::int64_t kManyPlaces = 4096;  // a sum over so many is long

std::int64_t tiles_of(std::int64_t n) { return (n + kTile - 1) / kTile; }

std::int64_t find_stride(const Node& node) {
  const Argument* const stride = find_argument(node, 3, "stride");
  const auto* const steps = stride == nullptr ? nullptr : stride->find<Argument::List>();
  std::int64_t most = 1;
  if (steps == nullptr) return most;
  for (const Argument& step : *steps) {
    if (const auto* number = step.find<Expr>()) most = std::max(most, number->eval(0));
  }
  return most;
}

bool has_channels_last(const Value& value, std::int64_t batch) {
  const bool has_channels = value.shape.size() > 2 && value.shape[1].eval(batch) > 1;
  return has_channels && value.strides[1].eval(batch) == 1;
}

// Of what an implicit product reads and writes. A weight of one element a window lies the same way
// in both orders; where channels are last, only the weight does not lie so.
Bytes copies(const Convolution& c) {
  const Bytes weight = c.window > 1 ? c.weight : Bytes{};
  if (c.is_channels_last) return weight;
  return c.input + weight + c.result + kAlignment;
}

bool is_product_each(const Convolution& c) {
  return c.window == 1 && c.stride == 1 && c.groups == 1;
}

bool is_patch(const Convolution& c) { return c.stride > 1 && c.stride == c.window_width; }

// A direct kernel adds up all channels of a window at once. 7 x 7 windows of pictures are many.
bool is_direct(const Convolution& c, std::int64_t channels, std::int64_t places) {
  if (c.is_depthwise()) return true;
  if (c.groups > 1) return false;
  if (c.channels_in <= kColours) return c.window <= 9 || is_patch(c);
  if (c.window == 1) return c.stride > 1 && c.channels_in <= kSomeChannels;
  return channels <= kFewChannels && c.places() < places;
}

// With few channels the result is written as it should lie, by four numbers at a time.
bool writes_in_place(const Convolution& c) {
  constexpr std::int64_t kMostPlaces = 1 << 18;
  const bool is_some = c.channels_in > kColours && c.channels_in <= kSomeChannels;
  return is_some && c.groups == 1 && c.pixels % 4 == 0 && c.places() < kMostPlaces;
}

// Winograd's F(4x4, 3x3): squares of 4 x 4 pixels, and windows, become 6 x 6 numbers. Taken where
// channels and images are small; of few channels, where there are few squares.
constexpr std::int64_t kTransformed = 36;

bool is_winograd(const Convolution& c) {
  constexpr std::int64_t kMostPairs = 1 << 16;
  constexpr std::int64_t kMostSquares = 512;
  constexpr std::int64_t kMostProducts = 10'000'000;
  if (!c.is_single || c.groups > 1 || c.stride > 1) return false;
  if (c.squares == 0 || c.window != 9 || !c.is_square) return false;
  const std::int64_t least = std::min(c.channels_in, c.channels_out);
  const std::int64_t pairs = c.channels_in * c.channels_out;
  const std::int64_t squares = c.samples * c.squares;
  if (least < kFewChannels || (least == kFewChannels && squares > kTile)) return false;
  return pairs <= kMostPairs && squares <= kMostSquares && pairs * squares <= kMostProducts;
}

Bytes winograd_workspace(const Convolution& c) {
  const std::int64_t operands = c.samples * c.squares * (c.channels_in + c.channels_out);
  return Bytes{4 * kTransformed * (operands + c.channels_in * c.channels_out)};
}

// Gradients of the weight, one a sample. Small images are left to the implicit product where rows
// of channels are not aligned, or where the products of all samples would fill the multiprocessors
// more than twice; images of some size take a kernel without a workspace where rows are not. How
// many samples cuDNN gives a part each was seen at 8 and 16.
Bytes product_workspace(const Convolution& c) {
  constexpr std::int64_t kOnePixel = 16;  // or few: pooled channels
  constexpr std::int64_t kSmallImage = 128;
  constexpr std::int64_t kLargeImage = 512;
  constexpr std::int64_t kMostParts = 32;
  if (c.pixels < kOnePixel) return {};
  if (c.channels_in <= kFewChannels && c.places() >= kManyPlaces) return copies(c);
  const Bytes parts = c.samples > 1 ? c.weight * std::min(c.samples, kMostParts) : Bytes{};
  if (c.pixels < kSmallImage) {
    const std::int64_t tiles = c.samples * tiles_of(c.channels_out) * tiles_of(c.channels_in);
    const bool is_aligned = c.channels_in % kFewChannels == 0;
    return is_aligned && tiles <= 2 * kMultiprocessors ? parts : copies(c);
  }
  const bool is_aligned = c.channels_in % kSomeChannels == 0;
  return is_aligned || c.pixels >= kLargeImage ? parts : Bytes{};
}

// Parts of the sum, beside the copy of the weight; 0 where it is not split.
std::int64_t implicit_parts(const Convolution& c) {
  constexpr std::int64_t kShort = 1024;
  constexpr std::int64_t kPictureParts = kMultiprocessors * 7 / 8;  // as seen
  if (c.groups > 1 || c.places() < kShort) return 0;
  const std::int64_t rows = tiles_of(c.channels_out);
  const bool is_narrow = rows * tiles_of(c.channels_in * c.window) <= 2;
  if (c.channels_in <= kColours && is_narrow) return kPictureParts;
  // As seen where windows skip places, or are no squares.
  if (c.stride > 1) return c.places() >= kManyPlaces ? 7 : 0;
  if (!c.is_square) return 8;
  const std::int64_t parts = kMultiprocessors / (c.window * rows * tiles_of(c.channels_in));
  return parts > 1 ? parts : 0;
}

// cuDNN's depthwise kernel has the rows of a window side by side: the input as many times as a
// window is wide, in rows of a multiple of eight. For small images it goes without.
Bytes depthwise_workspace(const Convolution& c) {
  constexpr std::int64_t kRow = 8;
  constexpr std::int64_t kSmallWidth = 16;
  const Bytes operands = c.input + c.result + kAlignment;
  if (c.width < kSmallWidth) return operands;
  const std::int64_t rows = c.input.count / c.width;
  const std::int64_t width = (c.width + kRow - 1) / kRow * kRow;
  return operands + Bytes{c.window_width * rows * width};
}

}  // namespace

std::optional<Convolution> find_convolution(const Graph& graph, NodeId id, std::int64_t batch) {
  const Node& node = graph.node(id);
  const std::string_view name = operator_name(node.op);
  if (!name.starts_with("conv")) return std::nullopt;
  const ValueId* const input = find_tensor(node, 0, "input");
  const ValueId* const weight = find_tensor(node, 1, "weight");
  const ValueId result = node.outputs.front();
  if (input == nullptr || weight == nullptr || !result.valid()) return std::nullopt;
  const Value& in = graph.value(*input);
  const Value& kernel = graph.value(*weight);
  const Value& out = graph.value(result);
  const std::size_t rank = kernel.shape.size();
  if (in.shape.size() != rank || out.shape.size() != rank) return std::nullopt;  // no batch
  const auto size = [batch](const Value& value, std::size_t d) {
    return value.shape[d].eval(batch);
  };
  // Seen from its input's gradient, a transposed convolution is a plain one.
  const bool is_transposed = name.starts_with("conv_transpose");
  const Value& from = is_transposed ? out : in;
  const Value& to = is_transposed ? in : out;
  Convolution c{from.bytes(batch), kernel.bytes(batch), to.bytes(batch), *weight};
  c.samples = size(to, 0);
  for (std::size_t d = 2; d < rank; ++d) {
    c.window *= size(kernel, d);
    c.pixels *= size(to, d);
  }
  c.channels_out = size(to, 1);
  c.channels_in = size(kernel, 1);
  c.groups = c.channels_in == 0 ? 1 : size(from, 1) / c.channels_in;
  c.window_width = size(kernel, rank - 1);
  c.width = std::max<std::int64_t>(size(from, rank - 1), 1);
  c.stride = find_stride(node);
  if (rank == 4) {
    c.is_square = size(kernel, 2) == size(kernel, 3);
    c.squares = ((size(to, 2) + 3) / 4) * ((size(to, 3) + 3) / 4);
  }
  c.is_single = in.dtype == DType::f32;
  c.is_channels_last = has_channels_last(in, batch);
  return c;
}

Bytes result_workspace(const Convolution& c) {
  if (is_product_each(c) || is_direct(c, c.channels_in, 2 * kManyPlaces)) return {};
  if (writes_in_place(c) && !c.is_channels_last) return c.input + c.weight + kAlignment;
  return copies(c);
}

Bytes input_gradient_workspace(const Convolution& c) {
  const std::int64_t channels = std::min(c.channels_in, c.channels_out);
  if (is_product_each(c) || is_direct(c, channels, kManyPlaces)) return {};
  return copies(c);
}

Bytes weight_gradient_workspace(const Convolution& c) {
  constexpr std::int64_t kShort = 1024;
  if (c.is_depthwise()) {
    // See use_cudnn_depthwise of PyTorch's Convolution.cpp.
    return c.is_channels_last ? depthwise_workspace(c) : Bytes{};
  }
  if (c.is_channels_last) return c.places() >= kShort ? c.input + kAlignment : Bytes{};
  if (is_product_each(c)) return product_workspace(c);
  if (c.channels_in <= kColours && c.window <= 9 && !is_patch(c)) return {};
  if (is_winograd(c)) return winograd_workspace(c);
  return copies(c) + c.weight * implicit_parts(c);
}

}  // namespace kerf
