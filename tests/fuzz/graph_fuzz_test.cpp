// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Damaged `.graph` texts: each is refused with Error(invalid_graph), or is a graph whose text form
// is exact. Nothing crashes, hangs, or throws anything else. To look at one failure:
//   KERF_FUZZ_SEED=<seed> KERF_FUZZ_COUNT=1 kerf_fuzz_tests --gtest_filter=ADamagedGraph.*
#include <gtest/gtest.h>

#include <cstdio>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"
#include "tests/fuzz/mutate.h"
#include "tests/graph/random_graph.h"

namespace kerf::fuzz {
namespace {

const std::vector<std::string>& graph_words() {
  static const std::vector<std::string> kWords{"kerf-graph 1.1\n",
                                               "graph ",
                                               "batch ",
                                               "note ",
                                               "require ",
                                               "attribute ",
                                               " == ",
                                               " <= ",
                                               "!=",
                                               "scope ",
                                               "input ",
                                               "weight ",
                                               "output ",
                                               "in ",
                                               "bytes ",
                                               " + ",
                                               "grad ",
                                               "scalar ",
                                               "%",
                                               "@",
                                               "&",
                                               "~",
                                               "[",
                                               "]",
                                               "{",
                                               "}",
                                               "(",
                                               ")",
                                               "\"",
                                               "\\",
                                               "\\x",
                                               ", ",
                                               " = ",
                                               ";",
                                               "name=",
                                               "scope=",
                                               "source=",
                                               "region=",
                                               "no_grad",
                                               "random",
                                               "autocast=",
                                               "none",
                                               "true",
                                               "dtype(",
                                               "device(",
                                               "complex(",
                                               "max(",
                                               "min(",
                                               "B",
                                               "**",
                                               "//",
                                               "*B",
                                               "-",
                                               "f32[",
                                               "bf16",
                                               "i64",
                                               "layout(a)",
                                               "data 00",
                                               "parameter ",
                                               "\n",
                                               "\r\n",
                                               "_",
                                               "()",
                                               "x0",
                                               "%n1",
                                               "@w0",
                                               "\0\0",
                                               "\xff"};
  return kWords;
}

// Whether everything went as it should; explains itself otherwise.
bool fine(const std::string& text, std::uint64_t seed) {
  try {
    const Graph graph = parse_graph(text, "fuzz");
    const std::string printed = print_graph(graph);
    const Graph again = parse_graph(printed, "printed");
    EXPECT_TRUE(again == graph) << "seed " << seed << "\n" << printed;
    EXPECT_EQ(print_graph(again), printed) << "seed " << seed;
    return again == graph && print_graph(again) == printed;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    const bool own =
        error.kind() == ErrorKind::invalid_graph && !message.starts_with("[graph.parse] printed");
    EXPECT_TRUE(own) << "seed " << seed << ": " << message << "\n" << text;
    return own;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "seed " << seed << ": " << error.what() << "\n" << text;
    return false;
  }
}

TEST(ADamagedGraph, IsRefusedOrExact) {
  std::uint64_t accepted = 0;
  const std::uint64_t tried = run([&](std::uint64_t seed) {
    const GraphData data = random_graph_data(seed % 97, {.num_nodes = 1 + seed % 12});
    Mutator mutator(seed, graph_words());
    const std::string text = mutator.mutate(print_graph(Graph::freeze(data)));
    try {
      parse_graph(text);
      ++accepted;
    } catch (const Error&) {
    }
    return fine(text, seed);
  });
  std::printf("  %llu texts, %llu of them graphs\n", static_cast<unsigned long long>(tried),
              static_cast<unsigned long long>(accepted));
  EXPECT_GT(accepted, tried / 50) << "damage so great that nothing past the first line is tried";
}

TEST(ADamagedExpression, IsRefusedOrExact) {
  const std::uint64_t tried = run([&](std::uint64_t seed) {
    Mutator mutator(
        seed, {"B", "(", ")", "+", "-", "*", "//", "%", "**", "max(", "min(", ",", "12", " "});
    const std::string text = mutator.mutate("max(12*B+1, (B//2)**2) - B%3");
    try {
      const Expr expr = Expr::parse(text);
      EXPECT_EQ(Expr::parse(expr.str()), expr) << seed << ' ' << text;
      try {
        (void)expr.eval(static_cast<std::int64_t>(seed % 9));
      } catch (const Error&) {
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_graph) << seed << ' ' << text;
    }
    return !testing::Test::HasFailure();
  });
  std::printf("  %llu expressions\n", static_cast<unsigned long long>(tried));
}

}  // namespace
}  // namespace kerf::fuzz
