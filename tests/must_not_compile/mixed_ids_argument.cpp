// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: could not convert|cannot convert|no viable conversion|no matching
#include "kerf/base/id.h"

kerf::NodeId node{1};
void visit(kerf::ValueId);
void good() { visit(kerf::ValueId{1}); }
#ifdef KERF_MUST_NOT_COMPILE
void bad() { visit(node); }
#endif
