// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the spans of a graph (the nodes of an FX graph) compute and keep: the tables of profile/,
// added up as a user reads them. Bytes are those of storages: views of one tensor count once.
//
//   const SpanProfile profile = profile_spans(graph, spans, {.kind = "cuda"});
//   profile.costs[i].accumulate;   // bytes that backward needs, once span i has run
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/graph/span.h"
#include "kerf/profile/profile.h"
#include "kerf/profile/saved/saved.h"

namespace kerf {

struct SpanCost {
  // Computed; a multiply-add is two flops. Backward: of the gradients that autograd asks for.
  double fwd_flop = 0;
  double fwd_mac = 0;
  double bwd_flop = 0;
  double bwd_mac = 0;
  Nanoseconds fwd_time;  // estimated, on the profile's kind of device
  Nanoseconds bwd_time;
  bool known = true;  // else an operator of it has no formula: its flops are not counted

  // The set view: S is all that backward will need once forward has ended, weights left out.
  Bytes accumulate;  // of S, made by this span or before
  Bytes output;      // outputs made here that are in S because of a later span
  Bytes temp;        // outputs made here that nobody keeps
  Bytes param;       // parameters it holds or was given
  Bytes buffer;
  Bytes backward;  // floating inputs: at most what their gradients take

  // The view of one span by itself, as if nothing were computed again: what checkpoint solvers
  // read.
  Bytes fwd_in;   // inputs that it keeps for its backward
  Bytes fwd_tmp;  // made inside and kept, no output
  Bytes fwd_out;  // outputs made here that it or a later span keeps
  Bytes bwd_tmp;  // gradients inside, at most, less what it kept and has given up by then
  Bytes bwd_out;  // gradients that leave it, those of weights included
  friend bool operator==(const SpanCost&, const SpanCost&) = default;
};

// What a user's rule says of a span.
struct GivenFlops {
  double forward = 0;
  double backward = 0;
};

struct SpanSettings {
  std::string kind = "cuda";               // of device, which need not be present
  std::vector<RegionNumber> regions = {};  // by node; empty: what the model's code checkpoints
  std::map<std::size_t, GivenFlops> given = {};        // by span
  std::map<std::size_t, GivenFlops> given_nodes = {};  // by node, where its span has none
};

struct SpanTotals {
  double fwd_flop = 0;
  double fwd_mac = 0;
  double bwd_flop = 0;
  double bwd_mac = 0;
  Bytes saved;  // distinct; the graph's inputs included
  Bytes param;  // distinct
  Bytes buffer;
  friend bool operator==(const SpanTotals&, const SpanTotals&) = default;
};

struct SpanProfile {
  std::string device_kind;
  std::vector<Span> spans;
  std::vector<SpanCost> costs;  // by span
  SpanTotals totals;
  std::vector<UnknownOp> unknown_ops;         // no formula and no rule; share of all nodes
  std::vector<std::string> ops_without_rule;  // of the saved sets
};

// Linear time, about a microsecond a node. Throws Error(invalid_argument) for spans that are not
// those of the graph, and for a kind of device that nobody knows.
SpanProfile profile_spans(const Graph& graph, std::vector<Span> spans,
                          const SpanSettings& settings = {});

}  // namespace kerf
