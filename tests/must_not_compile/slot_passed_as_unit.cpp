// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: cannot convert|no viable conversion|could not convert
#include "kerf/place/instance.h"

kerf::place::Instance instance;
double good(kerf::UnitId unit, kerf::SlotId slot) { return instance.time(unit, slot); }
#ifdef KERF_MUST_NOT_COMPILE
double swapped(kerf::UnitId unit, kerf::SlotId slot) { return instance.time(slot, unit); }
#endif
