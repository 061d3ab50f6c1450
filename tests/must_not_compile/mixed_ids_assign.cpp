// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: no viable|no match for
#include "kerf/base/id.h"

kerf::NodeId node{1};
kerf::ValueId value{1};
void good() { node = kerf::NodeId{2}; }
#ifdef KERF_MUST_NOT_COMPILE
void bad() { node = value; }
#endif
