// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The ways to split that people know by name, each from an Instance to a split.
#pragma once

#include <string_view>
#include <vector>

#include "kerf/place/load_search.h"

namespace kerf::place {

// mixed_pipe, multilevel, acyclic, metis, pipedream, binpack2d.
std::vector<std::string_view> family_names();
bool is_family(std::string_view name);
// Whether it may give a device several stages.
bool family_mixes(std::string_view name);

// Throws Error(invalid_argument) where options that only some methods know are given to others, or
// make no sense.
void check_family_options(std::string_view method, const LoadOptions& options);

// An answer without devices: it found nothing that fits. With `options.mixed` off every device gets
// one stage; acyclic, multilevel and pipedream give it no more anyway, but for units that only the
// CPU can run. Throws Error(missing_backend) for metis where Kerf was built without it.
LoadAnswer plan_family(std::string_view name, const Instance& instance, const LoadOptions& options);

}  // namespace kerf::place
