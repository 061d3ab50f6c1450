// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/expr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "kerf/base/error.h"
#include "kerf/base/rng.h"

namespace kerf {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

std::string canonical(std::string_view text) { return Expr::parse(text).str(); }

std::string refusal_of(std::string_view text) {
  try {
    Expr::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_graph);
    return error.what();
  }
  return "accepted";
}

TEST(AnExpression, ThatIsLinearHasOneText) {
  EXPECT_EQ(canonical("12*B + 1"), "12*B+1");
  EXPECT_EQ(canonical("1 + B*12"), "12*B+1");
  EXPECT_EQ(canonical("3*(4*B)+1"), "12*B+1");
  EXPECT_EQ(canonical("B+B"), "2*B");
  EXPECT_EQ(canonical("B-B"), "0");
  EXPECT_EQ(canonical("0*B"), "0");
  EXPECT_EQ(canonical("-B"), "-1*B");
  EXPECT_EQ(canonical("5-B"), "-1*B+5");
  EXPECT_EQ(canonical("(4*B+8)//4"), "B+2");
  EXPECT_EQ(canonical("B//1"), "B");
  EXPECT_EQ(canonical("B**1"), "B");
  EXPECT_EQ(canonical("  7 "), "7");
  EXPECT_EQ(canonical("2**10"), "1024");
  EXPECT_EQ(canonical("max(3, 4) + min(3,4)"), "7");
}

TEST(AnExpression, ThatIsNotLinearPrintsAsATree) {
  EXPECT_EQ(canonical("B*B"), "(B*B)");
  EXPECT_EQ(canonical("B//2"), "(B//2)");
  EXPECT_EQ(canonical("(B+1)%2"), "((B+1)%2)");
  EXPECT_EQ(canonical("max(B, 4)"), "max(B,4)");
  EXPECT_EQ(canonical("B**2 + 2*B + 1"), "(((B**2)+(2*B))+1)");
  EXPECT_EQ(canonical("B//(-2)"), "(B//(-2))");
}

TEST(AnExpression, EvaluatesAsInPython) {
  EXPECT_EQ(Expr::parse("12*B+1").eval(4), 49);
  EXPECT_EQ(Expr::parse("-7//2").constant(), -4);
  EXPECT_EQ(Expr::parse("7//(-2)").constant(), -4);
  EXPECT_EQ(Expr::parse("-7%3").constant(), 2);
  EXPECT_EQ(Expr::parse("7%(-3)").constant(), -2);
  EXPECT_EQ(Expr::parse("-2**2").constant(), -4) << "the sign binds weaker than the power";
  EXPECT_EQ(Expr::parse("0**0").constant(), 1);
  EXPECT_EQ(Expr::parse("(-1)**1000000001").constant(), -1);
  EXPECT_EQ(Expr::parse("2*3//4").constant(), 1);
  EXPECT_EQ(Expr::parse("7//2*2").constant(), 6);
  EXPECT_EQ(Expr::parse("10-3-2").constant(), 5);
  EXPECT_EQ(Expr::parse("B*B-B").eval(5), 20);
  EXPECT_EQ(Expr::parse("- - 3").constant(), 3);
}

TEST(AnExpression, HoldsEvery64BitNumber) {
  for (const std::int64_t number : {kMax, kMin, kMin + 1, kMax - 1, std::int64_t{0}}) {
    EXPECT_EQ(Expr::parse(Expr(number).str()), Expr(number));
    const Expr sloped = Expr::linear(number, number == 0 ? 1 : number);
    EXPECT_EQ(Expr::parse(sloped.str()), sloped) << sloped.str();
  }
  EXPECT_EQ(Expr::parse("-1 - (-9223372036854775808)").constant(), kMax);
  EXPECT_EQ(Expr::parse("(-9223372036854775808) % 9223372036854775807").constant(), kMax - 1);
  EXPECT_EQ(Expr::parse("(-9223372036854775808) % (-1)").constant(), 0);
  EXPECT_EQ(Expr::parse("-9223372036854775808").constant(), kMin);
}

TEST(AnExpression, RefusesToOverflow) {
  for (const char* text :
       {"9223372036854775807+1", "-9223372036854775808-1", "4294967296*4294967296", "2**63",
        "10**100000000000", "(-9223372036854775808)//(-1)", "0-(-9223372036854775808)",
        "9223372036854775807*B*2", "3*B*9223372036854775807"}) {
    EXPECT_THAT(refusal_of(text), testing::HasSubstr("overflows 64 bits")) << text;
  }
  EXPECT_THROW((void)Expr::parse("B*B").eval(std::int64_t{1} << 32), Error);
  EXPECT_THROW((void)Expr::parse("9223372036854775807*B").eval(2), Error);
  EXPECT_THROW((void)Expr::parse("B**64").eval(2), Error);
  EXPECT_EQ(Expr::parse("B**62").eval(2), std::int64_t{1} << 62);
}

TEST(AnExpression, RefusesToDivideByZero) {
  EXPECT_THAT(refusal_of("1//0"), testing::HasSubstr("division by zero"));
  EXPECT_THAT(refusal_of("1%0"), testing::HasSubstr("division by zero"));
  EXPECT_THROW((void)Expr::parse("4//(B-2)").eval(2), Error);
  EXPECT_THROW((void)Expr::parse("4%(B-2)").eval(2), Error);
  EXPECT_THROW((void)Expr::parse("2**(B-3)").eval(2), Error);
}

TEST(AnExpression, IsRefusedWithTheColumn) {
  EXPECT_THAT(refusal_of("12*"), testing::HasSubstr("column 4"));
  EXPECT_THAT(refusal_of("B B"), testing::HasSubstr("column 3"));
  EXPECT_THAT(refusal_of("(B+1"), testing::HasSubstr("expected ')'"));
  for (const char* text : {"",
                           " ",
                           "b",
                           "C",
                           "1.5",
                           "B.",
                           "2B",
                           "*B",
                           "B/2",
                           "max(B)",
                           "max(B,1,2)",
                           "max",
                           "1e5",
                           "B**-1",
                           "B**2**2",
                           "0x10",
                           "+3",
                           "1+",
                           "()",
                           "B)",
                           "--",
                           "99999999999999999999",
                           "-92233720368547758080",
                           "\t3"}) {
    EXPECT_NE(refusal_of(text), "accepted") << text;
  }
}

TEST(AnExpression, RefusesToNestDeeperThanAStackBears) {
  const std::size_t n = 100000;
  EXPECT_NE(refusal_of(std::string(n, '(')), "accepted");
  EXPECT_NE(refusal_of(std::string(n, '(') + "B" + std::string(n, ')')), "accepted");
  EXPECT_NE(refusal_of(std::string(n, '-') + "B"), "accepted");
  std::string calls;
  for (std::size_t i = 0; i < n; ++i) calls += "max(";
  EXPECT_NE(refusal_of(calls), "accepted");
}

TEST(AnExpression, RefusesAChainThatMakesATreeTooDeep) {
  for (const char* link : {"*B", "//B", "%B", "+B*B", "-B//2"}) {
    std::string chain = "B";
    for (std::size_t i = 0; i < 200000; ++i) chain += link;
    EXPECT_THAT(refusal_of(chain), testing::HasSubstr("too many operations")) << link;
  }
  std::string linear = "B";
  for (std::size_t i = 0; i < 200000; ++i) linear += "+B";
  EXPECT_EQ(canonical(linear), "200001*B") << "a long sum that stays linear is no tree";
}

TEST(AnExpression, RefusesToGrowByDoubling) {
  Expr expr = Expr::batch();
  EXPECT_THROW(
      {
        for (int i = 0; i < 60; ++i) expr = expr * expr + Expr::batch();
      },
      Error);
  EXPECT_LT(expr.str().size(), 100000U);
}

TEST(AnExpression, AsDeepAsAllowedStillParsesBack) {
  Expr expr = Expr::batch();
  std::size_t depth = 0;
  try {
    for (; depth < 1000; ++depth) expr = modulo(Expr::linear(-3, -2), expr);
  } catch (const Error&) {
  }
  EXPECT_GT(depth, 30U);
  EXPECT_LT(depth, 1000U);
  EXPECT_EQ(Expr::parse(expr.str()), expr);
}

// Random expressions against an evaluator of 128 bits that follows Python.
__extension__ using Wide = __int128;

struct Sample {
  std::string text;
  std::optional<Wide> value;  // at the batch it was made for; nothing where Python would raise
};

Wide floor_quotient(Wide a, Wide b) {
  Wide q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

bool fits(Wide x) { return x >= kMin && x <= kMax; }

Sample draw(Rng& rng, std::int64_t batch, int depth) {
  if (depth == 0 || rng.below(5) == 0) {
    if (rng.below(2) == 0) return {"B", batch};
    const auto number = static_cast<std::int64_t>(rng.below(9)) - 4;
    return {number < 0 ? "(" + std::to_string(number) + ")" : std::to_string(number), number};
  }
  const Sample a = draw(rng, batch, depth - 1);
  const Sample b = draw(rng, batch, depth - 1);
  const std::uint64_t op = rng.below(7);
  static constexpr const char* kOps[] = {"+", "-", "*", "//", "%"};
  Sample out;
  out.text = op < 5 ? "(" + a.text + ")" + kOps[op] + "(" + b.text + ")"
                    : (op == 5 ? "max(" : "min(") + a.text + ", " + b.text + ")";
  if (!a.value || !b.value) return out;
  const Wide x = *a.value;
  const Wide y = *b.value;
  if (op == 0) out.value = x + y;
  if (op == 1) out.value = x - y;
  if (op == 2) out.value = x * y;
  if (op == 3 && y != 0) out.value = floor_quotient(x, y);
  if (op == 4 && y != 0) out.value = x - floor_quotient(x, y) * y;
  if (op == 5) out.value = std::max(x, y);
  if (op == 6) out.value = std::min(x, y);
  if (out.value && !fits(*out.value)) out.value.reset();
  return out;
}

TEST(ARandomExpression, EvaluatesAsInPythonAndParsesBack) {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    Rng rng(seed);
    const auto batch = static_cast<std::int64_t>(1 + rng.below(7));
    const Sample sample = draw(rng, batch, 4);
    std::optional<Expr> expr;
    try {
      expr = Expr::parse(sample.text);
    } catch (const Error&) {
      EXPECT_FALSE(sample.value.has_value()) << sample.text;
      continue;
    }
    EXPECT_EQ(Expr::parse(expr->str()), *expr) << sample.text << " -> " << expr->str();
    EXPECT_EQ(Expr::parse(expr->str()).str(), expr->str());
    if (!sample.value) continue;
    EXPECT_EQ(expr->eval(batch), static_cast<std::int64_t>(*sample.value)) << sample.text;
    ++compared;
  }
  EXPECT_GT(compared, 10000U);
}

}  // namespace
}  // namespace kerf
