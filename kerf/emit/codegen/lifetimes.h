// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "kerf/emit/codegen/borders.h"
#include "kerf/emit/codegen/stage_names.h"
#include "kerf/graph/graph.h"

namespace kerf::codegen {

// When each variable of a stage is used for the last time, by the position of the node in the
// stage. What a stage gives is used at its end.
class Lifetimes {
 public:
  // `instead`: what is used in place of a node's result in eval mode.
  Lifetimes(const Graph& graph, const Border& border, const StageNames& names,
            const std::map<ValueId, ValueId>& instead);

  // Variables whose last use is at this position, in the order in which they were made.
  const std::vector<ValueId>& ending_at(std::size_t position) const { return ending_[position]; }
  std::size_t made_at(ValueId variable) const { return made_.at(key(variable)); }
  std::size_t last_use(ValueId variable) const { return last_.at(key(variable)); }

 private:
  static std::uint32_t key(ValueId id) { return static_cast<std::uint32_t>(id.index()); }
  void use(ValueId id, std::size_t position, const StageNames& names);

  std::unordered_map<std::uint32_t, std::size_t> made_;  // position + 1; 0: the stage is given it
  std::unordered_map<std::uint32_t, std::size_t> last_;
  std::vector<std::vector<ValueId>> ending_;
};

}  // namespace kerf::codegen
