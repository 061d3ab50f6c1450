// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kerf/base/error.h"

namespace kerf {
namespace {

[[noreturn]] void overflow() {
  throw Error(ErrorKind::invalid_graph,
              "[graph.expr] a size overflows 64 bits; expected sizes of real tensors; check the graph");
}

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) overflow();
  return out;
}

std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) overflow();
  return out;
}

std::int64_t checked_floor_div(std::int64_t a, std::int64_t b) {
  if (b == 0) {
    throw Error(ErrorKind::invalid_graph,
                "[graph.expr] division by zero in a size; expected a non-zero divisor; check the graph");
  }
  if (b == -1) return checked_multiply(a, -1);
  const std::int64_t quotient = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? quotient - 1 : quotient;
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
    case Expr::Op::subtract: return checked_add(a, checked_multiply(b, -1));
    case Expr::Op::multiply: return checked_multiply(a, b);
    case Expr::Op::floor_div: return checked_floor_div(a, b);
    case Expr::Op::modulo:
      return checked_add(a, checked_multiply(checked_multiply(checked_floor_div(a, b), b), -1));
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
    throw Error(ErrorKind::invalid_graph,
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
      if (++depth_ > kMaxDepth) fail("fewer signs");
      Expr out = Expr(0) - factor();
      --depth_;
      return out;
    }
    Expr base = atom();
    if (take("**")) return power(base, atom());
    return base;
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
};

Expr Expr::linear(std::int64_t constant, std::int64_t slope) {
  Expr out(constant);
  out.slope_ = slope;
  return out;
}

Expr Expr::parse(std::string_view text) { return Parser(text).run(); }

std::int64_t Expr::constant() const {
  KERF_CHECK(is_constant(), "the expression depends on the batch: " + str());
  return constant_;
}

std::int64_t Expr::eval(std::int64_t batch) const {
  if (tree_) return apply(tree_->op, tree_->a.eval(batch), tree_->b.eval(batch));
  return checked_add(constant_, checked_multiply(slope_, batch));
}

std::string Expr::str() const {
  if (tree_) {
    const std::string a = tree_->a.str();
    const std::string b = tree_->b.str();
    switch (tree_->op) {
      case Op::add: return fmt::format("({}+{})", a, b);
      case Op::subtract: return fmt::format("({}-({}))", a, b);
      case Op::multiply: return fmt::format("(({})*({}))", a, b);
      case Op::floor_div: return fmt::format("(({})//({}))", a, b);
      case Op::modulo: return fmt::format("(({})%({}))", a, b);
      case Op::max: return fmt::format("max({},{})", a, b);
      case Op::min: return fmt::format("min({},{})", a, b);
      case Op::power: return fmt::format("(({})**({}))", a, b);
    }
  }
  if (slope_ == 0) return std::to_string(constant_);
  std::string out = slope_ == 1 ? "B" : fmt::format("{}*B", slope_);
  if (constant_ != 0) out += fmt::format("{:+d}", constant_);
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
    return linear(checked_multiply(other.constant_, factor), checked_multiply(other.slope_, factor));
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
  Expr out;
  out.tree_ = std::make_shared<const Tree>(Tree{op, a, b});
  return out;
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
