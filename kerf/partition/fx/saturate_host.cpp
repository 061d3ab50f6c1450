// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/search.h"

namespace kerf::partition::fx {

void saturate_host(const Request&, Answer&) {}

}  // namespace kerf::partition::fx
