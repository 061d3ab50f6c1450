// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace kerf {

// Calls `work` on a thread of its own. The caller polls meanwhile; what its poll throws ends the
// work where that polls, and is thrown here.
void run_on_own_thread(const std::function<void()>& work);

}  // namespace kerf
