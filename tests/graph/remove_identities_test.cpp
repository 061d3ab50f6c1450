// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/remove_identities.h"

#include <gtest/gtest.h>

#include "kerf/graph/passes/find_effects.h"
#include "tests/graph/captured.h"

namespace kerf {
namespace {

Graph without_identities(const std::string& lines) {
  Captured calls = captured(lines);
  find_effects(calls);
  remove_identities(calls);
  return frozen(std::move(calls));
}

// Is a call whose result is the output still there?
bool stays(const std::string& call) {
  return without_identities(call + "\noutput \"y\" = %y\n").num_nodes() == 1;
}

TEST(Identities, GiveTheirArgumentToTheirReaders) {
  EXPECT_EQ(print_graph(without_identities("%a: f32[B, 4] in %x = aten.view.default(%x, [B, 4])\n"
                                           "%b: f32[B, 4] in %x = aten.to.dtype(%a, dtype(f32))\n"
                                           "%c: f32[B, 4] in %x = aten.relu_.default(%b)\n"
                                           "%d: f32[B, 4] = aten.dropout.default(%c, 0.5, false)\n"
                                           "output \"y\" = %d\noutput \"z\" = %b\n")),
            print_graph(graph_of("%c: f32[B, 4] in %x = aten.relu_.default(&~%x)\n"
                                 "output \"y\" = %c\noutput \"z\" = %x\n")));
}

TEST(Identities, AreFoundBehindADropoutThatWasTracedInMemoryOfItsOwn) {
  EXPECT_EQ(without_identities("%a: f32[B, 4] = aten.dropout.default(%x, 0.5, false)\n"
                               "%b: f32[B, 4] in %a = aten.to.dtype(%a, dtype(f32))\n"
                               "%c: f32[B, 4] = aten.neg.default(%b)\noutput \"y\" = %c\n")
                .num_nodes(),
            1U);
}

TEST(Identities, AreDropoutsThatDropNothing) {
  EXPECT_FALSE(stays("%y: f32[B, 4] = aten.dropout.default(%x, 0.5, false)"));
  EXPECT_FALSE(stays("%y: f32[B, 4] = aten.dropout.default(%x, 0.0, true)"));
  EXPECT_FALSE(stays("%y: f32[B, 4] = aten.alpha_dropout.default(%x, 0.5, false)"));
  EXPECT_TRUE(stays("%y: f32[B, 4] = aten.alpha_dropout.default(%x, 0.0, true)"));
  EXPECT_TRUE(stays("%y: f32[B, 4] = aten.dropout.default(%x, 0.5, true)"));
}

TEST(Identities, HaveTheFormAndThePlaceOfTheirArgument) {
  EXPECT_TRUE(stays("%y: f32[B, 4] = aten.to.dtype(%x, dtype(f32))"));  // a copy
  EXPECT_TRUE(stays("%y: f32[4, B] in %x = aten.view.default(%x, [4, B])"));
  EXPECT_TRUE(stays("%y: i32[B, 4] in %x = aten.view.default(%x, dtype(i32))"));
  EXPECT_FALSE(stays("%y: f32[B, 4] in %x = aten.detach_.default(%x)"));
}

TEST(Identities, AreNotWhatOnlyLooksLikeThem) {
  EXPECT_TRUE(stays("%y: f32[B, 4] in %x = aten.relu_.default(%x)"));
  EXPECT_TRUE(stays("%y: f32[B, 4] in %x = aten.split.Tensor(%x, 4)"));
  EXPECT_TRUE(
      stays("%y: f32[B, 4] in %x = aten.to.dtype(%x, dtype(f32), "
            "memory_format=memory_format(channels_last))"));
  EXPECT_FALSE(
      stays("%y: f32[B, 4] in %x = aten.to.dtype(%x, dtype(f32), "
            "memory_format=memory_format(preserve))"));
  EXPECT_TRUE(stays("%y: f32[B, 4] in %x = my.view.default(%x)"));  // nothing is known of it
}

TEST(Identities, AreCopiesOnOtherStridesThatNobodyWouldSee) {
  const std::string packed = "%y: f32[B, 4] in %x = aten.contiguous.default(%x)\n";
  EXPECT_TRUE(stays(packed));  // the caller gets it, and may write it
  EXPECT_TRUE(stays("%y: f32[B, 4] = aten.contiguous.default(%x)"));  // a copy
  const auto nodes = [&](const std::string& more) {
    return without_identities(packed + more).num_nodes();
  };
  EXPECT_EQ(nodes("%z: f32[B, 4] = aten.relu.default(%y)\noutput \"z\" = %z\n"), 1U);
  // The caller would see a write to x, and has no way to see one to h, but sees z's strides.
  EXPECT_EQ(nodes("%z: f32[B, 4] in %x = aten.relu_.default(%y)\noutput \"z\" = %z\n"), 2U);
  EXPECT_EQ(nodes("%h: f32[B, 4] = aten.neg.default(%y)\n"
                  "%p: f32[B, 4] in %h = aten.contiguous.default(%h)\n"
                  "%z: f32[B, 4] in %h = aten.relu_.default(%p)\noutput \"z\" = %z\n"),
            3U);
  EXPECT_EQ(nodes("%h: f32[B, 4] = aten.neg.default(%y)\n"
                  "%p: f32[B, 4] in %h = aten.contiguous.default(%h)\n"
                  "%z: f32[B, 4] in %h = aten.relu_.default(%p)\n"
                  "%s: f32[B, 4] = aten.clone.default(%z)\noutput \"s\" = %s\n"),
            3U);
  // The strides of y decide whether p is a copy of h.
  EXPECT_EQ(nodes("%h: f32[B, 4] = aten.neg.default(%y)\n"
                  "%p: f32[B, 4] in %h = aten.contiguous.default(%h)\n"
                  "%z: f32[B, 4] in %h = aten.relu_.default(%p)\noutput \"h\" = %h\n"),
            4U);
}

TEST(Identities, KeepTheirGradient) {
  Captured calls = captured("%a: f32[B, 4] in %x = aten.detach.default(%x)\noutput \"y\" = %a\n");
  calls.data.values[calls.data.inputs[0].value.index()].requires_grad = true;
  remove_identities(calls);
  EXPECT_EQ(calls.data.nodes.size(), 1U);
}

// A parameter that is frozen when it is traced may be trained later, and gradients end here then.
TEST(Identities, AreNoDetachesInTraining) {
  const auto nodes = [](bool training, const std::string& lines) {
    Captured calls = captured(lines);
    calls.data.training = training;
    find_effects(calls);
    remove_identities(calls);
    return calls.data.nodes.size();
  };
  const std::string of_input =
      "%h: f32[B, 4] = aten.neg.default(%x)\n"
      "%y: f32[B, 4] in %h = aten.detach.default(%h)\noutput \"y\" = %y\n";
  EXPECT_EQ(nodes(false, of_input), 1U);
  EXPECT_EQ(nodes(true, of_input), 2U);
  // What was written into memory of its own counts, too.
  EXPECT_EQ(nodes(true,
                  "%h: f32[B, 4] = aten.zeros.default([B, 4])\n"
                  "%i: f32[B, 4] in %h = aten.add_.Tensor(%h, %x)\n"
                  "%y: f32[B, 4] in %h = aten.detach.default(%h)\noutput \"y\" = %y\n"),
            3U);
  EXPECT_EQ(nodes(true,
                  "%h: f32[B, 4] = aten.zeros.default([B, 4])\n"
                  "%y: f32[B, 4] in %h = aten.detach_.default(%h)\noutput \"y\" = %y\n"),
            1U);
}

}  // namespace
}  // namespace kerf
