// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Verdicts on small graphs, a family of operators at a time. That "proved" is never wrong on real
// operators is shown in tests/python/test_batch_flow.py.
#include "kerf/graph/batch_flow/batch_flow.h"

#include <gtest/gtest.h>

#include <string>

#include "kerf/graph/batch_flow/loss.h"
#include "kerf/graph/text.h"

namespace kerf {
namespace {

Graph batch_graph(const std::string& lines, bool training = false) {
  return parse_graph("kerf-graph 1.0\n" + std::string(training ? "graph \"m\" training\n" : "") +
                     "batch 2\ninput %x: f32[B, 3, 4] = \"args.0\"\n" +
                     "weight @w: f32[4, 4] = parameter \"w\"\n" + lines);
}

std::string verdict_of(const std::string& lines, const JudgedOutputs& which = {}) {
  const Graph graph = batch_graph(lines);
  const BatchVerdict verdict = judge_batch(graph, analyse_batch(graph), which);
  return std::string(to_string(verdict.kind)) +
         (verdict.by.valid() ? " " + graph.node(verdict.by).name : "");
}

BatchState state_of(const std::string& lines, const std::string& name) {
  const Graph graph = batch_graph(lines);
  const BatchFlow flow = analyse_batch(graph);
  for (std::size_t v = 0; v < graph.num_values(); ++v) {
    if (graph.value(ValueId(v)).name == name) return flow.states[v];
  }
  return {};
}

TEST(Pointwise, KeepsTheBatchWhereItIs) {
  EXPECT_EQ(verdict_of(R"(weight @t: f32[5, 3, 4] = parameter "t"
%y: f32[B, 3, 4] = aten.add.Tensor(%x, @t)
output "y" = %y
)"),
            "unknown y");  // right for one batch size only
  EXPECT_EQ(verdict_of("%y: f32[B, 3, 4] = aten.relu.default(%x)\noutput \"y\" = %y\n"), "proved");
}

TEST(Pointwise, OfTwoDimensionsOfSamplesMixes) {
  EXPECT_EQ(verdict_of(R"(%s: f32[B] = aten.sum.dim_IntList(%x, [1, 2])
%a: f32[B, 1] in %s = aten.unsqueeze.default(~%s, 1)
%b: f32[1, B] in %s = aten.unsqueeze.default(~%s, 0)
%d: f32[B, B] = aten.sub.Tensor(%a, %b)
%y: f32[B] = aten.sum.dim_IntList(%d, [1])
output "y" = %y
)"),
            "mixes d");
}

TEST(Pointwise, WithTheNumberOfSamplesMixes) {
  EXPECT_EQ(verdict_of("%y: f32[B, 3, 4] = aten.div.Tensor(%x, B)\noutput \"y\" = %y\n"),
            "mixes y");
}

TEST(AReduction, OverTheBatchMixesWhatItReaches) {
  const std::string lines = R"(%n: f32[] = aten.norm.Scalar(%x, 2)
%y: f32[B, 3, 4] = aten.mul.Tensor(%x, %n)
output "y" = %y
)";
  EXPECT_EQ(verdict_of(lines), "mixes n");
  EXPECT_EQ(verdict_of(R"(%n: f32[] = aten.norm.Scalar(%x, 2)
%y: f32[B, 3, 4] = aten.mul.Tensor(%x, 2)
output "y" = %y
output "norm" = %n
)",
                       {{"norm"}, {}}),
            "proved");
}

TEST(AReshape, TracksOuterAndInnerFactors) {
  const std::string heads = R"(%h: f32[3*B, 4] in %x = aten.view.default(~%x, [3*B, 4])
%t: f32[4, 3*B]{1, 4} in %x = aten.transpose.int(~%h, 0, 1)
)";
  EXPECT_EQ(state_of(heads, "h"), BatchState::batched(0, 1, 3));
  EXPECT_EQ(state_of(heads, "t"), BatchState::batched(1, 1, 3));
  const std::string twice = R"(%c: f32[2*B, 3, 4] = aten.cat.default([%x, %x])
%v: f32[2, B, 3, 4] in %c = aten.view.default(~%c, [2, B, 3, 4])
%w2: f32[6*B, 4] in %c = aten.view.default(~%c, [6*B, 4])
)";
  EXPECT_EQ(state_of(twice, "c"), BatchState::batched(0, 2, 1));
  EXPECT_EQ(state_of(twice, "v"), BatchState::batched(1, 1, 1));
  EXPECT_EQ(state_of(twice, "w2"), BatchState::batched(0, 2, 3));
}

TEST(AReshape, ThatPutsPartsOfSamplesTogetherMixes) {
  EXPECT_EQ(verdict_of(R"(%v: f32[3, 4*B] in %x = aten.view.default(~%x, [3, 4*B])
%s: f32[3, 4*B] = aten.softmax.int(%v, 0)
%y: f32[B, 3, 4] in %s = aten.view.default(~%s, [B, 3, 4])
output "y" = %y
)"),
            "mixes v");
}

TEST(Slices, OfWholeBatchesAreBatches) {
  const std::string lines = R"(%c: f32[2*B, 3, 4] = aten.cat.default([%x, %x])
%a: f32[B, 3, 4] in %c = aten.slice.Tensor(~%c, 0, 0, B)
%b: f32[B, 3, 4] = aten.slice.Tensor(~%c, 0, B, 9223372036854775807)
%y: f32[B, 3, 4] = aten.sub.Tensor(%a, %b)
output "y" = %y
)";
  EXPECT_EQ(verdict_of(lines), "proved");
  EXPECT_EQ(verdict_of(R"(%f: f32[1, 3, 4] in %x = aten.slice.Tensor(~%x, 0, 0, 1)
%y: f32[B, 3, 4] = aten.sub.Tensor(%x, %f)
output "y" = %y
)"),
            "mixes f");
}

TEST(NumbersOfSamples, PickTheirOwnRowsAndNothingElse) {
  const std::string start = R"(%r: i64[B] = aten.arange.default(B)
%m: i64[B] = aten.argmax.default(%q, -1)
)";
  const std::string q = "%q: f32[B, 3] = aten.sum.dim_IntList(%x, [2])\n";
  EXPECT_EQ(verdict_of(q + start + R"(%y: f32[B, 4] = aten.index.Tensor(%x, [%r, %m])
output "y" = %y
)"),
            "proved");
  EXPECT_EQ(verdict_of(q + start + R"(%y: f32[B, 3, 4] = aten.index.Tensor(%x, [%m])
output "y" = %y
)"),
            "unknown y");
  EXPECT_EQ(verdict_of(q + start + R"(%y: f32[B] = aten.index.Tensor(%q, [%r, %r])
output "y" = %y
)"),
            "unknown y");
  EXPECT_EQ(verdict_of(start.substr(0, start.find('\n') + 1) + "output \"y\" = %r\n"), "mixes r");
}

TEST(AWrite, ThroughAViewIsSeenUnderAllNames) {
  EXPECT_EQ(verdict_of(R"(%z: f32[B, 3, 4] = aten.zeros.default([B, 3, 4])
%v: f32[B, 4]{12, 1} in %z = aten.select.int(~%z, 1, 0)
%s: f32[B, 4] = aten.sum.dim_IntList(%x, [1])
%c: f32[B, 4]{12, 1} in %z = aten.copy_.default(&~%v, %s)
output "y" = %z
)"),
            "proved");
  EXPECT_EQ(verdict_of(R"(%z: f32[B, 3, 4] = aten.zeros.default([B, 3, 4])
%v: f32[B, 4]{12, 1} in %z = aten.select.int(~%z, 1, 0)
%s: f32[3, 4] = aten.sum.dim_IntList(%x, [0])
%t: f32[4] in %s = aten.select.int(~%s, 0, 0)
%c: f32[B, 4]{12, 1} in %z = aten.copy_.default(&~%v, %t)
output "y" = %z
)"),
            "mixes s");
}

TEST(AWrite, OfStateAtEveryCallIsRefused) {
  EXPECT_EQ(verdict_of(R"(weight @n: f32[] = buffer "calls"
%a: f32[] in @n = aten.add_.Tensor(&~@n, 1)
%y: f32[B, 3, 4] = aten.relu.default(%x)
output "y" = %y
)"),
            "mixes a");
}

TEST(AnOperatorWithoutARule, IsUnknownOnSamplesAndPlainOnWeights) {
  EXPECT_EQ(verdict_of("%y: f32[B, 3, 4] = my.op.default(%x)\noutput \"y\" = %y\n"), "unknown y");
  EXPECT_EQ(verdict_of(R"(%v: f32[4, 4] = my.op.default(@w)
%y: f32[B, 3, 4] = aten.linear.default(%x, %v)
output "y" = %y
)"),
            "proved");
}

TEST(AnOpaqueBlock, IsNotLookedIntoUnlessTheUserVouchesForIt) {
  const std::string lines = R"(%y: f32[B, 3, 4] = opaque(%x)
output "y" = %y
)";
  const Graph graph = batch_graph(lines);
  EXPECT_EQ(judge_batch(graph, analyse_batch(graph)).kind, Independence::opaque);
  EXPECT_EQ(judge_batch(graph, analyse_batch(graph, OpaqueBlocks::separate)).kind,
            Independence::proved);
  const Graph mixing = batch_graph(R"(%o: f32[B, 3, 4] = opaque(%x)
%s: f32[3, 4] = aten.mean.dim(%o, [0])
%y: f32[B, 3, 4] = aten.sub.Tensor(%o, %s)
output "y" = %y
)");
  EXPECT_EQ(judge_batch(mixing, analyse_batch(mixing, OpaqueBlocks::separate)).kind,
            Independence::mixes);
}

TEST(BatchNorm, OfTheBatchMixesInEvalModeAndIsNotedInTrainMode) {
  const std::string lines =
      R"(%y: f32[B, 3, 4] = aten.batch_norm.default(%x, none, none, none, none, true, 0.1, 1e-05, true)
output "y" = %y
)";
  EXPECT_EQ(verdict_of(lines), "mixes y");
  const Graph train = batch_graph(lines, true);
  const BatchVerdict verdict = judge_batch(train, analyse_batch(train));
  EXPECT_EQ(verdict.kind, Independence::proved);
  EXPECT_EQ(verdict.batch_norms.size(), 1U);
}

LossKind loss_of(const std::string& lines) {
  const Graph graph = batch_graph("input %t: i64[B] = \"args.1\"\n" + lines);
  const auto* id = graph.outputs()[0].leaf.find<ValueId>();
  return loss_shape(graph, analyse_batch(graph), *id).kind;
}

TEST(ALoss, IsAMeanASumOrAWeightedMean) {
  const std::string logits = "%l: f32[B, 4] = aten.sum.dim_IntList(%x, [1])\n";
  const std::string end = "output \"loss\" = %y\n";
  EXPECT_EQ(
      loss_of("%m: f32[] = aten.mean.default(%x)\n%y: f32[] = aten.mul.Tensor(%m, 2.0)\n" + end),
      LossKind::mean);
  EXPECT_EQ(loss_of("%y: f32[] = aten.sum.default(%x)\n" + end), LossKind::sum);
  EXPECT_EQ(loss_of("%s: f32[] = aten.sum.default(%x)\n%y: f32[] = aten.div.Tensor(%s, B)\n" + end),
            LossKind::mean);
  EXPECT_EQ(loss_of("%s: f32[] = aten.sum.default(%x)\n%n: i64[] = aten.sum.default(%t)\n"
                    "%y: f32[] = aten.div.Tensor(%s, %n)\n" +
                    end),
            LossKind::weighted_mean);
  EXPECT_EQ(loss_of(logits + "%y: f32[] = aten.cross_entropy_loss.default(%l, %t)\n" + end),
            LossKind::mean);
  EXPECT_EQ(
      loss_of(logits + "%y: f32[] = aten.cross_entropy_loss.default(%l, %t, none, 1, 0)\n" + end),
      LossKind::weighted_mean);
  std::string doubled = "%s0: f32[] = aten.mean.default(%x)\n";
  for (int i = 0; i < 100; ++i) {
    doubled += "%s" + std::to_string(i + 1) + ": f32[] = aten.add.Tensor(%s" + std::to_string(i) +
               ", %s" + std::to_string(i) + ")\n";
  }
  EXPECT_EQ(loss_of(doubled + "output \"loss\" = %s100\n"), LossKind::unknown);  // and ends
  EXPECT_EQ(loss_of("%s: f32[] = aten.mean.default(%x)\n%y: f32[] = aten.exp.default(%s)\n" + end),
            LossKind::unknown);
}

TEST(ALoss, IsAMeanOverSamplesWhereNoTargetIsIgnored) {
  const auto targets_of = [](const std::string& lines) {
    const Graph graph = batch_graph(
        "input %t: i64[B] = \"args.1\"\ninput %u: i64[B] = \"args.2\"\n"
        "%l: f32[B, 4] = aten.sum.dim_IntList(%x, [1])\n" +
        lines + "output \"loss\" = %y\n");
    const BatchFlow flow = analyse_batch(graph);
    const auto* id = graph.outputs()[0].leaf.find<ValueId>();
    return loss_targets(graph, flow, loss_shape(graph, flow, *id));
  };
  using Targets = std::vector<LossTarget>;
  EXPECT_EQ(targets_of("%y: f32[] = aten.cross_entropy_loss.default(%l, %t)\n"),
            (Targets{{1, -100}}));
  EXPECT_EQ(targets_of("%a: f32[] = aten.cross_entropy_loss.default(%l, %t)\n"
                       "%b: f32[] = aten.cross_entropy_loss.default(%l, %u, none, 1, 3)\n"
                       "%y: f32[] = aten.add.Tensor(%a, %b)\n"),
            (Targets{{2, 3}, {1, -100}}));
  EXPECT_EQ(targets_of("%i: i64[B] = aten.argmax.default(%l, 1)\n"
                       "%y: f32[] = aten.cross_entropy_loss.default(%l, %i)\n"),
            Targets{});
  EXPECT_EQ(targets_of("%m: i64[B] = aten.sub.Tensor(%t, 1)\n"
                       "%y: f32[] = aten.cross_entropy_loss.default(%l, %m)\n"),
            std::nullopt);
  EXPECT_EQ(targets_of("%a: f32[] = aten.cross_entropy_loss.default(%l, %t, @w)\n"
                       "%b: f32[] = aten.cross_entropy_loss.default(%l, %u, none, 1, 3)\n"
                       "%y: f32[] = aten.add.Tensor(%b, %a)\n"),
            std::nullopt);
}

TEST(ALoss, OfAMeanAndASumIsNeither) {
  EXPECT_EQ(loss_of("%l: f32[B, 4] = aten.sum.dim_IntList(%x, [1])\n"
                    "%a: f32[] = aten.cross_entropy_loss.default(%l, %t, none, 1, 0)\n"
                    "%b: f32[] = aten.sum.default(%x)\n%y: f32[] = aten.add.Tensor(%a, %b)\n"
                    "output \"loss\" = %y\n"),
            LossKind::unknown);
  EXPECT_EQ(loss_of("%a: f32[] = aten.mean.default(%x)\n%y: f32[] = aten.add.Tensor(%a, B)\n"
                    "output \"loss\" = %y\n"),
            LossKind::unknown);
}

TEST(ALoss, OfNumbersThatSamplesMakeTogetherMixes) {
  const std::string pairs =
      "%s: f32[B] = aten.sum.dim_IntList(%x, [1, 2])\n"
      "%p: f32[B, B] = aten.outer.default(%s, %s)\n";
  const std::string end = "output \"loss\" = %y\n";
  for (const std::string loss :
       {"aten.cross_entropy_loss.default(%p, %p)", "aten.mse_loss.default(%p, %p)",
        "aten.binary_cross_entropy_with_logits.default(%p, %p)", "aten.mean.default(%p)"}) {
    const std::string lines = pairs + "%y: f32[] = " + loss + "\n" + end;
    EXPECT_EQ(verdict_of(lines), "mixes p") << loss;
    EXPECT_EQ(verdict_of(lines, {{}, {"loss"}}), "mixes p") << loss;
    EXPECT_EQ(verdict_of(lines, {{"loss"}, {}}), "proved") << loss;
    EXPECT_EQ(loss_of(lines), LossKind::unknown) << loss;
  }
  EXPECT_EQ(verdict_of("%n: f32[B] = aten.sum.dim_IntList(%x, [1, 2])\n"
                       "%s: f32[B, 1] in %n = aten.unsqueeze.default(~%n, 1)\n"
                       "%y: f32[] = aten.mse_loss.default(%s, %n)\n" +
                       end),
            "mixes y");
}

TEST(ALoss, WhoseWeightsAddUpToOneIsForTheUserToWeigh) {
  const std::string lines = R"(%s: f32[B] = aten.sum.dim_IntList(%x, [1, 2])
%a: f32[] = aten.sum.default(%s)
%n: f32[B] = aten.div.Tensor(%s, %a)
%y: f32[] = aten.sum.default(%n)
output "loss" = %y
)";
  EXPECT_EQ(verdict_of(lines), "mixes a");
  EXPECT_EQ(verdict_of(lines, {{}, {"loss"}}), "proved");
}

TEST(ALoss, CarriesSamplesInAnyDimensionButThatOfTheClasses) {
  const std::string end = "output \"loss\" = %y\n";
  const std::string last = "%l: f32[3, 4, B] = aten.permute.default(%x, [1, 2, 0])\n";
  const std::string middle = "%l: f32[3, B, 4] = aten.permute.default(%x, [1, 0, 2])\n";
  EXPECT_EQ(loss_of(last + "%y: f32[] = aten.cross_entropy_loss.default(%l, %l)\n" + end),
            LossKind::mean);
  EXPECT_EQ(verdict_of(last + "%y: f32[] = aten.cross_entropy_loss.default(%l, %l)\n" + end),
            "proved");
  EXPECT_EQ(verdict_of(middle + "%y: f32[] = aten.cross_entropy_loss.default(%l, %l)\n" + end),
            "mixes y");
  EXPECT_EQ(loss_of(middle + "%y: f32[] = aten.cross_entropy_loss.default(%l, %l)\n" + end),
            LossKind::unknown);
}

}  // namespace
}  // namespace kerf
