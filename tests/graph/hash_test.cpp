// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A graph's hash ties profiles and plans to it: it must change with whatever changes the numbers or
// the costs, and with nothing else.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kerf/graph/text.h"
#include "tests/graph/random_graph.h"

namespace kerf {
namespace {

constexpr const char* kText = R"(kerf-graph 1.0
graph "model"
batch 2
note "a note"
scope 0 "" "Model"
scope 1 "up" "Linear"
input %x: f32[B, 16] = "args.0"
weight @w: f32[32, 16] grad = parameter "up.weight"
weight @c: u8[2] = constant "c" data 0102
%h: f32[B, 32] = aten.linear.default(%x, @w, alpha=1.5) ; scope=1 source="m.py:3"
%z: f32[B, 32] = aten.zeros_like.default(%h, device("cuda:0"))
%r: f32[B, 32] in %h = aten.relu_.default(&%h) ; region="0"
%u: f32[B, 32] = aten.reshape.default(~%r)
output "logits" = %u
in_spec "{}"
)";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kText;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return parse_graph(text.replace(at, from.size(), to)).hash();
}

TEST(TheHash, IsWrittenInFilesAndStaysTheSame) {
  EXPECT_EQ(parse_graph(kText).hash(), "1911b0bd4062cc0f10f32d29d2a77828");
  EXPECT_EQ(Graph().hash().size(), 32U);
}

TEST(TheHash, IsTheSameWhateverDoesNotMatter) {
  const std::string hash = parse_graph(kText).hash();
  EXPECT_EQ(with("m.py:3", "other.py:4"), hash) << "source lines";
  EXPECT_EQ(with("note \"a note\"\n", ""), hash) << "notes";
  EXPECT_EQ(with("graph \"model\"", "graph \"other\""), hash) << "the graph's name";
  EXPECT_EQ(with("cuda:0", "cuda:1"), hash) << "devices";
  EXPECT_EQ(with("device(\"cuda:0\")", "device()"), hash) << "devices";
  EXPECT_EQ(with("batch 2", "batch 7"), hash) << "the example";
  EXPECT_EQ(with("data 0102", "data 0103"), hash) << "weight values";
  EXPECT_EQ(with(" data 0102", ""), hash) << "weight values";
  EXPECT_EQ(with("note \"a note\"\n", "attribute \"up\" \"eps\" = 1.0\n"), hash) << "attributes";
  EXPECT_EQ(with("note \"a note\"", "require B < 9 ; source=\"m.py:1\""),
            with("note \"a note\"", "require B < 9 ; source=\"m.py:2\""))
      << "source lines";
}

TEST(TheHash, ChangesWithWhatMatters) {
  const std::string hash = parse_graph(kText).hash();
  EXPECT_NE(with("aten.zeros_like", "aten.ones_like"), hash) << "operators";
  EXPECT_NE(with("alpha=1.5", "alpha=1.25"), hash) << "arguments";
  EXPECT_NE(with("note \"a note\"", "require B < 9"), hash) << "conditions";
  EXPECT_NE(with("note \"a note\"", "require B < 9"), with("note \"a note\"", "require B <= 9"));
  EXPECT_NE(with("alpha=1.5", "beta=1.5"), hash) << "argument names";
  EXPECT_NE(with("%z: f32[B, 32]", "%z: f32[B, 33]"), hash) << "shapes";
  EXPECT_NE(with("%z: f32[B, 32]", "%z: f32[2, 32]"), hash) << "what depends on the batch";
  EXPECT_NE(with("%z: f32[B, 32]", "%z: bf16[B, 32]"), hash) << "dtypes";
  EXPECT_NE(with("%z: f32[B, 32]", "%z: f32[B, 32] bytes 256*B"), hash) << "storages";
  EXPECT_NE(with("%z: f32[B, 32]", "%z: f32[B, 32] grad"), hash) << "gradients";
  EXPECT_NE(with("\"up\" \"Linear\"", "\"up\" \"Other\""), hash) << "scopes";
  EXPECT_NE(with("\"up\" \"Linear\"", "\"down\" \"Linear\""), hash) << "scopes";
  EXPECT_NE(with("\"\" \"Model\"", "\"\" \"Other\""), hash) << "the model's class";
  EXPECT_NE(with("up.weight", "down.weight"), hash) << "weight names";
  EXPECT_NE(with("\"up.weight\"", "\"up.weight\", \"tied\""), hash) << "ties";
  EXPECT_NE(with("parameter", "buffer"), hash) << "kinds of weight";
  EXPECT_NE(with("&%h", "%h"), hash) << "writes";
  EXPECT_NE(with("~%r", "%r"), hash) << "aliases";
  EXPECT_NE(with("region=\"0\"", "region=\"1\""), hash) << "regions";
  EXPECT_NE(with("region=\"0\"", "no_grad"), hash) << "modes";
  EXPECT_NE(with("graph \"model\"", "graph \"model\" training"), hash) << "train or eval";
  EXPECT_NE(with("output \"logits\" = %u", "output \"logits\" = %r"), hash) << "results";
}

TEST(TheHash, DiffersBetweenRandomGraphs) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 300; ++seed) seen.insert(random_graph(seed).hash());
  EXPECT_EQ(seen.size(), 300U);
}

}  // namespace
}  // namespace kerf
