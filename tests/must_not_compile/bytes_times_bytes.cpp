// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: no match for|invalid operands
#include "kerf/base/id.h"
#include "kerf/base/units.h"

kerf::NodeId node{1};
auto good = kerf::Bytes{1} * 2;
#ifdef KERF_MUST_NOT_COMPILE
auto bad = kerf::Bytes{1} * kerf::Bytes{2};
#endif
