// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
// expect-error: could not convert|cannot convert|no viable conversion|no matching
#include "kerf/base/id.h"
#include "kerf/graph/graph.h"

kerf::NodeId node{1};
const kerf::Node& good(const kerf::Graph& graph) { return graph.node(node); }
#ifdef KERF_MUST_NOT_COMPILE
const kerf::Node& bad(const kerf::Graph& graph) { return graph.node(kerf::ValueId{1}); }
#endif
