// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/batching.h"

#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"

namespace kerf {
namespace {

Graph model(const std::string& nodes) {
  return parse_graph("kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 3, 4] = \"args.0\"\n" + nodes);
}

std::string refusal(const Graph& graph, const std::map<std::string, std::string>& reduce = {}) {
  try {
    output_rules(graph, reduce);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ABatch, IsCutIntoPartsThatDifferByOneSampleAtMost) {
  EXPECT_EQ(micro_batch_sizes(8, 4), (std::vector<std::int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(micro_batch_sizes(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(micro_batch_sizes(9, 4), (std::vector<std::int64_t>{3, 2, 2, 2}));
  EXPECT_EQ(micro_batch_sizes(2, 4), (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(micro_batch_sizes(5, 1), (std::vector<std::int64_t>{5}));
}

TEST(AnInput, IsCutWhereTheBatchStands) {
  const Graph graph = parse_graph(R"(kerf-graph 1.0
batch 2
input %x: f32[B, 3] = "args.0"
input %state: f32[2, B, 3] = "args.1"
input %mask: f32[3, 3] = "args.2"
input %flat: f32[3*B] = "args.3"
)");
  EXPECT_EQ(input_dims(graph), (std::vector<BatchDim>{{0, 1}, {1, 1}, {-1, 1}, {0, 3}}));
}

TEST(AnOutput, IsJoinedWhereTheBatchStands) {
  const auto rules = output_rules(model(R"(%h: f32[2, B, 4] = aten.lstm.input(%x)
output "h" = %h
)"),
                                  {});
  EXPECT_EQ(rules[0].join, Join::concatenate);
  EXPECT_EQ(rules[0].at.dim, 1);
}

TEST(AnOutput, WithTheBatchInTwoDimensionsMixesSamples) {
  const std::string message = refusal(model(R"(%l: f32[B, B] = aten.mm.default(%x, %x)
output "logits_per_image" = %l
)"));
  EXPECT_NE(message.find("logits_per_image"), std::string::npos) << message;
  EXPECT_NE(message.find("mixes samples"), std::string::npos) << message;
}

TEST(ALoss, NeedsToBeToldHowItIsReduced) {
  const Graph graph = model(R"(%l: f32[] = aten.mean.default(%x)
output "loss" = %l
)");
  EXPECT_NE(refusal(graph).find("reduce={\"loss\": \"mean\"}"), std::string::npos);
  EXPECT_EQ(output_rules(graph, {{"loss", "mean"}})[0].join, Join::mean);
  EXPECT_NE(refusal(graph, {{"loss", "sum"}}).find("expected 'mean'"), std::string::npos);
  EXPECT_THROW(output_rules(graph, {{"loss", "median"}}), Error);
  EXPECT_NE(refusal(graph, {{"lose", "mean"}}).find("expected one of 'loss'"), std::string::npos);
  const Graph summed = model("%l: f32[] = aten.sum.default(%x)\noutput \"loss\" = %l\n");
  EXPECT_EQ(output_rules(summed, {{"loss", "sum"}})[0].join, Join::sum);
  EXPECT_NE(refusal(summed, {{"loss", "mean"}}).find("expected 'sum'"), std::string::npos);
}

TEST(Reduce, IsForOutputsWithoutABatchDimension) {
  const Graph graph = model("%y: f32[B, 3, 4] = aten.relu.default(%x)\noutput \"y\" = %y\n");
  EXPECT_NE(refusal(graph, {{"y", "mean"}}).find("has the batch in dimension 0"),
            std::string::npos);
}

TEST(AGraph, ThatMixesSamplesIsNotCut) {
  const Graph graph = model(R"(%m: f32[3, 4] = aten.mean.dim(%x, [0]) ; source="model.py:7"
%y: f32[B, 3, 4] = aten.sub.Tensor(%x, %m)
output "y" = %y
)");
  const std::string message = refusal(graph);
  EXPECT_NE(message.find("output 'y' mixes samples: node 'm' (aten.mean.dim)"), std::string::npos);
  EXPECT_NE(message.find("model.py:7"), std::string::npos) << message;
  EXPECT_NE(message.find("batch_dims="), std::string::npos) << message;
  EXPECT_THROW(check_samples_are_separate(graph, {}, true), Error);
  const Graph opaque = model("%y: f32[B, 3, 4] = opaque(%x)\noutput \"y\" = %y\n");
  EXPECT_THROW(check_samples_are_separate(opaque, {}, false), Error);
  EXPECT_EQ(check_samples_are_separate(opaque, {}, true).kind, Independence::proved);
}

TEST(ABuffer, ThatMixesSamplesIsNoMatterOfWhereTheBatchStands) {
  const std::string message = refusal(model(R"(weight @buf: f32[3, 4] = buffer "seen"
%m: f32[3, 4] = aten.mean.dim(%x, [0])
%c: f32[3, 4] in @buf = aten.copy_.default(&~@buf, %m)
output "y" = %x
)"));
  EXPECT_NE(message.find("buffer 'seen' would be left with other values"), std::string::npos)
      << message;
  EXPECT_NE(message.find("n_microbatches=1"), std::string::npos) << message;
  EXPECT_EQ(message.find("batch_dims"), std::string::npos) << message;
}

TEST(AnOutput, ThatDependsOnNoSampleIsTakenOnce) {
  const auto rules = output_rules(model(R"(%p: i64[3] = aten.arange.default(3)
output "positions" = %p
output "text" = "constant"
)"),
                                  {});
  EXPECT_EQ(rules[0].join, Join::whole);
  EXPECT_EQ(rules[1].join, Join::whole);
}

TEST(AFlattenedOutput, IsJoinedWhenSamplesStandOneAfterTheOther) {
  const auto rules = output_rules(model(R"(%v: f32[3*B, 4] in %x = aten.view.default(~%x, [3*B, 4])
%r: f32[3*B, 4] = aten.relu.default(%v)
output "y" = %r
)"),
                                  {});
  EXPECT_EQ(rules[0].join, Join::concatenate);
  EXPECT_EQ(rules[0].at, (BatchDim{0, 3}));
}

TEST(AFlattenedOutput, IsRefusedWhenTheBatchIsTheInnerFactor) {
  EXPECT_NE(refusal(model(R"(%t: f32[3, B, 4]{4, 12, 1} in %x = aten.transpose.int(~%x, 0, 1)
%v: f32[3*B, 4] = aten.reshape.default(~%t, [3*B, 4])
output "y" = %v
)"))
                .find("follow one another"),
            std::string::npos);
  EXPECT_NE(refusal(model(R"(%c: f32[2*B, 3, 4] = aten.cat.default([%x, %x])
output "y" = %c
)"))
                .find("follow one another"),
            std::string::npos);
}

TEST(AnOutput, OfAnotherSizeInBIsRefused) {
  EXPECT_NE(refusal(model(R"(%c: f32[B+1, 3, 4] = aten.pad.default(%x)
output "y" = %c
)"))
                .find("B+1"),
            std::string::npos);
}

TEST(ABuffer, WrittenWithSamplesForbidsMicroBatchesInBothModes) {
  const std::string text = R"(input %x: f32[B, 4] = "args.0"
weight @buf: f32[4] = buffer "seen"
%m: f32[4] = aten.mean.dim(%x, [0])
%c: f32[4] in @buf = aten.copy_.default(&~@buf, %m)
output "y" = %x
)";
  const Graph eval = parse_graph("kerf-graph 1.0\nbatch 2\n" + text);
  EXPECT_THROW(output_rules(eval, {}), Error);
  const Graph train = parse_graph("kerf-graph 1.0\ngraph \"m\" training\nbatch 2\n" + text);
  EXPECT_THROW(output_rules(train, {}), Error);
}

TEST(AnInput, ThatAllMicroBatchesShareMayNotBeWritten) {
  const Graph graph = parse_graph(R"(kerf-graph 1.0
batch 2
input %x: f32[B, 4] = "args.0"
input %s: f32[4] = "args.1"
%c: f32[4] in %s = aten.add_.Tensor(&~%s, 1)
output "y" = %x
)");
  EXPECT_NE(refusal(graph).find("input 'args.1' would be left with other values"),
            std::string::npos);
}

}  // namespace
}  // namespace kerf
