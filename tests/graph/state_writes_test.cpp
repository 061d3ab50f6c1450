// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/batch_flow/state_writes.h"

#include <gtest/gtest.h>

#include "kerf/graph/text.h"

namespace kerf {
namespace {

// "": micro-batches leave everything as the whole batch does.
std::string found_in(const std::string& lines, bool training = false) {
  const Graph graph =
      parse_graph("kerf-graph 1.0\n" + std::string(training ? "graph \"m\" training\n" : "") +
                  "scope 1 \"norm\" \"BatchNorm1d\"\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n" +
                  "weight @b: f32[4] = buffer \"b\"\nweight @c: f32[4] = constant \"c\"\n" + lines +
                  "output \"y\" = %x\n");
  std::string out;
  for (const StateWrite& write : unrepeatable_writes(graph, analyse_batch(graph))) {
    out += describe(graph.weights()[write.weight]) + ": " + graph.node(write.by).name + " " +
           std::string(write.why) + "; ";
  }
  return out;
}

TEST(State, ThatIsOverwrittenWithTheSameAtEveryCallMayBeWrittenAgain) {
  EXPECT_EQ(found_in("%w: f32[4] in @b = aten.fill_.Scalar(&~@b, 2.0)\n"
                     "%r: f32[B, 4] = aten.add.Tensor(%x, %w)\n"),
            "");
  EXPECT_EQ(found_in("%s: f32[4] = aten.exp.default(@c)\n"
                     "%w: f32[4] in @b = aten.copy_.default(&~@b, %s)\n"),
            "");
  EXPECT_EQ(found_in("%v: f32[2] in @b = aten.slice.Tensor(~@b, 0, 0, 2)\n"
                     "%w: f32[2] in @b = aten.zero_.default(&~%v)\n"
                     "%r: f32[B, 4] = aten.add.Tensor(%x, @b)\n"),
            "");
}

TEST(State, ThatCountsCallsEndsAsSomethingElse) {
  EXPECT_EQ(found_in("%w: f32[4] in @b = aten.add_.Tensor(&~@b, 1)\n"),
            "buffer 'b': w changes it at every call; ");
  EXPECT_EQ(found_in("%s: f32[4] = aten.add.Tensor(@c, 1)\n"
                     "%w: f32[4] in @c = aten.copy_.default(&~@c, %s)\n"),
            "tensor 'c': s reads what the previous call left in it; ");
  // Zero times two is zero, today: a trial would see nothing.
  EXPECT_EQ(found_in("%w: f32[4] in @b = aten.mul_.Tensor(&~@b, 2)\n"),
            "buffer 'b': w changes it at every call; ");
}

TEST(State, ThatTakesWhatOtherStateHoldsIsFollowed) {
  const std::string counted = "%w: f32[4] in @b = aten.add_.Tensor(&~@b, 1)\n";
  EXPECT_NE(found_in(counted + "%v: f32[4] in @c = aten.copy_.default(&~@c, %w)\n")
                .find("tensor 'c': v changes it at every call"),
            std::string::npos);
  EXPECT_NE(found_in(counted + "%e: f32[4] = aten.exp.default(%w)\n"
                               "%t: f32[4] = aten.zeros.default([4])\n"
                               "%u: f32[4] in %t = aten.add_.Tensor(&~%t, %e)\n"
                               "%v: f32[4] in @c = aten.copy_.default(&~@c, %t)\n")
                .find("tensor 'c': v changes it at every call"),
            std::string::npos);
}

TEST(State, ThatIsReadBeforeItIsWrittenShowsTheLastCall) {
  EXPECT_EQ(found_in("%r: f32[B, 4] = aten.add.Tensor(%x, @b)\n"
                     "%w: f32[4] in @b = aten.fill_.Scalar(&~@b, 2.0)\n"),
            "buffer 'b': r reads what the previous call left in it; ");
}

TEST(State, ThatDependsOnSamplesOnTheBatchOrOnChanceEndsAsSomethingElse) {
  EXPECT_EQ(found_in("%m: f32[4] = aten.mean.dim(%x, [0])\n"
                     "%w: f32[4] in @b = aten.copy_.default(&~@b, %m)\n"),
            "buffer 'b': w writes values of the samples into it; ");
  EXPECT_EQ(found_in("%w: f32[4] in @b = aten.fill_.Scalar(&~@b, B)\n"),
            "buffer 'b': w writes values that depend on the batch size into it; ");
  EXPECT_EQ(found_in("%v: f32[] in @b = aten.select.int(~@b, 0, B)\n"
                     "%w: f32[] in @b = aten.fill_.Scalar(&~%v, 2.0)\n"),
            "buffer 'b': w writes values that depend on the batch size into it; ");
  EXPECT_EQ(found_in("%m: f32[4] = aten.rand.default([4]) ; random\n"
                     "%w: f32[4] in @b = aten.copy_.default(&~@b, %m)\n"),
            "buffer 'b': w writes random numbers into it; ");
}

TEST(State, OfBatchNormIsLeftToItsWarningInTrainModeAlone) {
  const std::string norm =
      "weight @v: f32[4] = buffer \"norm.running_var\"\n"
      "weight @n: i64[] = buffer \"norm.num_batches_tracked\"\n"
      "%k: i64[] in @n = aten.add_.Tensor(&~@n, 1) ; scope=1\n"
      "%y: f32[B, 4] = aten.batch_norm.default(%x, none, none, &@b, &@v, true, 0.1, 1e-05, true) "
      "; scope=1\n";
  EXPECT_EQ(found_in(norm, true), "");
  EXPECT_NE(found_in(norm), "");
  EXPECT_NE(found_in(norm + "%w: f32[4] in @c = aten.add_.Tensor(&~@c, 1) ; scope=1\n", true)
                .find("tensor 'c'"),
            std::string::npos);
}

TEST(AWeight, IsDescribedWithAllItsNames) {
  Weight weight;
  weight.kind = WeightKind::non_persistent_buffer;
  weight.names = {"a", "b.c", "d"};
  EXPECT_EQ(describe(weight), "buffer 'a' (also 'b.c', 'd')");
}

}  // namespace
}  // namespace kerf
