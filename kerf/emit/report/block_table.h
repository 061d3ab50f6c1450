// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "kerf/profile/profile.h"

namespace kerf {

struct BlockTableOptions {
  std::optional<int> depth;  // of the model's tree; nothing: the blocks that were measured
  // As the model runs, or by a figure, largest first: forward, backward, forward_peak,
  // backward_peak, weights, inputs, outputs.
  std::string sort = {};
};

// What blocks take that were measured one by one: times in ms, each with its spread, and MiB. A
// line with the times of all together ends it. Throws Error(invalid_argument) for a profile that
// has no blocks, a negative depth, and a figure that nobody knows, with the nearest one.
std::string block_table(const Profile& profile, const BlockTableOptions& options = {});

}  // namespace kerf
