// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/estimate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "kerf/device/devices.h"
#include "kerf/graph/text.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// One operator in a graph of its own; `head` declares what it uses.
Graph graph_of(const std::string& head, const std::string& node) {
  return parse_graph("kerf-graph 1.0\ngraph \"one\"\nbatch 2\n" + head + node +
                     "\noutput \"y\" = %y\n");
}

NodeCost cost_of(const std::string& head, const std::string& node, std::int64_t batch = 2) {
  const Profile profile = estimate(graph_of(head, node), device_kind("cpu"), batch);
  EXPECT_THAT(profile.unknown_ops, IsEmpty()) << node;
  return profile.nodes.back();
}

TEST(TheEstimator, CountsALinearLayer) {
  const NodeCost cost =
      cost_of("input %x: f32[B, 5, 16] = \"args.0\"\nweight @w: f32[32, 16] = parameter \"w\"\n",
              "%y: f32[B, 5, 32] = aten.linear.default(%x, @w)", 3);
  EXPECT_EQ(cost.macs, 3 * 5 * 16 * 32);
  EXPECT_EQ(cost.flops, 2 * cost.macs);
  EXPECT_EQ(cost.weights, Bytes{32 * 16 * 4});
  EXPECT_EQ(cost.inputs, Bytes{3 * 5 * 16 * 4});
  EXPECT_EQ(cost.outputs, Bytes{3 * 5 * 32 * 4});
  EXPECT_EQ(cost.moved, cost.weights + cost.inputs + cost.outputs);
  EXPECT_EQ(cost.workspace(), Bytes{0});
  EXPECT_GT(cost.forward, device_kind("cpu").launch);
}

TEST(TheEstimator, CountsProducts) {
  const std::string two =
      "input %a: f32[B, 4, 6] = \"args.0\"\ninput %b: f32[B, 6, 8] = \"args.1\"\n";
  EXPECT_EQ(cost_of(two, "%y: f32[B, 4, 8] = aten.bmm.default(%a, %b)").macs, 2 * 4 * 6 * 8);
  EXPECT_EQ(cost_of(two, "%y: f32[B, 4, 8] = aten.matmul.default(%a, %b)").macs, 2 * 4 * 6 * 8);
  EXPECT_EQ(cost_of(two, "%y: f32[B, 4, 8] = aten.einsum.default(\"bij,bjk->bik\", [%a, %b])").macs,
            2 * 4 * 6 * 8);
  EXPECT_EQ(
      cost_of(two, "%y: f32[B, 4, 8] = aten.einsum.default(\"...ij,...jk->...ik\", [%a, %b])").macs,
      2 * 4 * 6 * 8);
  EXPECT_EQ(cost_of(two + "input %c: f32[B, 4, 8] = \"args.2\"\n",
                    "%y: f32[B, 4, 8] = aten.baddbmm.default(%c, %a, %b)")
                .macs,
            2 * 4 * 6 * 8);
}

TEST(TheEstimator, CountsConvolutions) {
  const std::string image = "input %x: f32[B, 8, 10, 10] = \"args.0\"\n";
  // 8 channels in 2 groups to 16: each output element takes 4 x 3 x 3.
  EXPECT_EQ(cost_of(image + "weight @w: f32[16, 4, 3, 3] = parameter \"w\"\n",
                    "%y: f32[B, 16, 8, 8] = aten.conv2d.default(%x, @w)")
                .macs,
            2.0 * 16 * 8 * 8 * 4 * 3 * 3);
  EXPECT_EQ(cost_of(image + "weight @w: f32[8, 4, 2, 2] = parameter \"w\"\n",
                    "%y: f32[B, 4, 20, 20] = aten.conv_transpose2d.input(%x, @w)")
                .macs,
            2.0 * 8 * 10 * 10 * 4 * 2 * 2);
}

TEST(TheEstimator, CountsAttention) {
  const std::string head =
      "input %q: f32[B, 4, 7, 16] = \"args.0\"\ninput %k: f32[B, 4, 9, 16] = \"args.1\"\n"
      "input %v: f32[B, 4, 9, 8] = \"args.2\"\n";
  EXPECT_EQ(
      cost_of(head, "%y: f32[B, 4, 7, 8] = aten.scaled_dot_product_attention.default(%q, %k, %v)")
          .macs,
      2.0 * 4 * 7 * 9 * (16 + 8));
}

TEST(TheEstimator, CountsARecurrentLayerByItsWeights) {
  const std::string head =
      "input %x: f32[B, 5, 6] = \"args.0\"\ninput %h: f32[1, B, 3] = \"args.1\"\n"
      "weight @a: f32[12, 6] = parameter \"a\"\nweight @b: f32[12, 3] = parameter \"b\"\n";
  EXPECT_EQ(cost_of(head,
                    "%y: f32[B, 5, 3], %hn: f32[1, B, 3], %cn: f32[1, B, 3] = "
                    "aten.lstm.input(%x, [%h, %h], [@a, @b], false, 1, 0.0, false, false, true)")
                .macs,
            2.0 * 5 * (12 * 6 + 12 * 3));
}

TEST(TheEstimator, TakesNothingForViewsWhateverTheyAreCalled) {
  const std::string x = "input %x: f32[B, 6] = \"args.0\"\n";
  EXPECT_EQ(cost_of(x, "%y: f32[B, 6] in %x = aten.anything.default(%x)").forward, Nanoseconds{0});
  EXPECT_GT(cost_of(x, "%y: f32[B, 6] = aten.reshape.default(%x)").forward, Nanoseconds{0})
      << "a reshape that copies";
  EXPECT_GT(cost_of(x, "%y: f32[B, 6] in %x = aten.relu_.default(&%x)").forward, Nanoseconds{0})
      << "a write is work";
}

TEST(TheEstimator, ReadsOfATableOnlyWhatItTakes) {
  const NodeCost cost =
      cost_of("input %i: i64[B, 3] = \"args.0\"\nweight @w: f32[50000, 8] = parameter \"w\"\n",
              "%y: f32[B, 3, 8] = aten.embedding.default(@w, %i)");
  EXPECT_LT(cost.moved, Bytes{1000});
  EXPECT_EQ(cost.weights, Bytes{50000 * 8 * 4});
}

TEST(TheEstimator, NamesUnknownOperatorsWithTheirShareAndNeverTakesThemForFree) {
  const Graph graph = graph_of("input %x: f32[B, 1000] = \"args.0\"\n",
                               "%h: f32[B, 1000] = mylib.magic.default(%x)\n"
                               "%y: f32[B, 1000] = aten.add.Tensor(%h, %x)");
  const Profile profile = estimate(graph, device_kind("cpu"));
  ASSERT_EQ(profile.unknown_ops.size(), 1U);
  EXPECT_EQ(profile.unknown_ops[0].op, "mylib.magic.default");
  EXPECT_EQ(profile.unknown_ops[0].count, 1);
  EXPECT_GT(profile.unknown_ops[0].share, 0.1);
  EXPECT_GT(profile.nodes[0].forward, device_kind("cpu").launch);
}

TEST(TheEstimator, GrowsWithTheBatchAndShrinksOnFasterDevices) {
  const Graph graph = graph_of(
      "input %x: f32[B, 2048] = \"args.0\"\nweight @w: f32[2048, 2048] = parameter \"w\"\n",
      "%y: f32[B, 2048] = aten.linear.default(%x, @w)");
  const auto time = [&](const char* kind, std::int64_t batch) {
    return estimate(graph, device_kind(kind), batch).total_forward();
  };
  EXPECT_LT(time("cpu", 1), time("cpu", 512));
  EXPECT_LT(time("h200", 512), time("t4", 512));
  EXPECT_LT(time("t4", 512), time("cpu", 512));
  EXPECT_EQ(estimate(graph, device_kind("cpu")).batch, 2) << "the example's batch";
}

Graph net_graph(const char* mode) {
  return parse_graph(std::string("kerf-graph 1.0\ngraph \"net\"") + mode +
                     "\nbatch 2\nscope 0 \"\" \"Net\"\nscope 1 \"drop\" \"Dropout\"\n"
                     "scope 2 \"bn\" \"BatchNorm1d\"\n"
                     "input %x: f32[B, 64] = \"args.0\"\n"
                     "weight @w: f32[64, 64] grad = parameter \"w\"\n"
                     "%h: f32[B, 64] grad = aten.linear.default(%x, @w)\n"
                     "%y: f32[B, 64] grad = mylib.magic.default(%h)\noutput \"y\" = %y\n");
}

TEST(TheEstimator, GivesBackwardTimesOfATrainingGraph) {
  const Graph graph = net_graph(" training");
  const Profile profile = estimate(graph, device_kind("cpu"), 4, true);
  EXPECT_TRUE(profile.training);
  const NodeCost& linear = profile.nodes[0];
  EXPECT_EQ(linear.backward_macs, linear.macs) << "only the weight wants a gradient";
  EXPECT_EQ(linear.backward_flops, 2 * linear.backward_macs);
  EXPECT_EQ(linear.backward_weights, linear.backward);
  EXPECT_EQ(linear.saved, Bytes{4 * 64 * 4}) << "its input";
  EXPECT_GT(linear.backward, device_kind("cpu").launch);
  const NodeCost& magic = profile.nodes[1];
  EXPECT_GT(magic.backward, magic.forward);
  EXPECT_EQ(magic.backward_weights, Nanoseconds{0});
  ASSERT_EQ(profile.notes.size(), 1U);
  EXPECT_THAT(profile.notes[0], HasSubstr("what mylib.magic.default keeps"));
  ASSERT_EQ(profile.unknown_ops.size(), 1U);
  EXPECT_DOUBLE_EQ(
      profile.unknown_ops[0].share,
      (magic.forward + magic.backward) / (profile.total_forward() + profile.total_backward()));
  EXPECT_EQ(parse_profile(print_profile(profile, graph), graph), profile);
  EXPECT_EQ(estimate(graph, device_kind("cpu"), 4).total_backward(), Nanoseconds{0});
}

TEST(TheEstimator, RefusesTrainingOfAGraphTracedInEvalMode) {
  try {
    estimate(net_graph(""), device_kind("cpu"), 0, true);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("[profile.estimate] graph 'net' was traced in eval mode"));
    EXPECT_THAT(error.what(), HasSubstr("dropout does nothing (drop)"));
    EXPECT_THAT(error.what(), HasSubstr("running statistics (bn)"));
    EXPECT_THAT(error.what(), HasSubstr("trace model.train()"));
  }
}

class ProfileFile : public ::testing::Test {
 protected:
  Graph graph_ = graph_of("input %x: f32[B, 10] = \"args.0\"\n",
                          "%h: f32[B, 10] = aten.relu.default(%x)\n"
                          "%y: f32[B, 10] = aten.tanh.default(%h)");
  Profile profile_ = estimate(graph_, device_kind("cpu"));

  std::string error_of(const std::string& text) const {
    try {
      parse_profile(text, graph_, "profile.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_profile);
      return error.what();
    }
    return "no error";
  }
};

TEST_F(ProfileFile, KeepsTheCostsOfTraining) {
  profile_.training = true;
  NodeCost& cost = profile_.nodes[0];
  cost.samples = 3;
  cost.backward = {40};
  cost.backward_spread = {2};
  cost.backward_weights = {15};
  cost.forward_apart = {{5}, {9}};
  cost.backward_apart = {{6}, {30}};
  cost.saved = Bytes{64};
  cost.backward_workspace = Bytes{128};
  const std::string text = print_profile(profile_, graph_);
  EXPECT_EQ(parse_profile(text, graph_), profile_);
  EXPECT_EQ(profile_.total_backward(), Nanoseconds{40});
  std::string more = text;
  more.replace(more.find("\"backward_weights_ns\": 15"), 25, "\"backward_weights_ns\": 41");
  EXPECT_THROW(parse_profile(more, graph_), Error);
}

TEST_F(ProfileFile, ComesBackAsItWas) {
  profile_.nodes[0].samples = 7;
  profile_.nodes[0].forward_spread = Nanoseconds{1.25};
  profile_.nodes[1].source = Source::measured;
  profile_.notes = {"a note"};
  EXPECT_EQ(parse_profile(print_profile(profile_, graph_), graph_), profile_);
  const std::string path = ::testing::TempDir() + "kerf_profile_test.json";
  save_profile(profile_, graph_, path);
  EXPECT_EQ(load_profile(path, graph_), profile_);
  std::remove(path.c_str());
}

TEST_F(ProfileFile, OfAnotherGraphIsRefusedByBothHashes) {
  const Graph other =
      graph_of("input %x: f32[B, 11] = \"args.0\"\n", "%y: f32[B, 11] = aten.relu.default(%x)");
  const std::string text = print_profile(estimate(other, device_kind("cpu")), other);
  EXPECT_THAT(error_of(text), HasSubstr(other.hash()));
  EXPECT_THAT(error_of(text), HasSubstr(graph_.hash()));
  EXPECT_THROW(check_profile_matches(estimate(other, device_kind("cpu")), graph_), Error);
}

TEST_F(ProfileFile, CutShortAnywhereIsRefused) {
  const std::string text = print_profile(profile_, graph_);
  for (std::size_t length = 0; length + 2 < text.size(); length += 7) {
    EXPECT_THAT(error_of(text.substr(0, length)), HasSubstr("profile.json")) << length;
  }
}

TEST_F(ProfileFile, NamesWhatIsMissingDoubledOrNegative) {
  const std::string text = print_profile(profile_, graph_);
  const auto edited = [&](const std::string& from, const std::string& to) {
    std::string copy = text;
    copy.replace(copy.find(from), from.size(), to);
    return error_of(copy);
  };
  EXPECT_THAT(edited("\"node\": \"h\"", "\"node\": \"y\""), HasSubstr("twice"));
  EXPECT_THAT(edited("\"node\": \"h\"", "\"node\": \"q\""), HasSubstr("'q'"));
  EXPECT_THAT(edited("\"forward_ns\": ", "\"forward_ns\": -"), HasSubstr("1e-300 to 1e300"));
  EXPECT_THAT(edited("\"version\": \"1.2\"", "\"version\": \"1.9\""), HasSubstr("1.9"));
}

TEST(TheEstimator, WorksForTheFirstAcceleratorElseForTheFirstDevice) {
  EXPECT_EQ(profiled_kind(parse_devices("cpu:0,h200:0,a100:0")), "h200");
  EXPECT_EQ(profiled_kind(parse_devices("cpu:0,cpu:1")), "cpu");
  EXPECT_THROW(profiled_kind(Cluster{}), Error);
}

}  // namespace
}  // namespace kerf
