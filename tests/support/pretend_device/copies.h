// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pretend {

// Every copy that touches a pretend device takes this much longer, on its stream.
void set_copy_delay(double seconds);

}  // namespace pretend
