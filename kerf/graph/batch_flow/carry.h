// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The one piece of reasoning that nearly all rules share: an operator treats some dimensions of an
// operand one index at a time, all indices alike, and carries them to its result; over others it
// runs (it adds them up, sorts them, slides a window along them). A batch in a dimension that is
// carried stays a batch; a batch that is run over is mixed.
#pragma once

#include <string_view>
#include <vector>

#include "kerf/graph/batch_flow/call.h"

namespace kerf {

inline constexpr int kRunOver = -1;
inline constexpr int kNotFollowed = -2;  // the rule says nothing about this dimension
inline constexpr std::string_view kRunsOverSamples =
    "runs over the dimension that holds the samples";

// Where the dimensions of an operand go: to[d] is a dimension of the result, kRunOver or
// kNotFollowed.
struct Operand {
  ValueId value;
  std::vector<int> to;
};

enum class Moves : bool { no, yes };  // are elements only copied, their numbers kept?

// The state of `result`. Operands broadcast: one that is not batched must have size 1 where the
// batch goes. The result's shape is held against the outcome, so that a rule that carries a
// dimension to the wrong place gives "unknown" where shapes can tell.
BatchState carry(const Call& call, const std::vector<Operand>& operands, ValueId result,
                 Moves moves = Moves::no);

// The same of a result that no tensor holds, since the operator reduces it at once.
BatchState joined(const Call& call, const std::vector<Operand>& operands, Moves moves = Moves::no);

// Mixed before unknown, else nothing: what operands that are lost make of a result.
const BatchState* first_lost(const Call& call, const std::vector<ValueId>& values);

// Is this state possible for a value of this shape? If not, "unknown".
BatchState held_to_shape(const Call& call, ValueId result, BatchState state);

// Puts the rows of two values of one dimension together, which must be laid out alike.
// Nothing when they are not.
std::optional<BatchState> same_layout(const BatchState& a, const BatchState& b);

// to[d] = d for all dimensions of a tensor.
std::vector<int> straight(int rank);
// Aligned at the last dimension of a result of `result_rank`, as broadcasting does.
std::vector<int> aligned(int rank, int result_rank);

}  // namespace kerf
