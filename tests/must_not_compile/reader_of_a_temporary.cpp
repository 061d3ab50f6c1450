// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: deleted
#include "kerf/base/id.h"
#include "kerf/base/json.h"

kerf::NodeId node{1};
const kerf::JsonDocument document = kerf::parse_json("{}", "a", kerf::ErrorKind::io);
kerf::JsonReader good(document);
#ifdef KERF_MUST_NOT_COMPILE
kerf::JsonReader bad(kerf::parse_json("{}", "a", kerf::ErrorKind::io));
#endif
