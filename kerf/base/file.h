// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace kerf {

// The whole file, a text. Throws Error(io) naming the path and the system's reason. Limits hold
// while it is read: a zero byte, more than 2 GiB, or more than 256 MiB from a device or a pipe are
// refused when they are met.
std::string read_file(const std::string& path);

// Writes to a temporary name in the same folder, then renames: readers see the old file or the new
// one, never half of one, and a failure leaves the old one alone. Links are followed; devices and
// pipes are written to as they are. Throws Error(io).
void write_file(const std::string& path, std::string_view content);

// Throws Error(io) when there is a file of that name, unless it may be overwritten, and when there
// is no folder for it: for callers with work to do before they write.
void check_writable(const std::string& path, bool overwrite);

}  // namespace kerf
