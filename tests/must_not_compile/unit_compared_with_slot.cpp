// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: deleted
#include "kerf/base/id.h"

kerf::UnitId unit{1};
kerf::SlotId slot{1};
bool third = unit == 3;  // ids that index arrays read as numbers
#ifdef KERF_MUST_NOT_COMPILE
bool mixed = unit == slot;
#endif
