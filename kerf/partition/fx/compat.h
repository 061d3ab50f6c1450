// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The original's modes with their faults. Each throws OriginalError where the original raises.
#pragma once

#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx::compat {

Answer single(const Request& request, std::int64_t total_bytes, std::int64_t device_id);
Answer size(const Request& request);
Answer sparse_nn(const Request& request, std::int64_t capacity);
Answer cost_aware(const Request& request);
Answer kl(const Request& request);
Answer aot(const Request& request);

// Costs and bytes of what the original would not check: a plan that is none gets no figures.
void add_figures(const Request& request, Answer& answer);

}  // namespace kerf::partition::fx::compat
