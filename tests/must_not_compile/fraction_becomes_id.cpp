// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: no matching|no viable
#include "kerf/base/id.h"

kerf::NodeId node{1};
kerf::NodeId good(3);
#ifdef KERF_MUST_NOT_COMPILE
kerf::NodeId bad(3.7);
#endif
