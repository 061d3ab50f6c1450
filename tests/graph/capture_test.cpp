// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/capture/capture.h"

#include <gtest/gtest.h>

#include "tests/graph/captured.h"

namespace kerf {
namespace {

TensorSpec tensor(std::string name, std::int64_t storage) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.shape = {Expr(4)};
  spec.strides = {Expr(1)};
  spec.storage_key = storage;
  spec.storage_bytes = Expr(16);
  return spec;
}

// Calls on one input, in one line each.
class Calls {
 public:
  Calls() {
    for (const auto& [name, op] : some_operators()) capture.add_operator(op);
    capture.builder().add_scope("", "Model");
    capture.builder().add_scope("unused", "Linear");
    x = capture.builder().add_input("args.0", tensor("x", 0));
  }

  ValueId call(const std::string& name, const std::string& op, ValueId input, bool refused = false,
               const Scope& scope = {}) {
    Node node;
    node.name = name;
    node.op = op;
    node.args.push_back({"", Argument{input}});
    const TensorSpec spec = tensor(name, ++storages_);
    return capture.add_call(std::move(node), scope, {&spec}, refused)[0];
  }

  Capture capture{"model", false};
  ValueId x;

 private:
  std::int64_t storages_ = 0;
};

TEST(ACapture, LeavesOutWhatNobodyUses) {
  Calls calls;
  const ValueId used = calls.call("a", "aten.neg.default", calls.x);
  calls.call("b", "aten.neg.default", used);
  calls.capture.builder().set_outputs({{Argument{used}, "y"}});
  EXPECT_FALSE(calls.capture.simplify());
  const Graph graph = calls.capture.finish();
  ASSERT_EQ(graph.num_nodes(), 1U);
  EXPECT_EQ(graph.nodes()[0].name, "a");
}

TEST(ACapture, NamesApartOnlyWhatStays) {
  Calls calls;
  calls.call("add", "aten.neg.default", calls.x);
  const ValueId second = calls.call("add", "aten.neg.default", calls.x);
  const ValueId third = calls.call("add", "aten.neg.default", second);
  calls.capture.builder().set_outputs({{Argument{third}, "y"}});
  calls.capture.simplify();
  const Graph graph = calls.capture.finish();
  ASSERT_EQ(graph.num_nodes(), 2U);
  EXPECT_EQ(graph.nodes()[0].name, "add");
  EXPECT_EQ(graph.nodes()[1].name, "add_i1");
  EXPECT_EQ(graph.value(graph.nodes()[0].outputs[0]).name, "add");
  EXPECT_EQ(graph.value(graph.nodes()[1].outputs[0]).name, "add.1");
}

TEST(ACapture, KeepsTheModelsModulesAndTheScopesOfWhatStays) {
  Calls calls;
  calls.call("a", "aten.neg.default", calls.x, false, {"first", "Other"});
  const ValueId b = calls.call("b", "aten.neg.default", calls.x, false, {"second", "Other"});
  const ValueId c = calls.call("c", "aten.neg.default", b, false, {"", "Wrapper"});
  calls.capture.builder().set_outputs({{Argument{c}, "y"}});
  calls.capture.simplify();
  const Graph graph = calls.capture.finish();
  const std::vector<Scope> expected = {{"", "Model"}, {"unused", "Linear"}, {"second", "Other"}};
  EXPECT_EQ(graph.scopes(), expected);
  EXPECT_EQ(graph.scope(graph.nodes()[0].scope).path, "second");
}

TEST(ACapture, NamesTheFirstCallThatItNeedsAndCannotHold) {
  Calls calls;
  calls.call("unused", "aten.neg.default", calls.x, /*refused=*/true);
  const ValueId a = calls.call("a", "aten.neg.default", calls.x);
  const ValueId b = calls.call("b", "aten.neg.default", a, /*refused=*/true);
  const ValueId c = calls.call("c", "aten.neg.default", b, /*refused=*/true);
  calls.capture.builder().set_outputs({{Argument{c}, "y"}});
  EXPECT_EQ(calls.capture.simplify(), 2U);
}

TEST(ACapture, NeedsNoCallThatItCannotHoldWhereNobodyUsesIt) {
  Calls calls;
  const ValueId a = calls.call("a", "aten.neg.default", calls.x);
  calls.call("b", "aten.neg.default", a, /*refused=*/true);
  calls.capture.builder().set_outputs({{Argument{a}, "y"}});
  EXPECT_FALSE(calls.capture.simplify());
}

TEST(ACapture, NeedsWhatWritesEvenWhereNobodyUsesIt) {
  Calls calls;
  calls.call("a", "aten.relu_.default", calls.x, /*refused=*/true);
  calls.capture.builder().set_outputs({{Argument{calls.x}, "y"}});
  EXPECT_EQ(calls.capture.simplify(), 0U);
}

}  // namespace
}  // namespace kerf
