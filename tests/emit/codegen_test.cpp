// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The parts of written files that text shows best. That stages are their model is tested with
// PyTorch, in tests/python/test_emit*.py.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/both_modes.h"
#include "kerf/emit/codegen/code.h"
#include "kerf/emit/codegen/emit_stages.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/emit/codegen/spelling.h"
#include "kerf/graph/text.h"
#include "tests/emit/samples.h"

namespace kerf::codegen {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string written(const Code& code) {
  Lines lines;
  lines.add(code);
  return lines.text();
}

std::vector<Code> words(int count, const std::string& word) {
  std::vector<Code> out;
  for (int i = 0; i < count; ++i) out.emplace_back(fmt::format("{}_{}", word, i));
  return out;
}

TEST(Lines, KeepOnOneLineWhatFits) {
  EXPECT_EQ(written({"x = f", Bracket::call, words(3, "a")}), "x = f(a_0, a_1, a_2)\n");
  EXPECT_EQ(written({"x = ", Bracket::tuple, words(1, "a")}), "x = (a_0,)\n");
  EXPECT_EQ(written({"return ", Bracket::series, words(2, "a")}), "return a_0, a_1\n");
}

TEST(Lines, GiveArgumentsALineOfTheirOwn) {
  EXPECT_EQ(
      written({"result = function_with_a_name", Bracket::call, words(7, "argument")}),
      "result = function_with_a_name(\n"
      "    argument_0, argument_1, argument_2, argument_3, argument_4, argument_5, argument_6\n"
      ")\n");
}

TEST(Lines, GiveEachItemALineWhereTheyDoNotFit) {
  const std::string text = written({"x = ", Bracket::list, words(12, "argument")});
  EXPECT_THAT(text, testing::StartsWith("x = [\n    argument_0,\n    argument_1,\n"));
  EXPECT_THAT(text, testing::EndsWith("    argument_11,\n]\n"));
  const std::string subscript =
      written({std::string(60, 'x'), Bracket::subscript, {std::string(60, 'y')}});
  EXPECT_EQ(subscript, std::string(60, 'x') + "[\n    " + std::string(60, 'y') + "\n]\n");
}

TEST(Lines, PutOperationsIntoParenthesesWhereTheyDoNotFit) {
  const auto product = [](std::size_t left, std::size_t right) {
    return written({"result = ",
                    Bracket::operation,
                    {std::string(left, 'a'), "* " + std::string(right, 'b')}});
  };
  EXPECT_EQ(product(1, 1), "result = a * b\n");
  EXPECT_EQ(product(60, 33),
            "result = (\n    " + std::string(60, 'a') + " * " + std::string(33, 'b') + "\n)\n");
  EXPECT_EQ(product(60, 40), "result = (\n    " + std::string(60, 'a') + "\n    * " +
                                 std::string(40, 'b') + "\n)\n");
}

TEST(PythonText, FoldsWhatFillsALine) {
  EXPECT_EQ(folded("a b c", 5, "  "), "a b c");
  EXPECT_EQ(folded("a b c", 4, "  "), "a b\n  c");
  EXPECT_EQ(folded("aaaa bbbb cccc", 4, ""), "aaaa\nbbbb\ncccc");
  EXPECT_EQ(folded("aaaaaa b", 4, ""), "aaaaaa\nb");
}

TEST(PythonText, IsOneLiteralWhateverIsInIt) {
  EXPECT_EQ(string_literal("a\"b"), "'a\"b'");
  EXPECT_EQ(string_literal("it's \"so\""), "'it\\'s \"so\"'");
  EXPECT_EQ(string_literal("a\n\\b\x01"), "\"a\\n\\\\b\\x01\"");
  EXPECT_EQ(identifier("h.0.c-attn"), "h_0_c_attn");
  EXPECT_EQ(identifier("class"), "class_value");
  EXPECT_EQ(identifier("0"), "value_0");
  EXPECT_EQ(identifier("\n"), "value");
  EXPECT_THAT(comment_text("a\nimport os\"\"\""),
              Not(testing::AnyOf(HasSubstr("\n"), HasSubstr("\""))));
}

TEST(PythonText, WritesNumbersAndSizesAsFormattersDo) {
  EXPECT_EQ(number_literal(1.0), "1.0");
  EXPECT_EQ(number_literal(-1e38), "-1e38");
  EXPECT_EQ(number_literal(1e-5), "1e-05");
  EXPECT_EQ(size_text(Expr::parse("12*B+1")), "12 * B + 1");
  EXPECT_EQ(size_text(Expr::parse("B**2")), "B**2");
  EXPECT_EQ(size_text(Expr::parse("max(B, 4)//3 - -1*B")),
            size_text(Expr::parse(Expr::parse("max(B, 4)//3 - -1*B").str())));
  EXPECT_EQ(size_text(Expr::parse("2*B"), /*in_product=*/true), "(2 * B)");
}

Spoken tensor(const std::string& name) { return {name, /*tensor=*/true, /*local=*/true}; }
Spoken plain(const std::string& text) { return {text}; }
Spoken list(std::vector<Code> items) { return {Code("", Bracket::list, std::move(items))}; }

std::string spelt(const SpokenCall& call) {
  const std::optional<Code> code = spell(call);
  return code ? flat(*code) : "";
}

TEST(Spelling, IsWhatAPersonWrites) {
  const Spoken x = tensor("x");
  const Spoken y = tensor("y");
  EXPECT_EQ(spelt({"aten.linear.default", {x, tensor("w"), plain("None")}, {}}), "F.linear(x, w)");
  EXPECT_EQ(spelt({"aten.add.Tensor", {x, y}, {}}), "x + y");
  EXPECT_EQ(spelt({"aten.add.Tensor", {x, y}, {{"alpha", plain("2")}}}),
            "torch.add(x, y, alpha=2)");
  EXPECT_EQ(spelt({"aten.mul.Tensor", {x, plain("8 * B")}, {}}), "x * (8 * B)");
  EXPECT_EQ(spelt({"aten.pow.Tensor_Scalar", {x, plain("-0.5")}, {}}), "x**-0.5");
  EXPECT_EQ(spelt({"aten.view.default", {x, list({"B", "-1"})}, {}}), "x.view(B, -1)");
  EXPECT_EQ(spelt({"aten.sum.dim_IntList", {x, list({"1"}), plain("True")}, {}}),
            "x.sum(1, keepdim=True)");
  EXPECT_EQ(spelt({"aten.flatten.using_ints", {x, plain("0"), plain("1")}, {}}), "x.flatten(0, 1)");
  EXPECT_EQ(spelt({"aten.conv2d.default",
                   {x, tensor("w"), plain("None"), list({"2", "2"}), list({"1", "0"})},
                   {}}),
            "F.conv2d(x, w, stride=2, padding=(1, 0))");
  EXPECT_EQ(spelt({"aten.mse_loss.default", {x, y, plain("2")}, {}}),
            "F.mse_loss(x, y, reduction=\"sum\")");
}

TEST(Spelling, SaysNothingRatherThanLess) {
  const Spoken x = tensor("x");
  EXPECT_EQ(spelt({"aten.elu.default", {x, plain("1.0"), plain("1.5")}, {}}), "");
  EXPECT_EQ(spelt({"aten.tanh.default", {x}, {{"surprise", plain("1")}}}), "");
  EXPECT_EQ(spelt({"aten.tanh.default", {x, x}, {}}), "");
  EXPECT_EQ(spelt({"aten.mul.Tensor", {plain("2.0"), x}, {}}), "") << "a number has no dtype";
  EXPECT_EQ(spelt({"my.own.default", {x}, {}}), "");
  Spoken attribute = x;
  attribute.local = false;
  EXPECT_EQ(spelt({"aten.add_.Tensor", {attribute, plain("1")}, {}}), "x.add_(1)");
}

Plan plan_of(const Graph& graph, const std::vector<std::vector<int>>& stages) {
  Plan plan;
  plan.graph_hash = graph.hash();
  plan.cluster = samples::two_devices();
  for (const std::vector<int>& nodes : stages) {
    Stage& stage = plan.stages.emplace_back();
    for (const int node : nodes) stage.nodes.emplace_back(node);
    stage.device = DeviceId{plan.stages.size() % 2 == 0 ? 1U : 0U};
  }
  for (const Node& node : graph.nodes()) plan.node_names.push_back(node.name);
  return plan;
}

constexpr std::string_view kMlp = R"(kerf-graph 1.1
graph "mlp"
batch 2
scope 1 "up" "Linear"
input %x: f32[B, 4] = "args.0"
weight @up.weight: f32[8, 4] grad = parameter "up.weight"
weight @down.weight: f32[4, 8] grad = parameter "down.weight"
%h: f32[B, 8] grad = aten.linear.default(%x, @up.weight) ; scope=1
%r: f32[B, 8] in %h grad = aten.relu_.default(&~%h)
%y: f32[B, 4] grad = aten.linear.default(%r, @down.weight)
output "0" = %y
)";

TEST(Stages, HaveStraightLineCode) {
  const Graph graph = parse_graph(kMlp);
  const std::string text = emit_stages(graph, plan_of(graph, {{0}, {1, 2}}));
  EXPECT_THAT(text, HasSubstr("    def forward(self, x):\n"
                              "        # up (Linear)\n"
                              "        up = F.linear(x, self.up.weight)\n"
                              "        del x\n"
                              "        return up\n"));
  EXPECT_THAT(text, HasSubstr("    def forward(self, up):\n"
                              "        # Written below: others may hold what was given.\n"
                              "        up = up.clone()\n"
                              "        # the model\n"
                              "        up.relu_()\n"
                              "        linear = F.linear(up, self.down.weight)\n"
                              "        del up\n"
                              "        return linear\n"));
  EXPECT_EQ(text, emit_stages(graph, plan_of(graph, {{0}, {1, 2}})));
}

TEST(Stages, RefuseAPlanThatCannotRun) {
  const Graph graph = parse_graph(kMlp);
  EXPECT_THROW(emit_stages(graph, plan_of(graph, {{1, 2}, {0}})), Error);
  EXPECT_THROW(emit_stages(graph, plan_of(graph, {{0}, {1}})), Error);
  Plan other = plan_of(graph, {{0, 1, 2}});
  other.graph_hash = std::string(32, '0');
  EXPECT_THROW(emit_stages(graph, other), Error);
}

std::string refusal(std::string_view text) {
  try {
    const Graph graph = parse_graph(text);
    std::vector<int> nodes;
    for (std::size_t n = 0; n < graph.num_nodes(); ++n) nodes.push_back(static_cast<int>(n));
    return emit_stages(graph, plan_of(graph, {nodes}));
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Stages, AreCodeThatNoFileCanAddTo) {
  EXPECT_THAT(refusal("kerf-graph 1.1\ngraph \"m\"\ninput %x: f32[2] = \"args.0\"\n"
                      "%y: f32[2] = aten.from_file.default(%x, \"/etc/passwd\")\n"),
              HasSubstr("which no graph may call"));
  EXPECT_THAT(refusal("kerf-graph 1.1\ngraph \"m\"\ninput %x: f32[2] = \"args.0\"\n"
                      "%y: f32[2] = aten.tanh.default(%x, layout(\"strided; import os\"))\n"),
              Not(HasSubstr("class Stage0")));
  const std::string text = refusal(
      "kerf-graph 1.1\ngraph \"m\\nimport os\"\n"
      "scope 1 \"a\\nimport os\" \"B\\\"\\\"\\\"\\nimport os\"\n"
      "input %\"x=1\\nimport os\": f32[2] = \"args.0\"\n"
      "weight @\"w\\nimport os\": f32[2] = parameter \"w\\nimport os\"\n"
      "%\"y\\nimport os\": f32[2] = aten.add.Tensor(%\"x=1\\nimport os\", @\"w\\nimport os\") ; "
      "scope=1\n"
      "output \"0\" = %\"y\\nimport os\"\n");
  EXPECT_THAT(text, HasSubstr("class Stage0"));
  std::size_t imports = 0;  // at the beginning of a line, as the file itself has one
  for (std::size_t at = text.find("\nimport os"); at != std::string::npos;
       at = text.find("\nimport os", at + 1)) {
    ++imports;
  }
  EXPECT_EQ(imports, 1U);
}

TEST(Modes, BecomeOneWhereOnlyFlagsDiffer) {
  const auto trace = [](bool training) {
    return parse_graph(fmt::format(
        "kerf-graph 1.1\ngraph \"m\"{}\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n{}"
        "%z: f32[B, 4] = aten.mul.Tensor({}, {})\noutput \"0\" = %z\n",
        training ? " training" : "",
        training ? "%y: f32[B, 4] = aten.dropout.default(~%x, 0.1, true) ; random\n" : "",
        training ? "%y" : "%x", training ? "2.0" : "3.0"));
  };
  const Graph training = trace(true);
  const Graph eval = trace(false);
  const ModeDifferences found = compare_modes(training, eval);
  EXPECT_EQ(found.in_eval.size(), 2U);
  const std::string text = emit_stages(training, plan_of(training, {{0, 1}}), &eval);
  EXPECT_THAT(text, HasSubstr("F.dropout(x, 0.1, self.training)"));
  EXPECT_THAT(text, HasSubstr("MODES = (True, False)"));
  EXPECT_THROW(compare_modes(eval, training), Error);
}

}  // namespace
}  // namespace kerf::codegen
