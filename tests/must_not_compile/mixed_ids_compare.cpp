// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: no match for|invalid operands|deleted
#include "kerf/base/id.h"

kerf::NodeId node{1};
kerf::ValueId value{1};
bool same = node == kerf::NodeId{2};
#ifdef KERF_MUST_NOT_COMPILE
bool mixed = node == value;
#endif
