// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/formula/table.h"

namespace kerf::formula {
namespace {

std::string_view base_name(std::string_view op) {
  if (const std::size_t dot = op.find('.'); dot != std::string_view::npos)
    op.remove_prefix(dot + 1);
  op = op.substr(0, op.find('.'));
  const bool dunder = op.size() > 4 && op.ends_with("__");
  if (op.ends_with('_') && !dunder) op.remove_suffix(1);
  return op;
}

}  // namespace

void passed_on(Backward&) {}

const Formula* Table::find(std::string_view op) const {
  const auto found = rows_.find(op.starts_with("aten.") ? base_name(op) : op);
  return found == rows_.end() ? nullptr : &found->second;
}

const Table& table() {
  static const Table all = [] {
    Table made;
    for (const auto add :
         {add_products, add_einsum, add_convolutions, add_attention, add_recurrent, add_fills,
          add_copies, add_views, add_indexing, add_pointwise, add_functions, add_normalizations,
          add_reductions, add_losses, add_windows}) {
      add(made);
    }
    return made;
  }();
  return all;
}

}  // namespace kerf::formula
