// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// Compiles: the flags and include paths the other cases are tried with are right.
#include "kerf/base/id.h"
#include "kerf/base/json.h"
#include "kerf/base/units.h"
#include "kerf/graph/graph.h"

static_assert(kerf::NodeId{3}.index() == 3);
static_assert(!kerf::ValueId{}.valid());
static_assert(kerf::Bytes{1} + kerf::Bytes{2} == kerf::Bytes{3});
static_assert(kerf::Nanoseconds{3} / 2 == kerf::Nanoseconds{1.5});
