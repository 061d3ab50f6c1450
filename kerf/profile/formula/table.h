// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The formulas by operator. A file for each family of operators adds its own.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "kerf/profile/formula/backward.h"

namespace kerf::formula {

using Forward = std::optional<OpCost> (*)(const Call&);
using BackwardFormula = void (*)(Backward&);

// The gradient is the output's, seen another way: nothing is computed.
void passed_on(Backward& backward);

struct Formula {
  Forward forward = nullptr;
  BackwardFormula backward = nullptr;
  BackwardFormula of_view = passed_on;  // where the output lies in the input's memory
};

class Table {
 public:
  void add(const Formula& formula, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) rows_.emplace(name, formula);
  }
  // By name without namespace, overload and underscore ("add" of "aten.add_.Tensor"); operators of
  // other namespaces in full, since they may use a name for something else. nullptr: not there.
  const Formula* find(std::string_view op) const;

 private:
  std::unordered_map<std::string_view, Formula> rows_;
};

const Table& table();

void add_products(Table& table);
void add_einsum(Table& table);
void add_convolutions(Table& table);
void add_attention(Table& table);
void add_recurrent(Table& table);
void add_fills(Table& table);
void add_copies(Table& table);
void add_views(Table& table);
void add_indexing(Table& table);
void add_pointwise(Table& table);
void add_functions(Table& table);
void add_normalizations(Table& table);
void add_reductions(Table& table);
void add_losses(Table& table);
void add_windows(Table& table);

}  // namespace kerf::formula
