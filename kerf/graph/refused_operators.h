// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kerf {

// Graphs come from files, and files are data: why no graph may call the operator of that name
// ("aten.from_file.default"); empty when it may, as far as the name says.
std::string why_name_refused(std::string_view op);

}  // namespace kerf
