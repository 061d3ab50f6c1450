// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "kerf/base/error.h"

namespace kerf {
namespace {

constexpr int kMaxTreeDepth = 64;
constexpr int kMaxTreeSize = 512;

[[noreturn]] void overflow() {
  throw Error(
      ErrorKind::invalid_graph,
      "[graph.expr] a size overflows 64 bits; expected sizes of real tensors; check the graph");
}

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) overflow();
  return out;
}

std::int64_t checked_subtract(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_sub_overflow(a, b, &out)) overflow();
  return out;
}

std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) overflow();
  return out;
}

void check_divisor(std::int64_t b) {
  if (b != 0) return;
  throw Error(
      ErrorKind::invalid_graph,
      "[graph.expr] division by zero in a size; expected a batch for which the model's sizes "
      "exist; give a batch or micro-batch like the traced one, or check the graph");
}

std::int64_t checked_floor_div(std::int64_t a, std::int64_t b) {
  check_divisor(b);
  if (b == -1) return checked_multiply(a, -1);
  const std::int64_t quotient = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? quotient - 1 : quotient;
}

// Takes the sign of the divisor, as in Python.
std::int64_t checked_modulo(std::int64_t a, std::int64_t b) {
  check_divisor(b);
  if (b == -1) return 0;  // the machine's own would overflow on the smallest number
  const std::int64_t rest = a % b;
  return (rest != 0 && ((rest < 0) != (b < 0))) ? rest + b : rest;
}

std::int64_t checked_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    throw Error(ErrorKind::invalid_graph,
                "[graph.expr] a negative power in a size; expected whole numbers; check the graph");
  }
  // A base of -1, 0 or 1 needs no loop and would make one as long as the exponent.
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  std::int64_t out = 1;
  for (; exponent > 0; --exponent) out = checked_multiply(out, base);
  return out;
}

std::int64_t apply(Expr::Op op, std::int64_t a, std::int64_t b) {
  switch (op) {
    case Expr::Op::add: return checked_add(a, b);
    case Expr::Op::subtract: return checked_subtract(a, b);
    case Expr::Op::multiply: return checked_multiply(a, b);
    case Expr::Op::floor_div: return checked_floor_div(a, b);
    case Expr::Op::modulo: return checked_modulo(a, b);
    case Expr::Op::max: return std::max(a, b);
    case Expr::Op::min: return std::min(a, b);
    case Expr::Op::power: return checked_power(a, b);
  }
  KERF_CHECK(false, "an unknown operation");
  return 0;
}

// Recursive descent over the grammar in the header. Depth is limited: files may be hostile.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expr run() {
    Expr out = sum();
    skip();
    if (at_ != text_.size()) fail("an operator or the end");
    return out;
  }

 private:
  static constexpr int kMaxDepth = 100;

  [[noreturn]] void fail(std::string_view expected) const {
    throw Error(
        ErrorKind::invalid_graph,
        fmt::format("[graph.expr] '{}' at column {}: expected {}; write a size such as 64, B or "
                    "12*B+1",
                    text_.substr(0, 80), at_ + 1, expected));
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  Expr sum() {
    if (++depth_ > kMaxDepth) fail("fewer nested parentheses");
    Expr out = product();
    for (;;) {
      if (take("+")) {
        out = out + product();
      } else if (take("-")) {
        out = out - product();
      } else {
        --depth_;
        return out;
      }
    }
  }
  Expr product() {
    Expr out = factor();
    for (;;) {
      skip();
      if (text_.substr(at_, 2) == "**") fail("an operator that binds weaker");
      if (take("//")) {
        out = floor_div(out, factor());
      } else if (take("*")) {
        out = out * factor();
      } else if (take("%")) {
        out = modulo(out, factor());
      } else {
        return out;
      }
    }
  }
  Expr factor() {
    if (take("-")) {
      if (take_smallest()) return Expr(std::numeric_limits<std::int64_t>::min());
      if (++depth_ > kMaxDepth) fail("fewer signs");
      Expr out = Expr(0) - factor();
      --depth_;
      return out;
    }
    Expr base = atom();
    if (take("**")) return power(base, atom());
    return base;
  }
  // The one number whose digits do not fit without their sign.
  bool take_smallest() {
    static constexpr std::string_view kDigits = "9223372036854775808";
    skip();
    const std::string_view rest = text_.substr(at_);
    const bool more = rest.size() > kDigits.size() && (std::isdigit(rest[kDigits.size()]) != 0);
    return !more && take(kDigits);
  }
  Expr atom() {
    skip();
    if (take("(")) {
      Expr out = sum();
      if (!take(")")) fail("')'");
      return out;
    }
    if (take("max(")) return call(true);
    if (take("min(")) return call(false);
    if (take("B")) return Expr::batch();
    std::int64_t number = 0;
    const auto [end, status] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
    if (status != std::errc{} || at_ >= text_.size() || text_[at_] == '-') {
      fail("a whole number, B, max(, min( or '('");
    }
    at_ = static_cast<std::size_t>(end - text_.data());
    return Expr(number);
  }
  Expr call(bool is_max) {
    Expr a = sum();
    if (!take(",")) fail("','");
    Expr b = sum();
    if (!take(")")) fail("')'");
    return is_max ? max(a, b) : min(a, b);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

struct Expr::Tree {
  Op op;
  Expr a;
  Expr b;
  int depth;
  int size;  // operations
};

Expr Expr::linear(std::int64_t constant, std::int64_t slope) {
  Expr out(constant);
  out.slope_ = slope;
  return out;
}

Expr Expr::parse(std::string_view text) {
  // Nearly all sizes are plain numbers.
  std::int64_t number = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status == std::errc{} && rest == text.data() + text.size()) return number;
  return Parser(text).run();
}

std::int64_t Expr::constant() const {
  KERF_CHECK(is_constant(), "the expression depends on the batch: " + str());
  return constant_;
}

std::int64_t Expr::eval(std::int64_t batch) const {
  if (tree_) return apply(tree_->op, tree_->a.eval(batch), tree_->b.eval(batch));
  return checked_add(constant_, checked_multiply(slope_, batch));
}

// As an operand of any operator: trees bring their own parentheses.
std::string Expr::operand() const {
  const bool bare =
      tree_ != nullptr || (slope_ == 0 && constant_ >= 0) || (slope_ == 1 && constant_ == 0);
  return bare ? str() : "(" + str() + ")";
}

std::string Expr::str() const {
  if (tree_) {
    const auto infix = [&](std::string_view sign) {
      return fmt::format("({}{}{})", tree_->a.operand(), sign, tree_->b.operand());
    };
    switch (tree_->op) {
      case Op::add: return infix("+");
      case Op::subtract: return infix("-");
      case Op::multiply: return infix("*");
      case Op::floor_div: return infix("//");
      case Op::modulo: return infix("%");
      case Op::max: return fmt::format("max({},{})", tree_->a.str(), tree_->b.str());
      case Op::min: return fmt::format("min({},{})", tree_->a.str(), tree_->b.str());
      case Op::power: return infix("**");
    }
  }
  if (slope_ == 0) return std::to_string(constant_);
  const std::string out = slope_ == 1 ? "B" : fmt::format("{}*B", slope_);
  // A minus would be read as a sign of digits that do not fit.
  if (constant_ == std::numeric_limits<std::int64_t>::min()) {
    return fmt::format("{}+{}", constant_, out);
  }
  return constant_ == 0 ? out : fmt::format("{}{:+d}", out, constant_);
}

// Bounded, so that printing, comparing and destroying may recurse, and so that the text of any
// expression nests less deeply than the parser allows.
Expr Expr::tree(Op op, const Expr& a, const Expr& b) {
  const int depth = 1 + std::max(a.tree_ ? a.tree_->depth : 0, b.tree_ ? b.tree_->depth : 0);
  const int size = 1 + (a.tree_ ? a.tree_->size : 0) + (b.tree_ ? b.tree_->size : 0);
  if (depth > kMaxTreeDepth || size > kMaxTreeSize) {
    throw Error(
        ErrorKind::invalid_graph,
        fmt::format("[graph.expr] a size has too many operations ({}, {} deep); expected at "
                    "most {}, {} deep; trace with a fixed batch",
                    size, depth, kMaxTreeSize, kMaxTreeDepth));
  }
  Expr out;
  out.tree_ = std::make_shared<const Tree>(Tree{op, a, b, depth, size});
  return out;
}

// Keeps what is linear in B linear, so that equal sizes have equal texts in nearly all cases.
Expr Expr::binary(Op op, const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant()) return Expr(apply(op, a.constant_, b.constant_));
  const bool both_linear = !a.tree_ && !b.tree_;
  if (both_linear && op == Op::add) {
    return linear(checked_add(a.constant_, b.constant_), checked_add(a.slope_, b.slope_));
  }
  if (both_linear && op == Op::subtract) {
    return linear(apply(op, a.constant_, b.constant_), apply(op, a.slope_, b.slope_));
  }
  if (both_linear && op == Op::multiply && (a.is_constant() || b.is_constant())) {
    const std::int64_t factor = a.is_constant() ? a.constant_ : b.constant_;
    const Expr& other = a.is_constant() ? b : a;
    return linear(checked_multiply(other.constant_, factor),
                  checked_multiply(other.slope_, factor));
  }
  if (both_linear && op == Op::floor_div && b.is_constant() && b.constant_ > 0 &&
      a.constant_ % b.constant_ == 0 && a.slope_ % b.constant_ == 0) {
    return linear(a.constant_ / b.constant_, a.slope_ / b.constant_);
  }
  if (b.is_constant() && b.constant_ == 1) {
    if (op == Op::multiply || op == Op::floor_div || op == Op::power) return a;
  }
  if (a.is_constant() && a.constant_ == 1 && op == Op::multiply) return b;
  if (a.is_constant() && a.constant_ == 0 && op == Op::add) return b;
  if (b.is_constant() && b.constant_ == 0 && (op == Op::add || op == Op::subtract)) return a;
  return tree(op, a, b);
}

Expr operator+(const Expr& a, const Expr& b) { return Expr::binary(Expr::Op::add, a, b); }
Expr operator-(const Expr& a, const Expr& b) { return Expr::binary(Expr::Op::subtract, a, b); }
Expr operator*(const Expr& a, const Expr& b) { return Expr::binary(Expr::Op::multiply, a, b); }
Expr floor_div(const Expr& a, const Expr& b) { return Expr::binary(Expr::Op::floor_div, a, b); }
Expr modulo(const Expr& a, const Expr& b) { return Expr::binary(Expr::Op::modulo, a, b); }
Expr max(const Expr& a, const Expr& b) { return Expr::binary(Expr::Op::max, a, b); }
Expr min(const Expr& a, const Expr& b) { return Expr::binary(Expr::Op::min, a, b); }
Expr power(const Expr& a, const Expr& b) { return Expr::binary(Expr::Op::power, a, b); }

bool operator==(const Expr& a, const Expr& b) {
  if (!a.tree_ && !b.tree_) return a.constant_ == b.constant_ && a.slope_ == b.slope_;
  if (a.tree_ && b.tree_) {
    return a.tree_ == b.tree_ ||
           (a.tree_->op == b.tree_->op && a.tree_->a == b.tree_->a && a.tree_->b == b.tree_->b);
  }
  return false;
}

}  // namespace kerf
