// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Graphs are traced on a host, whose attention kernel lays its result out as the queries lie. The
// fused kernels of an accelerator always write it by query, then head (PyTorch 2.11 to 2.13:
// attention.cu makes `res` as {batch, queries, heads, width} and gives its transpose), and the
// plain one by head, then query, as products of matrices do. So what a graph has as a view of the
// result may be a copy there, and the other way round. Private to profile/saved.
#pragma once

#include "kerf/profile/saved/saved_call.h"

namespace kerf {

// Does one kernel compute this call of scaled_dot_product_attention? Defined with its rule.
bool is_fused_attention(const SavedCall& attention);

// Is it a view of attention's result in the graph, and a copy of it on an accelerator?
bool is_copied_from_attention(const SavedCall& call, ValueId value);

// The result of attention as the accelerator's memory holds it: the call's own, or what the graph
// has as a copy of it in the order that the accelerator wrote it in anyway.
ValueId result_as_written(const SavedCall& attention);

}  // namespace kerf
