// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/operator.h"

#include "kerf/graph/arguments.h"

namespace kerf {

std::string_view packet_of(std::string_view op) { return op.substr(0, op.rfind('.')); }

const Argument* find_given(const Operator& op, const Node& call, std::string_view parameter) {
  for (std::size_t i = 0; i < op.parameters.size(); ++i) {
    if (op.parameters[i].name == parameter) return find_argument(call, i, parameter);
  }
  return nullptr;
}

const Argument* find_bound(const Operator& op, const Node& call, std::string_view parameter) {
  for (std::size_t i = 0; i < op.parameters.size(); ++i) {
    const Parameter& known = op.parameters[i];
    if (known.name != parameter) continue;
    if (const Argument* const given = find_argument(call, i, parameter)) return given;
    return known.preset ? &*known.preset : nullptr;
  }
  return nullptr;
}

}  // namespace kerf
