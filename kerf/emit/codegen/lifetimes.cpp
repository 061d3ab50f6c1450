// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/lifetimes.h"

#include <algorithm>

namespace kerf::codegen {

Lifetimes::Lifetimes(const Graph& graph, const Border& border, const StageNames& names,
                     const std::map<ValueId, ValueId>& instead)
    : ending_(border.nodes.size()) {
  for (const ValueId id : border.takes) made_[key(id)] = 0;
  for (std::size_t i = 0; i < border.nodes.size(); ++i) {
    for (const ValueId id : graph.inputs_of(border.nodes[i])) use(id, i, names);
    for (const ValueId id : graph.node(border.nodes[i]).outputs) {
      if (!id.valid() || !names.is_local(id)) continue;
      made_.emplace(key(names.variable(id)), i + 1);
      use(id, i, names);
      const auto place = instead.find(id);
      if (place != instead.end()) use(place->second, i, names);
    }
  }
  for (const ValueId id : border.gives) use(id, border.nodes.size(), names);
  for (const auto& [variable, position] : last_) {
    if (position < ending_.size()) ending_[position].emplace_back(variable);
  }
  for (std::vector<ValueId>& variables : ending_) std::sort(variables.begin(), variables.end());
}

void Lifetimes::use(ValueId id, std::size_t position, const StageNames& names) {
  if (names.is_local(id)) last_[key(names.variable(id))] = position;
}

}  // namespace kerf::codegen
