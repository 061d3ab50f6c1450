// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "kerf/profile/profile.h"

namespace kerf {

// What a measured profile has before anything is measured: the bytes that follow from shapes and,
// in training, what operators keep for backward, by the rules (autograd does not say it). `host`:
// the device is one.
Profile measured_sizes(const Graph& graph, const std::string& device_kind, bool host,
                       std::int64_t batch, bool training);

}  // namespace kerf
