// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kerf {

// An integer that may depend on the batch size B. Nearly all sizes are constants or linear in B and
// are kept inline; anything else (B*B, B//2, max(B, 4)) is a small shared tree.
//
//   Expr rows = Expr::parse("12*B + 1");  rows.eval(4) == 49;  rows.str() == "12*B+1";
//
// Division and remainder round towards minus infinity, as in Python. Arithmetic that would overflow
// 64 bits, and a tree of more operations than any model's size needs, throw Error(invalid_graph).
class Expr {
 public:
  Expr(std::int64_t constant = 0) : constant_(constant) {}  // NOLINT: numbers are expressions
  static Expr batch() { return linear(0, 1); }
  static Expr linear(std::int64_t constant, std::int64_t slope);

  // Grammar: + - * // % ** and parentheses, max(a, b), min(a, b), B, whole numbers. Throws
  // Error(invalid_graph) with the column.
  static Expr parse(std::string_view text);

  bool is_constant() const { return tree_ == nullptr && slope_ == 0; }
  std::int64_t constant() const;  // throws unless is_constant()
  std::int64_t eval(std::int64_t batch) const;
  std::string str() const;  // canonical: parses back to an equal expression

  friend Expr operator+(const Expr& a, const Expr& b);
  friend Expr operator-(const Expr& a, const Expr& b);
  friend Expr operator*(const Expr& a, const Expr& b);
  friend Expr floor_div(const Expr& a, const Expr& b);
  friend Expr modulo(const Expr& a, const Expr& b);
  friend Expr max(const Expr& a, const Expr& b);
  friend Expr min(const Expr& a, const Expr& b);
  friend Expr power(const Expr& a, const Expr& b);
  friend bool operator==(const Expr& a, const Expr& b);

  enum class Op : std::uint8_t { add, subtract, multiply, floor_div, modulo, max, min, power };

 private:
  struct Tree;
  static Expr binary(Op op, const Expr& a, const Expr& b);
  static Expr tree(Op op, const Expr& a, const Expr& b);
  std::string operand() const;

  std::int64_t constant_ = 0;
  std::int64_t slope_ = 0;
  std::shared_ptr<const Tree> tree_;  // set: the linear part is unused
};

}  // namespace kerf
