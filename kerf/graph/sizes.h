// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "kerf/graph/expr.h"

namespace kerf {

// A shape, or strides. Never changed, so copies share one list: a model of a million values has a
// few dozen shapes. Reads like a vector; to change one, make another.
class Sizes {
 public:
  Sizes() = default;
  Sizes(std::vector<Expr> sizes) {  // NOLINT: a list of sizes is Sizes
    if (!sizes.empty()) list_ = std::make_shared<const std::vector<Expr>>(std::move(sizes));
  }
  Sizes(std::initializer_list<Expr> sizes) : Sizes(std::vector<Expr>(sizes)) {}

  const std::vector<Expr>& list() const {
    static const std::vector<Expr> kNone;
    return list_ ? *list_ : kNone;
  }
  operator const std::vector<Expr>&() const { return list(); }  // NOLINT: reads like a vector

  bool empty() const { return list_ == nullptr; }
  std::size_t size() const { return list_ ? list_->size() : 0; }
  const Expr& operator[](std::size_t i) const { return (*list_)[i]; }
  auto begin() const { return list().begin(); }
  auto end() const { return list().end(); }

  friend bool operator==(const Sizes& a, const Sizes& b) {
    return a.list_ == b.list_ || a.list() == b.list();
  }

 private:
  std::shared_ptr<const std::vector<Expr>> list_;  // none: empty
};

}  // namespace kerf
