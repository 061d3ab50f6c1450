// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/coarsen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"

namespace kerf {
namespace {

// Model: embed, two blocks of norm and mlp (up, act, down) with a residual add, head.
constexpr std::string_view kModel = R"(kerf-graph 1.1
graph "m"
scope 0 "" "Model"
scope 1 "embed" "Linear"
scope 2 "h" "ModuleList"
scope 3 "h.0" "Block"
scope 4 "h.0.norm" "LayerNorm"
scope 5 "h.0.mlp" "Mlp"
scope 6 "h.0.mlp.up" "Linear"
scope 7 "h.1" "Block"
scope 8 "h.1.norm" "LayerNorm"
scope 9 "h.1.mlp" "Mlp"
scope 10 "h.1.mlp.up" "Linear"
scope 11 "head" "Linear"
input %x: f32[2] = "args.0"
%e: f32[2] = a.e.default(%x) ; scope=1
%f: f32[2] = a.f.default(%e) ; scope=1
%n0: f32[2] = a.n.default(%f) ; scope=4
%u0: f32[2] = a.u.default(%n0) ; scope=6
%v0: f32[2] = a.v.default(%u0) ; scope=6
%a0: f32[2] = a.a.default(%v0) ; scope=5
%r0: f32[2] = a.r.default(%a0, %f) ; scope=3
%m: f32[2] = a.m.default(%r0)
%n1: f32[2] = a.n.default(%m) ; scope=8
%u1: f32[2] = a.u.default(%n1) ; scope=10
%a1: f32[2] = a.a.default(%u1) ; scope=9
%r1: f32[2] = a.r.default(%a1, %r0) ; scope=7
%y: f32[2] = a.y.default(%r1) ; scope=11
output "0" = %y
)";

// "embed: e f | h.0: n0 ..." with operators of opened modules as "(e)".
std::string blocks(const Coarseness& coarseness, std::string_view text = kModel) {
  const Graph graph = parse_graph(text);
  std::string out;
  for (const Block& block : find_blocks(graph, coarseness)) {
    if (!out.empty()) out += " | ";
    if (!block.is_operator) out += (block.path.empty() ? "model" : block.path) + ":";
    for (const NodeId node : block.nodes) {
      const std::string& name = graph.node(node).name;
      out += block.is_operator ? name : " " + name;
    }
  }
  return out;
}

TEST(Coarsening, OpensAsManyLevelsAsItIsTold) {
  EXPECT_EQ(blocks({0, {}}), "model: e f n0 u0 v0 a0 r0 m n1 u1 a1 r1 y");
  EXPECT_EQ(blocks({1, {}}), "embed: e f | h.0: n0 u0 v0 a0 r0 | m | h.1: n1 u1 a1 r1 | head: y");
  EXPECT_EQ(blocks({2, {}}),
            "embed: e f | h.0.norm: n0 | h.0.mlp: u0 v0 a0 | r0 | m | h.1.norm: n1 | "
            "h.1.mlp: u1 a1 | r1 | head: y");
  EXPECT_EQ(blocks({kAllDepths, {}}),
            "embed: e f | h.0.norm: n0 | h.0.mlp.up: u0 v0 | a0 | r0 | m | h.1.norm: n1 | "
            "h.1.mlp.up: u1 | a1 | r1 | head: y");
  EXPECT_EQ(blocks({1000, {}}), blocks({kAllDepths, {}}));
}

TEST(Coarsening, KeepsBasicBlocksWholeAtAnyDepth) {
  EXPECT_EQ(blocks({kAllDepths, {"Mlp"}}),
            "embed: e f | h.0.norm: n0 | h.0.mlp: u0 v0 a0 | r0 | m | h.1.norm: n1 | "
            "h.1.mlp: u1 a1 | r1 | head: y");
  EXPECT_EQ(blocks({kAllDepths, {"h.1"}}),
            "embed: e f | h.0.norm: n0 | h.0.mlp.up: u0 v0 | a0 | r0 | m | h.1: n1 u1 a1 r1 | "
            "head: y");
  EXPECT_EQ(blocks({1, {"Mlp"}}), blocks({1, {}})) << "the block around it is whole already";
  EXPECT_THAT(blocks({kAllDepths, {"ModuleList"}}),
              testing::HasSubstr("h: n0 u0 v0 a0 r0 | m | h: n1 u1 a1 r1"));
}

TEST(Coarsening, OpensModulesAroundOnesThatHaveNoScope) {
  constexpr std::string_view kListless = R"(kerf-graph 1.1
graph "m"
scope 1 "h.0" "Layer"
scope 2 "h.1" "Layer"
input %x: f32[2] = "args.0"
%a: f32[2] = a.a.default(%x) ; scope=1
%b: f32[2] = a.b.default(%a) ; scope=1
%c: f32[2] = a.c.default(%b) ; scope=2
%d: f32[2] = a.d.default(%c)
output "0" = %d
)";
  EXPECT_EQ(blocks({}, kListless), "h.0: a b | h.1: c | d");
  EXPECT_EQ(blocks({0, {}}, kListless), "model: a b c d");
}

TEST(Coarsening, NamesABlockThatIsNotThere) {
  try {
    blocks({kAllDepths, {"Blok"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'Blok'"));
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean 'Block'"));
  }
  EXPECT_THROW(blocks({-2, {}}), Error);
}

TEST(Coarsening, GluesBlocksAndChangesNothingElse) {
  const Graph graph = parse_graph(kModel);
  const Graph coarse = coarsen(graph, {1, {}});
  EXPECT_EQ(coarse, graph);
  EXPECT_EQ(coarse.hash(), graph.hash());
  EXPECT_TRUE(graph.glued().empty());
  std::vector<std::size_t> sizes;
  for (const auto& group : coarse.glued()) sizes.push_back(group.size());
  EXPECT_THAT(sizes, testing::ElementsAre(2, 5, 4));
  EXPECT_EQ(coarsen(coarse, {0, {}}).glued().size(), 1U);
  // What is glued already stays so.
  EXPECT_EQ(coarsen(coarse, {kAllDepths, {}}).glued(), coarse.glued());
}

TEST(Coarsening, JoinsBlocksThatSeeEachOthersWrites) {
  // b writes what a has made, and a reads it by its old name when it is called again.
  const Graph graph = parse_graph(R"(kerf-graph 1.1
graph "m"
scope 1 "a" "A"
scope 2 "b" "B"
input %x: f32[2] = "args.0"
%p: f32[2] = a.p.default(%x) ; scope=1
%q: f32[2] = a.q.default(%p) ; scope=1
%w: f32[2] in %p = aten.relu_.default(&~%p) ; scope=2
%v: f32[2] = a.v.default(%w) ; scope=2
%r: f32[2] = a.r.default(%p) ; scope=1
output "0" = %r
)");
  const Graph coarse = coarsen(graph, {kAllDepths, {}});
  std::vector<std::size_t> sizes;
  for (const auto& group : coarse.glued()) sizes.push_back(group.size());
  EXPECT_THAT(sizes, testing::ElementsAre(2, 3));
}

}  // namespace
}  // namespace kerf
