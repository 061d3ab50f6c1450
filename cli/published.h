// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/place/portfolio/load_request.h"

namespace kerf::cli {

// `kerf plan --from FORMAT`: plans the problem in a file and prints the split; what the program
// returns. `out`: a file for it, or nothing.
int plan_published(const std::string& path, const place::LoadRequest& request, bool json,
                   const std::string& out);

}  // namespace kerf::cli
