// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/arguments.h"

#include <algorithm>

namespace kerf {

const Argument* find_argument(const Node& node, std::size_t position, std::string_view name) {
  for (std::size_t i = 0; i < node.args.size(); ++i) {
    const NamedArgument& argument = node.args[i];
    if (argument.name.empty() ? i == position : argument.name == name) return &argument.value;
  }
  return nullptr;
}

const ValueId* find_tensor(const Node& node, std::size_t position, std::string_view name) {
  const Argument* const given = find_argument(node, position, name);
  return given == nullptr ? nullptr : given->find<ValueId>();
}

bool depends_on_batch(const Argument& argument) {
  if (const auto* size = argument.find<Expr>()) return !size->is_constant();
  if (const auto* list = argument.find<Argument::List>()) {
    return std::any_of(list->begin(), list->end(),
                       [](const Argument& item) { return depends_on_batch(item); });
  }
  return false;
}

}  // namespace kerf
