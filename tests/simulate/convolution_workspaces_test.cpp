// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Workspaces of convolutions against those that an H200 was seen to take for them.
#include "kerf/simulate/step_memory/convolution_workspaces.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "kerf/graph/text.h"

namespace kerf {
namespace {

struct Shape {
  std::int64_t samples, channels_in, side, channels_out, window;
  std::int64_t stride = 1;
  std::int64_t groups = 1;
  bool is_channels_last = false;
};

Convolution convolution(const Shape& s) {
  const std::int64_t padding = s.stride == s.window ? 0 : s.window / 2;
  const std::int64_t side = (s.side + 2 * padding - s.window) / s.stride + 1;
  const auto strides = [&](std::int64_t channels, std::int64_t width) {
    if (!s.is_channels_last) return std::string();
    return fmt::format("{{{}, 1, {}, {}}}", channels * width * width, channels * width, channels);
  };
  const std::string text = fmt::format(
      "kerf-graph 1.1\ngraph \"one\" training\n"
      "input %x: f32[{0}, {1}, {2}, {2}]{3} = \"args.0\"\n"
      "weight @w: f32[{4}, {5}, {6}, {6}] grad = parameter \"w\"\n"
      "%y: f32[{0}, {4}, {7}, {7}]{8} grad = aten.conv2d.default(%x, @w, none, [{9}, {9}], "
      "[{10}, {10}], [1, 1], {11})\n"
      "output \"\" = %y\n",
      s.samples, s.channels_in, s.side, strides(s.channels_in, s.side), s.channels_out,
      s.channels_in / s.groups, s.window, side, strides(s.channels_out, side), s.stride, padding,
      s.groups);
  return find_convolution(parse_graph(text), NodeId{0}, 0).value();
}

// h200_blocks.json.gz of benchmarks/prediction has these to the byte: the result's, the gradient of
// the input's, that of the weight's. The splits of sums take some hundred bytes of their own.
struct Recorded {
  Shape shape;
  std::int64_t result, input_gradient, weight_gradient;
};

constexpr Recorded kRecorded[] = {
    // Implicit products.
    {{8, 64, 56, 64, 3}, 6570000, 12992528, 15057575},
    {{8, 128, 56, 32, 3}, 16203792, 16203792, 18268839},
    {{8, 256, 14, 512, 3, 2}, 7127056, 7127187, 7127056},
    {{8, 3, 224, 64, 7, 2}, 30544656, 30544656, 34872464},
    // Winograd's for the weight.
    {{8, 128, 28, 128, 3}, 7012368, 7012368, 16809984},
    {{8, 256, 14, 256, 3}, 5570576, 5570576, 18874368},
    {{8, 96, 14, 208, 3}, 2625552, 2625552, 8478720},
    {{8, 160, 7, 320, 3}, 2595856, 2595856, 9584640},
    {{8, 32, 7, 128, 3}, 0, 0, 1327104},
    // A product for each sample.
    {{8, 64, 56, 128, 1}, 0, 0, 262144},
    {{8, 256, 28, 32, 1}, 0, 0, 262144},
    {{8, 480, 14, 192, 1}, 0, 0, 0},
    {{8, 512, 14, 160, 1}, 0, 0, 2621440},
    {{8, 832, 7, 384, 1}, 0, 0, 10223616},
    // PyTorch's own.
    {{8, 144, 56, 144, 5, 2, 144}, 0, 0, 0},
};

TEST(WorkspacesOfConvolutions, AreThoseThatWereRecorded) {
  for (const Recorded& recorded : kRecorded) {
    const Shape& s = recorded.shape;
    const Convolution c = convolution(s);
    const std::string name = fmt::format("{} -> {}, {}x{} of {}", s.channels_in, s.channels_out,
                                         s.window, s.window, s.side);
    EXPECT_NEAR(result_workspace(c).count, recorded.result, 1024) << name;
    EXPECT_NEAR(input_gradient_workspace(c).count, recorded.input_gradient, 1024) << name;
    EXPECT_NEAR(weight_gradient_workspace(c).count, recorded.weight_gradient, 1024) << name;
  }
}

// Seen at batch 16, in peaks of benchmarks/symbolic_profile.
TEST(WorkspacesOfConvolutions, HaveAPartForEachSample) {
  const auto parts = [](const Shape& shape) {
    const Convolution c = convolution(shape);
    return static_cast<double>(weight_gradient_workspace(c).count) / c.weight.count;
  };
  EXPECT_EQ(parts({8, 1024, 14, 512, 1}), 8);
  EXPECT_EQ(parts({16, 1024, 14, 512, 1}), 16);
  EXPECT_EQ(parts({16, 960, 7, 160, 1}), 16);
  EXPECT_EQ(parts({1, 1024, 14, 512, 1}), 0);
  EXPECT_LT(parts({16, 320, 7, 1280, 1}), 4);  // more tiles than the device has room for
}

TEST(WorkspacesOfConvolutions, HaveAsManyPartsAsThereIsRoomFor) {
  const Convolution c = convolution({16, 384, 13, 256, 3});  // 9 x 3 x 2 tiles, 132 fit
  EXPECT_EQ(weight_gradient_workspace(c), c.input + c.result + c.weight * 3 + Bytes{16});
}

TEST(WorkspacesOfConvolutions, LeaveOutWhatLiesChannelsLast) {
  const Convolution c = convolution({8, 384, 14, 768, 2, 2, 1, true});
  EXPECT_EQ(result_workspace(c), c.weight);
  const Convolution depthwise = convolution({8, 96, 56, 96, 7, 1, 96, true});
  EXPECT_EQ(result_workspace(depthwise), Bytes{});
  EXPECT_EQ(weight_gradient_workspace(depthwise), depthwise.input * 9 + Bytes{16});
}

TEST(WorkspacesOfConvolutions, OfTransposedOnesSwapInputAndResult) {
  const Graph graph = parse_graph(R"(kerf-graph 1.1
graph "one" training
input %x: f32[8, 256, 14, 14] = "args.0"
weight @w: f32[256, 128, 2, 2] grad = parameter "w"
%y: f32[8, 128, 28, 28] grad = aten.conv_transpose2d.input(%x, @w, none, [2, 2])
output "" = %y
)");
  const Convolution c = find_convolution(graph, NodeId{0}, 0).value();
  EXPECT_EQ(c.channels_in, 128);
  EXPECT_EQ(c.channels_out, 256);
  EXPECT_EQ(c.groups, 1);
  EXPECT_EQ(c.pixels, 14 * 14);
  EXPECT_EQ(c.result, graph.value(graph.inputs()[0].value).bytes(0));
}

}  // namespace
}  // namespace kerf
