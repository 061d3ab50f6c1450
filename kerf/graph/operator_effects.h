// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What operators do to memory and to the random stream. Schemas say most of it; what they leave out
// stands in operator_effects.cpp, once, for kerf.trace and kerf.fx alike.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kerf/graph/operator.h"

namespace kerf {

// Parameters that a call changes when `flag` is set, though the schema calls them read-only.
struct HiddenWrites {
  std::string_view flag;
  std::span<const std::string_view> parameters;
};
// By packet: "aten.batch_norm". nullptr for operators that change what they say and no more.
const HiddenWrites* find_hidden_writes(std::string_view packet);

// Arguments whose memory a result may lie in, though the schema promises new memory.
enum class HiddenSharing : std::uint8_t { none, first, any };
HiddenSharing hidden_sharing(std::string_view packet);

// Values that this call changes, and values whose memory its results may lie in by the schema.
std::vector<ValueId> written_values(const Operator& op, const Node& call);
std::vector<ValueId> aliased_values(const Operator& op, const Node& call);

// Does this call take numbers from the random stream? Not where its arguments leave it nothing to
// draw: evaluation, or a probability of zero.
bool draws_numbers(const Operator& op, const Node& call);

// A dropout that drops nothing: its result is its first argument.
bool gives_back_first(const Operator& op, const Node& call);
// May it depend on strides whether this call, which may share memory, gives a copy?
bool may_copy_on_some_strides(const Node& call);
// Does its result lie in memory row by row, or in another fixed order, whatever the strides of its
// arguments?
bool lays_out_by_rows(const Node& call);
// Is a result with the form and the place of the first argument that argument itself, for every
// batch and on every device?
bool may_give_back_first(const Operator& op, const Node& call);

}  // namespace kerf
