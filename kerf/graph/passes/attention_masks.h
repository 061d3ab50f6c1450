// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// A call of aten.scaled_dot_product_attention that is given a mask.
struct MaskedAttention {
  NodeId node;
  ValueId mask;
  Expr queries;  // sizes of the scores, which the mask is broadcast to
  Expr keys;
};

// Those whose mask fits their scores and could be left out: no is_causal beside it.
std::vector<MaskedAttention> masked_attentions(const Graph& graph);

enum class MaskKind : std::uint8_t {
  any,
  none,    // lets everything through
  causal,  // query i sees keys 0 to i
};

struct KnownMask {
  NodeId node;  // an attention of masked_attentions()
  MaskKind kind = MaskKind::any;
};

// The graph with these attentions told what their masks are in place of being given them: no mask,
// or is_causal=true. What only made masks is gone.
Graph leave_out_masks(const Graph& graph, const std::vector<KnownMask>& masks);

}  // namespace kerf
