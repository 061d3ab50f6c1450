// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Printing and parsing are exact inverses, and nothing in a file can crash, hang or be half read.
#include "kerf/graph/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <complex>
#include <cstdio>
#include <fstream>
#include <limits>

#include "kerf/base/error.h"
#include "kerf/base/file.h"
#include "tests/graph/random_graph.h"

namespace kerf {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    parse_graph(text, "a.graph");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_graph) << error.what();
    return error.what();
  }
  return "accepted";
}

std::string line_refusal(const std::string& lines) { return refusal("kerf-graph 1.0\n" + lines); }

// Everything the form has.
constexpr const char* kEverything = R"graph(kerf-graph 1.1
graph "a \"model\"" training
batch 2
note "sizes\tare\nsymbolic \\ \x01"
scope 0 "" "Model"
scope 1 "blocks.0" "Block"
scope 2 "blocks.0.mlp" "MLP \"wide\""
require (B%2) == 0 ; source="model \"x\".py:12"
require B != 1
require 3*B < (max(B,7)*B)
require 1 <= (B//2)
attribute "" "scale" = [1e-05, 3, "te,xt;", [none, true]]
attribute "blocks.0" "eps" = none
input %x: f32[B, 16] = "args.0"
input %x_again: f32[B, 16] in %x = "kwargs.again"
input %"odd name": i64[] = "args.1"
weight @w: f32[32, 16] grad = parameter "up.weight", "tied.weight"
weight @part: f32[16]{2} in @w + 64 = non_persistent_buffer "part"
weight @mean: f64[32] bytes 512 = buffer "norm.running_mean"
weight @one: u8[3] = constant "one" data 00ff7f
%h: f32[B, 32] grad = aten.linear.default(%x, @w, none) ; scope=2 source="mlp.py:7"
%v: f32[32, B]{1, 32} in %h grad = aten.t.default(%h) ; scope=1 region="0/1" no_grad
%r: f32[B, 32] in %h grad = aten.relu_.default(&%h) ; random autocast=cpu:bf16:on autocast=cuda:f16:off
%u: f32[32*B] = aten.reshape.default(~%r, [32*B, (B*B), max(B,4)])
%k: f32[B, 32] in %h + 0 = aten.both(&~%r, alpha=1.0, list=[[], [1, [%x, none]], true, false])
%n: f32[B, 32], _, %n.1: f32[32] = aten.native_norm.default(%u, &@mean, 1e-05)
%s: scalar i64 = aten.item.default(%"odd name")
_ = aten.nothing() ; name="nothing"
() = aten.fill_.Scalar(&@part, -0.0, nan, inf, -inf, complex(0.5, -inf)) ; name="fill \"it\""
%d: f32[0, 3] bytes 12 = op(dtype(bf16), device(), device("cuda:1"), memory_format(channels_last), "te,xt)", %s, 3, -7, -9223372036854775808)
output "logits" = %n
output "past.0" = [%v, "text", none, 3]
output "w" = @w
in_spec "{\"type\": \"tuple\"}"
out_spec "x"
)graph";

std::string everything() {
  std::string text = kEverything;
  const std::string zero = " + 0 =";  // written by hand, printed without
  text.replace(text.find(zero), zero.size(), " =");
  return text;
}

TEST(TheTextForm, PrintsExactlyWhatItParsed) {
  EXPECT_EQ(print_graph(parse_graph(everything())), everything());
  EXPECT_EQ(print_graph(parse_graph(kEverything)), everything());
}

TEST(TheTextForm, ParsesExactlyWhatItPrinted) {
  const Graph graph = parse_graph(everything());
  const Graph again = parse_graph(print_graph(graph));
  EXPECT_TRUE(again == graph) << "a graph with nan and -0.0 in it equals itself";
  EXPECT_EQ(again.hash(), graph.hash());
}

TEST(TheTextForm, ReadsTheExampleOfItsHeader) {
  const std::string header = read_file(KERF_SOURCE_DIR "/kerf/graph/text.h");
  std::string text;
  for (std::size_t at = header.find("//   kerf-graph"); header.substr(at, 5) == "//   ";
       at = header.find('\n', at) + 1) {
    text += header.substr(at + 5, header.find('\n', at) - at - 4);
  }
  EXPECT_EQ(print_graph(parse_graph(text)), text);
}

TEST(TheTextForm, AllowsCommentsBlankLinesAndOtherLineEnds) {
  const Graph graph = parse_graph("# hello\r\n\r\nkerf-graph 1.0\r\n  # more\n\tgraph \"g\"\r\n\n");
  EXPECT_EQ(print_graph(graph), "kerf-graph 1.1\ngraph \"g\"\n");
}

TEST(ARandomGraph, ParsesAndPrintsBack) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Graph graph = random_graph(seed, {.num_nodes = seed % 50, .batch = seed % 3 != 0});
    const std::string text = print_graph(graph);
    const Graph again = parse_graph(text);
    ASSERT_TRUE(again == graph) << text;
    ASSERT_EQ(print_graph(again), text);
    ASSERT_EQ(again.hash(), graph.hash());
    ASSERT_EQ(again.order_edges(), graph.order_edges());
    ASSERT_EQ(again.glued(), graph.glued());
  }
}

TEST(ARandomGraph, IsTheSameForTheSameSeed) {
  EXPECT_EQ(print_graph(random_graph(7)), print_graph(random_graph(7)));
  EXPECT_NE(print_graph(random_graph(7)), print_graph(random_graph(8)));
}

TEST(AGraphFile, ComesBackEqual) {
  const std::string path = testing::TempDir() + "/kerf_text_test.graph";
  const Graph graph = random_graph(3);
  save_graph(graph, path);
  EXPECT_TRUE(load_graph(path) == graph);
  // Cut short at any line end, the last one included.
  const std::string text = print_graph(graph);
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       end = text.find('\n', end + 1)) {
    write_file(path, text.substr(0, end + 1));
    EXPECT_THROW(load_graph(path), Error);
  }
  write_file(path, text + "end\nend\n");
  EXPECT_THROW(load_graph(path), Error);
  write_file(path, "kerf-graph 1.0\nnonsense\n");
  try {
    load_graph(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(path + ":2:1: found 'nonsense'"));
  }
  std::remove(path.c_str());
  EXPECT_THROW(load_graph(path), Error);
}

// ---- versions
// ---------------------------------------------------------------------------------------

TEST(AGraphOfAnotherVersion, IsRefusedByName) {
  EXPECT_THAT(refusal("kerf-graph 1.2\n"),
              HasSubstr("graph format 1.2; this Kerf reads 1.0 to 1.1"));
  EXPECT_THAT(refusal("kerf-graph 2.0\n"), HasSubstr("graph format 2.0"));
  EXPECT_THAT(refusal("kerf-graph 0.9\n"), HasSubstr("graph format 0.9"));
  for (const char* text :
       {"", "\n\n", "kerf-plan 1.0", "kerf-graph", "kerf-graph 1", "kerf-graph 1.x",
        "kerf-graph 1.0 x", "kerf-graph -1.0", "kerf-graph 1.-0x", "graph \"g\"",
        "kerf-graph 99999999999999999999.0"}) {
    EXPECT_NE(refusal(text), "accepted") << text;
  }
}

// ---- mistakes
// -----------------------------------------------------------------------------------------

TEST(AMistake, IsAnsweredWithFileLineAndColumn) {
  EXPECT_THAT(line_refusal("\n%a: f32[4] = op(%b)"),
              HasSubstr("a.graph:3:17: found '%b)'; expected a value made on a line above"));
  EXPECT_THAT(line_refusal("%a: f33[4] = op()"),
              HasSubstr("a.graph:2:5: found 'f33[4] = op()'; expected a dtype"));
  EXPECT_THAT(line_refusal("%a: f32[4*] = op()"), HasSubstr("a.graph:2:9:"));
}

struct Mistake {
  const char* lines;
  const char* expected;
};

constexpr Mistake kMistakes[] = {
    {"%a: f32[4] = op()\n%a: f32[4] = op()", "a name that is not used above"},
    {"%a: f32[4] = op(%a)", "before it is made"},
    {"%a: f32[4] in %b = op()", "a value made on a line above"},
    {"%s: scalar i64 = op()\n%a: f32[4] in %s = op(%s)", "has no storage"},
    {"%a: f32[-1] = op()", "no negative sizes"},
    {"%a: f32[4]{-1} = op()", "no negative sizes"},
    {"%a: f32[4] bytes -16 = op()", "no negative sizes"},
    {"%a: f32[4] bytes 15 = op()", "ends at byte 16 of a storage of 15 bytes"},
    {"%a: f32[4] + 4 = op()", "ends at byte 20"},
    {"%a: f32[4]{5} = op()", "ends at byte 64"},
    {"%a: f32[4]{1, 1} = op()", "1 sizes and 2 strides"},
    {"%a: f32[B] = op()", "in a static graph"},
    {"%a: f32[4] = op(B)", "in a static graph"},
    {"output \"x\" = B", "in a static graph"},
    {"batch 0", "a batch of at least 1"},
    {"batch -3", "a batch of at least 1"},
    {"batch 99999999999999999999", "a whole number"},
    {"%a: f32[9999999999, 9999999999, 9999999999] = op()", "overflows 64 bits"},
    {"%a: f32[9223372036854775807] = op()", "overflows 64 bits"},
    {"%a: f32[99999999999999999999] = op()", "a whole number"},
    {"batch 2\nweight @w: f32[B] = parameter \"w\"", "a fixed shape"},
    {"batch 2\nweight @w: f32[4] bytes 16*B = parameter \"w\"", "a fixed shape"},
    {"weight @w: f32[4] = parameter", "'\"'"},
    {"weight @w: f32[4] = thing \"w\"", "parameter, buffer"},
    {"weight @w: u8[2] = constant \"w\" data 00", "1 bytes of data"},
    {"weight @w: u8[2] = constant \"w\" data 00f", "pairs of hex digits"},
    {"weight @w: u8[2] = constant \"w\" data 0x00", "pairs of hex digits"},
    {"weight @w: scalar i64 = constant \"w\"", "a fixed shape"},
    {"scope 2 \"a\" \"A\"", "scope 1: scopes are numbered in order"},
    {"scope 1 \"a\"", "'\"'"},
    {"%a: f32[4] = op() ; scope=1", "a scope declared above"},
    {"%a: f32[4] = op() ; scope=-1", "a scope declared above"},
    {"%a: f32[4] = op() ; colour=red", "name=, scope="},
    {"%a: f32[4] = op() ; autocast=cpu:f33:on", "a dtype"},
    {"%a: f32[4] = op() ; autocast=cpu:f32:perhaps", "on or off"},
    {"%a: f32[4] = op() ; autocast=:f32:on", "a device type"},
    {"%a: f32[4] = op(", "a whole number"},
    {"%a: f32[4] = op(1", "')'"},
    {"%a: f32[4] = op(1,)", "a whole number"},
    {"%a: f32[4] = op(x=1, 2)", "positional ones first"},
    {"%a: f32[4] = op(\"open", "a closing quote"},
    {"%a: f32[4] = op(\"\\q\")", "one of"},
    {"%a: f32[4] = op(\"\\x1", "two hex digits"},
    {"%a: f32[4] = op(1.5.5)", "a number"},
    {"%a: f32[4] = op(1e999)", "a number"},
    {"%a: f32[4] = op(dtype(f33))", "a dtype"},
    {"%a: f32[4] = op(complex(1))", "','"},
    {"%a: f32[4] = op(layout())", "a plain name"},
    {"%a: f32[4] = op(&1)", "a value"},
    {"%a: f32[4] = (1)", "an operator"},
    {"%a: f32[4] = two words()", "an operator"},
    {"%a: f32[4] = op() extra", "the end of the line"},
    {"%a: f32[4]", "'='"},
    {"%a f32[4] = op()", "':'"},
    {"%: f32[4] = op()", "a name"},
    {"%\"\": f32[4] = op()", "a name"},
    {"() = op()", "is empty or used twice"},
    {"%a: f32[4] = op()\n() = op() ; name=\"a\"", "is empty or used twice"},
    {"output \"x\" = &%a", "a value made on a line above"},
    {"%a: f32[4] = op()\noutput \"x\" = &%a", "a plain value"},
    {"input %a: f32[4]", "'='"},
    {"input %x: f32[4] = \"args.0\"\n%y: f32[4] in %x = op()",
     "storage of a value it does not take"},
};

TEST(AMistake, IsNamed) {
  for (const Mistake& mistake : kMistakes) {
    EXPECT_THAT(line_refusal(mistake.lines), HasSubstr(mistake.expected)) << mistake.lines;
  }
}

// ---- hostile files
// ------------------------------------------------------------------------------------

TEST(AFileCutShort, IsAnErrorOrEndsWithAWholeLine) {
  const std::string text = everything();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string cut = text.substr(0, i);
    if (refusal(cut) != "accepted") continue;
    // What was accepted must be what stands there: the rest of the last line was optional.
    const std::string printed = print_graph(parse_graph(cut));
    EXPECT_EQ(print_graph(parse_graph(printed)), printed);
  }
}

TEST(AHostileFile, CannotNestWithoutEnd) {
  const std::size_t n = 100000;
  const std::string open(n, '[');
  EXPECT_THAT(line_refusal("%a: f32[4] = op(" + open), HasSubstr("fewer nested lists"));
  EXPECT_THAT(line_refusal("%a: f32[4] = op(" + open + std::string(n, ']') + ")"),
              HasSubstr("fewer nested lists"));
  EXPECT_THAT(line_refusal("output \"x\" = " + open), HasSubstr("fewer nested lists"));
  EXPECT_NE(line_refusal("%a: f32[" + std::string(n, '(')), "accepted");
  EXPECT_NE(line_refusal("%a: f32" + open), "accepted");
  EXPECT_NE(line_refusal("%a: f32[4] = op(" + std::string(n, '(') + std::string(n, ')') + ")"),
            "accepted");
  EXPECT_NE(line_refusal("%a: f32[4] = " + std::string(n, '(')), "accepted");
  EXPECT_NE(line_refusal("%a: f32[4] = op(" + std::string(n, '-') + "1)"), "accepted");
  EXPECT_NE(line_refusal("%a: f32[4] = op(" + std::string(n, '&') + ")"), "accepted");
}

TEST(AHostileFile, MayHaveLongNamesAndLists) {
  const std::string name(1000000, 'n');
  EXPECT_EQ(line_refusal("input %" + name + ": f32[4] = \"" + name + "\"\n%a: f32[4] = op(%" +
                         name + ")"),
            "accepted");
  std::string shape = "1";
  for (int i = 0; i < 100000; ++i) shape += ", 1";
  EXPECT_EQ(line_refusal("%a: f32[" + shape + "] = op()"), "accepted");
}

TEST(AHostileFile, CannotBeSlowByOneOperatorOfManyTensors) {
  std::string lines;
  std::string list;
  const int count = 30000;
  for (int i = 0; i < count; ++i) {
    lines += "input %x" + std::to_string(i) + ": f32[4] = \"x\"\n";
    list += (i == 0 ? "&~%x" : ", &~%x") + std::to_string(i);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(line_refusal(lines + "() = op([" + list + "]) ; name=\"a\""), "accepted");
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(elapsed.count(), 20.0) << "quadratic would be minutes under a sanitizer";
}

TEST(AHostileFile, MayHoldAnyBytes) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  EXPECT_NE(line_refusal(bytes), "accepted");
  EXPECT_NE(refusal(std::string(1000, '\0')), "accepted");
  bytes.resize(128);  // what is UTF-8 by itself comes back
  const Graph graph = [&] {
    GraphData data;
    data.scopes.push_back({});
    data.name = bytes;
    data.notes = {bytes};
    return Graph::freeze(data);
  }();
  EXPECT_TRUE(parse_graph(print_graph(graph)) == graph);
}

// ---- graphs that were not made from text
// --------------------------------------------------------------

// What the text form cannot say must be refused before it is printed.
class AGraphThatCannotBePrinted : public testing::Test {
 protected:
  GraphData data_ =
      parse_graph("kerf-graph 1.0\ninput %x: f32[4] = \"a\"\n%a: f32[4] = op(%x)\n").data();
  std::string refused() {
    try {
      const Graph graph = Graph::freeze(data_);
      EXPECT_TRUE(parse_graph(print_graph(graph)) == graph) << print_graph(graph);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(AGraphThatCannotBePrinted, HasAnOddOperatorName) {
  for (const char* op :
       {"", " ", "a b", "a(b", "a)b", "a\tb", "a\nb", "\"a\"", "a=b", "a,b", "a;b"}) {
    data_.nodes[0].op = op;
    EXPECT_THAT(refused(), HasSubstr("operator")) << op;
  }
  data_.nodes[0].op = "my_lib::fused-op.out<2>";
  EXPECT_EQ(refused(), "accepted");
}

TEST_F(AGraphThatCannotBePrinted, HasAnOddArgumentName) {
  for (const char* name : {"a b", "a=b", "\"", "a\n"}) {
    data_.nodes[0].args = {{name, {Expr(1)}}};
    EXPECT_THAT(refused(), HasSubstr("a plain name")) << name;
  }
}

TEST_F(AGraphThatCannotBePrinted, HasAnOddConstant) {
  for (const EnumName& name :
       {EnumName{"", "x"}, EnumName{"layout", ""}, EnumName{"a b", "x"}, EnumName{"layout", "x)"},
        EnumName{"dtype", "x"}, EnumName{"device", "x"}, EnumName{"complex", "x"},
        EnumName{"max", "x"}, EnumName{"min", "x"}, EnumName{"none", "x"}, EnumName{"true", "x"},
        EnumName{"false", "x"}}) {
    data_.nodes[0].args = {{"", {Argument::List{{name}}}}};
    EXPECT_THAT(refused(), HasSubstr("a plain name")) << name.type << '(' << name.name << ')';
    data_.nodes[0].args.clear();
    data_.outputs = {{{name}, "out"}};
    EXPECT_THAT(refused(), HasSubstr("a plain name")) << name.type << '(' << name.name << ')';
    data_.outputs.clear();
  }
}

TEST_F(AGraphThatCannotBePrinted, HasAnOddAutocastDevice) {
  for (const char* type : {"", "a b", "a:b", "\n"}) {
    data_.nodes[0].autocast = {{type, DType::bf16, true}};
    EXPECT_THAT(refused(), HasSubstr("a device type")) << type;
  }
}

TEST_F(AGraphThatCannotBePrinted, NestsListsTooDeep) {
  Argument deep;
  for (int i = 0; i < 64; ++i) deep = {Argument::List{deep}};
  data_.nodes[0].args = {{"", deep}};
  EXPECT_EQ(refused(), "accepted");
  deep = {Argument::List{deep}};
  data_.nodes[0].args = {{"", deep}};
  EXPECT_THAT(refused(), HasSubstr("nested"));
}

TEST_F(AGraphThatCannotBePrinted, HasAScalarWithALayout) {
  Value scalar;
  scalar.name = "s";
  scalar.scalar = true;
  data_.nodes.push_back({});
  data_.nodes[1].name = "s";
  data_.nodes[1].op = "op";
  data_.nodes[1].outputs = {ValueId(2)};
  const auto with = [&](auto change) {
    data_.values.resize(2);
    data_.values.push_back(scalar);
    change(data_.values[2]);
    return refused();
  };
  EXPECT_EQ(with([](Value&) {}), "accepted");
  EXPECT_NE(with([](Value& value) { value.offset = 4; }), "accepted");
  EXPECT_NE(with([](Value& value) { value.strides = {1}; }), "accepted");
  EXPECT_NE(with([](Value& value) { value.shape = {1}; }), "accepted");
  EXPECT_NE(with([](Value& value) { value.requires_grad = true; }), "accepted");
}

TEST_F(AGraphThatCannotBePrinted, DoesNotIncludeOneWithEveryNumber) {
  Argument::List numbers;
  for (const double number :
       {0.0, -0.0, 1.0, -1.0, 0.1, 1e22, 1e-7, 123456789012345680.0,
        std::numeric_limits<double>::min(), std::numeric_limits<double>::denorm_min(),
        std::numeric_limits<double>::max(), std::numeric_limits<double>::lowest(),
        std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::quiet_NaN()}) {
    numbers.emplace_back().data = number;
    numbers.emplace_back().data = std::complex<double>(number, -number);
  }
  data_.nodes[0].args = {{"", {numbers}}};
  EXPECT_EQ(refused(), "accepted");
}

TEST(AnArgument, TellsZeroFromMinusZeroAndNanFromNothing) {
  EXPECT_NE(Argument{0.0}, Argument{-0.0});
  EXPECT_EQ(Argument{std::nan("")}, Argument{std::nan("")});
  EXPECT_NE(Argument{std::nan("")}, Argument{0.0});
  EXPECT_EQ((Argument{std::complex<double>(1, std::nan(""))}),
            (Argument{std::complex<double>(1, std::nan(""))}));
  EXPECT_NE(Argument{1.0}, Argument{Expr(1)});
}

// Not a limit, a number to look at: parse and print of a large graph.
TEST(ALargeGraph, IsParsedAndPrinted) {
  std::string text =
      "kerf-graph 1.1\ngraph \"large\"\nbatch 2\nscope 1 \"blocks.0\" \"Block\"\n"
      "input %x: f32[B, 16] = \"args.0\"\nweight @w: f32[16, 16] = parameter \"w\"\n";
  std::string last = "x";
  for (int i = 0; i < 25000; ++i) {
    const std::string n = std::to_string(i);
    text += "%l" + n + ": f32[B, 16] grad = aten.linear.default(%" + last +
            ", @w, none) ; scope=1 source=\"m.py:" + n + "\"\n";
    text += "%t" + n + ": f32[16, B]{1, 16} in %l" + n + " grad = aten.t.default(%l" + n +
            ") ; scope=1\n";
    text += "%r" + n + ": f32[B, 16] in %l" + n + " grad = aten.relu_.default(&%l" + n +
            ") ; scope=1\n";
    text += "%a" + n + ": f32[B, 16] grad = aten.add.Tensor(%r" + n + ", %" + last +
            ", alpha=1) ; scope=1\n";
    last = "a" + n;
  }
  text += "output \"y\" = %" + last + "\n";
  const auto start = std::chrono::steady_clock::now();
  const Graph graph = parse_graph(text);
  const auto parsed = std::chrono::steady_clock::now();
  const std::string printed = print_graph(graph);
  const auto done = std::chrono::steady_clock::now();
  EXPECT_EQ(printed, text);
  std::printf("  %zu nodes: parse %.2f s, print %.2f s\n", graph.num_nodes(),
              std::chrono::duration<double>(parsed - start).count(),
              std::chrono::duration<double>(done - parsed).count());
}

}  // namespace
}  // namespace kerf
