// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: cannot convert|no viable conversion
#include "kerf/base/id.h"

kerf::NodeId node{1};
int good = static_cast<int>(node.index());
#ifdef KERF_MUST_NOT_COMPILE
int bad = node;
#endif
