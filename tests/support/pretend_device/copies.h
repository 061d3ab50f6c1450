// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pretend {

// Every copy that touches a pretend device takes this much longer, on its stream.
void set_copy_delay(double seconds);
// While held, no copy that touches a pretend device finishes.
void hold_copies(bool hold);

}  // namespace pretend
