// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: cannot convert|no viable conversion|could not convert
#include "kerf/place/instance.h"

kerf::place::Instance instance;
kerf::place::Unit good = instance.unit(kerf::UnitId{3});
#ifdef KERF_MUST_NOT_COMPILE
kerf::place::Unit bad = instance.unit(3);
#endif
