// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: deleted
#include "kerf/base/id.h"
#include "kerf/base/json.h"

kerf::NodeId node{1};
const kerf::Json json;
kerf::JsonReader good(json, "a", kerf::ErrorKind::io);
#ifdef KERF_MUST_NOT_COMPILE
kerf::JsonReader bad(kerf::Json{}, "a", kerf::ErrorKind::io);
#endif
