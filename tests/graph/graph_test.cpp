// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "kerf/base/error.h"
#include "kerf/graph/builder.h"
#include "kerf/graph/passes/reorder.h"
#include "kerf/graph/text.h"
#include "tests/graph/random_graph.h"

namespace kerf {
namespace {

using testing::HasSubstr;

// ---- a frozen graph
// -----------------------------------------------------------------------------------

TEST(AnEmptyGraph, IsAGraph) {
  const Graph graph;
  EXPECT_EQ(graph.num_nodes(), 0U);
  EXPECT_EQ(graph.scopes().size(), 1U);
  EXPECT_TRUE(graph.is_static());
  EXPECT_EQ(parse_graph(print_graph(graph)), graph);
}

TEST(AGraph, IsNumberedAlikeWhoeverBuiltIt) {
  // The same records with values and storages in another order.
  GraphData data = random_graph_data(5, {.num_nodes = 30});
  const Graph graph = Graph::freeze(data);
  const std::size_t count = data.values.size();
  const auto mirror = [&](ValueId& id) {
    if (id.valid()) id = ValueId(count - 1 - id.index());
  };
  const auto mirror_storage = [&](StorageId& id) {
    if (id.valid()) id = StorageId(data.storages.size() - 1 - id.index());
  };
  std::function<void(Argument&)> mirror_argument = [&](Argument& argument) {
    if (auto* id = std::get_if<ValueId>(&argument.data)) mirror(*id);
    if (auto* list = std::get_if<Argument::List>(&argument.data)) {
      for (Argument& element : *list) mirror_argument(element);
    }
  };
  std::reverse(data.values.begin(), data.values.end());
  std::reverse(data.storages.begin(), data.storages.end());
  for (Value& value : data.values) mirror_storage(value.storage);
  for (GraphInput& input : data.inputs) mirror(input.value);
  for (Weight& weight : data.weights) mirror(weight.value);
  for (GraphOutput& output : data.outputs) mirror_argument(output.leaf);
  for (Node& node : data.nodes) {
    for (NamedArgument& argument : node.args) mirror_argument(argument.value);
    for (auto* ids : {&node.outputs, &node.written, &node.may_alias}) {
      for (ValueId& id : *ids) mirror(id);
    }
  }
  EXPECT_EQ(Graph::freeze(data), graph);
  EXPECT_EQ(Graph::freeze(data).hash(), graph.hash());
}

TEST(AGraph, KnowsWhereItsValuesComeFrom) {
  const Graph graph = parse_graph(R"(kerf-graph 1.0
batch 4
input %x: f32[B, 3] = "args.0"
weight @w: f16[3] = parameter "w"
%a: f32[B], _, %b: f64[2, B] = op(%x, @w)
)");
  const auto value = [&](std::size_t i) { return graph.value(ValueId(i)); };
  EXPECT_EQ(value(0).origin, Origin::input);
  EXPECT_EQ(value(1).origin, Origin::weight);
  EXPECT_EQ(value(3).origin, Origin::node);
  EXPECT_EQ(value(3).producer, NodeId(0));
  EXPECT_EQ(value(3).position, 2U);
  EXPECT_EQ(value(0).bytes(5), Bytes{60});
  EXPECT_EQ(value(3).bytes(5), Bytes{80});
  EXPECT_TRUE(value(0).depends_on_batch());
  EXPECT_FALSE(value(1).depends_on_batch());
  EXPECT_FALSE(graph.is_static());
  EXPECT_EQ(graph.find_node("a"), NodeId(0));
  EXPECT_FALSE(graph.find_node("b").valid());
}

TEST(AGraph, DescribesItsNodes) {
  const Graph graph = parse_graph(R"(kerf-graph 1.0
scope 1 "up" "Linear"
%a: f32[4] = aten.zeros.default() ; scope=1 source="m.py:3"
%b: f32[4] = aten.zeros.default()
)");
  EXPECT_EQ(graph.describe(NodeId(0)), "node 'a' (aten.zeros.default) in Linear 'up', m.py:3");
  EXPECT_EQ(graph.describe(NodeId(1)), "node 'b' (aten.zeros.default) in module ''");
}

TEST(AGraph, IsCopiedCheaplyAndComparedByContent) {
  const Graph graph = random_graph(1);
  const Graph copy = graph;  // NOLINT: the copy is the point
  EXPECT_EQ(&copy.data(), &graph.data());
  EXPECT_EQ(copy, graph);
  EXPECT_FALSE(random_graph(2) == graph);
}

// ---- orders
// -----------------------------------------------------------------------------------------

TEST(ARandomOrder, HonoursEveryEdge) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Graph graph = random_graph(seed);
    const auto order = random_order(graph, seed);
    std::vector<std::size_t> rank(graph.num_nodes());
    for (std::size_t i = 0; i < order.size(); ++i) rank[order[i].index()] = i;
    for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
      for (const NodeId from : graph.predecessors(NodeId(n)))
        EXPECT_LT(rank[from.index()], rank[n]);
    }
    EXPECT_EQ(order, random_order(graph, seed)) << "same seed, same order";
  }
}

TEST(AReorderedGraph, NeedsEveryNodeOnceAndValuesBeforeTheirUse) {
  const Graph graph =
      parse_graph("kerf-graph 1.0\n%a: f32[1] = op()\n%b: f32[1] = op(%a)\n%c: f32[1] = op()\n");
  const std::vector<NodeId> fine{NodeId(2), NodeId(0), NodeId(1)};
  EXPECT_EQ(
      print_graph(reorder(graph, fine)),
      "kerf-graph 1.1\ngraph \"\"\n%c: f32[1] = op()\n%a: f32[1] = op()\n%b: f32[1] = op(%a)\n");
  const std::vector<std::vector<NodeId>> wrong{{NodeId(1), NodeId(0), NodeId(2)},
                                               {NodeId(0), NodeId(1)},
                                               {NodeId(0), NodeId(0), NodeId(1)},
                                               {NodeId(0), NodeId(1), NodeId(7)},
                                               {NodeId(0), NodeId(1), NodeId{}}};
  for (const auto& order : wrong) EXPECT_THROW(reorder(graph, order), Error);
}

// ---- the builder
// --------------------------------------------------------------------------------------

TensorSpec spec(const std::string& name, std::int64_t key) {
  TensorSpec out;
  out.name = name;
  out.shape = {Expr(4)};
  out.strides = {Expr(1)};
  out.storage_key = key;
  out.storage_bytes = 16;
  return out;
}

TEST(ABuilder, MakesTheGraphItsTextSays) {
  GraphBuilder builder("g", true);
  builder.set_batch(2);
  builder.add_note("n");
  EXPECT_EQ(builder.add_scope("", "Model"), ScopeId(0));
  const ScopeId up = builder.add_scope("up", "Linear");
  EXPECT_EQ(builder.add_scope("up", "Other"), up) << "the first stays";
  const ValueId x = builder.add_input("args.0", spec("x", 100));
  builder.add_weight({"w"}, WeightKind::buffer, spec("w", 200));
  Node node;
  node.name = "r";
  node.op = "aten.relu_.default";
  node.args = {{"", {x}}};
  node.written = {x};
  node.scope = up;
  const TensorSpec result = spec("r", 100);
  const auto outputs = builder.add_node(node, {&result, nullptr});
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_FALSE(outputs[1].valid());
  builder.set_outputs({{{outputs[0]}, "y"}});
  builder.set_specs("in", "out");
  EXPECT_EQ(print_graph(builder.finish()), R"(kerf-graph 1.1
graph "g" training
batch 2
note "n"
scope 0 "" "Model"
scope 1 "up" "Linear"
input %x: f32[4] = "args.0"
weight @w: f32[4] = buffer "w"
%r: f32[4] in %x, _ = aten.relu_.default(&%x) ; scope=1
output "y" = %r
in_spec "in"
out_spec "out"
)");
  EXPECT_EQ(builder.finish(), Graph()) << "empty afterwards";
}

TEST(ABuilder, GivesTakenNamesANumber) {
  GraphBuilder builder("g", false);
  std::int64_t key = 0;
  for (const char* name : {"x", "x", "x.1", "x", "x.1", "x.2"}) {
    builder.add_input("args", spec(name, key++));
  }
  const Graph graph = builder.finish();
  std::string names;
  for (const Value& value : graph.values()) names += value.name + " ";
  EXPECT_EQ(names, "x x.1 x.1.1 x.2 x.1.2 x.2.1 ");
}

TEST(ABuilder, DropsTheGradientOfAScalar) {
  GraphBuilder builder("g", false);
  TensorSpec scalar;
  scalar.name = "s";
  scalar.scalar = true;
  scalar.requires_grad = true;
  Node node;
  node.name = "s";
  node.op = "op";
  builder.add_node(node, {&scalar});
  EXPECT_FALSE(builder.finish().value(ValueId(0)).requires_grad);
}

TEST(ABuilder, RefusesAStorageKeyThatWasUsedAgain) {
  // An allocation freed and made anew at the same address would look like a view.
  GraphBuilder builder("g", false);
  builder.add_input("args.0", spec("x", 100));
  Node node;
  node.name = "a";
  node.op = "aten.zeros.default";
  const TensorSpec result = spec("a", 100);
  builder.add_node(node, {&result});
  try {
    builder.finish();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("makes 'a' in the storage of a value it does not take"));
  }
}

}  // namespace
}  // namespace kerf
