// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/spans/span_profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/device/kind.h"
#include "kerf/profile/estimate.h"
#include "kerf/simulate/spans/span_backward.h"
#include "kerf/simulate/spans/span_storages.h"

namespace kerf {
namespace {

void check_spans(const Graph& graph, const std::vector<Span>& spans) {
  std::size_t next = 0;
  for (const Span& span : spans) {
    if (span.first.index() != next || span.last.index() < next) {
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("[simulate.spans] span '{}' starts at node {}; expected {}: spans "
                              "that follow each other; give those of this graph",
                              span.name, span.first.index(), next));
    }
    next = span.last.index();
  }
  if (next != graph.num_nodes()) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[simulate.spans] spans of {} nodes for a graph of {}; expected one "
                            "for every node; give those of this graph",
                            next, graph.num_nodes()));
  }
}

class Adder {
 public:
  Adder(const Graph& graph, std::vector<Span> spans, const SpanSettings& settings)
      : graph_(graph),
        settings_(settings),
        is_host_(device_kind(settings.kind).host),
        costs_(estimate_as_traced(graph, device_kind(settings.kind), 0, /*training=*/true)) {
    out_.device_kind = settings.kind;
    out_.spans = std::move(spans);
    out_.costs.resize(out_.spans.size());
  }

  SpanProfile run() {
    for (const auto& [n, flops] : settings_.given_nodes) {
      costs_.nodes.at(n).flops = flops.forward;
      costs_.nodes.at(n).backward_flops = flops.backward;
    }
    for (std::size_t i = 0; i < out_.spans.size(); ++i) add_computed(i);
    list_unknown();
    add_sets();
    return std::move(out_);
  }

 private:
  void add_computed(std::size_t i) {
    SpanCost& cost = out_.costs[i];
    for (std::size_t n = out_.spans[i].first.index(); n < out_.spans[i].last.index(); ++n) {
      const NodeCost& node = costs_.nodes[n];
      cost.fwd_flop += node.flops;
      cost.fwd_mac += node.macs;
      cost.bwd_flop += node.backward_flops;
      cost.bwd_mac += node.backward_macs;
      cost.fwd_time += node.forward;
      cost.bwd_time += node.backward;
    }
    if (const auto rule = settings_.given.find(i); rule != settings_.given.end()) {
      cost.fwd_flop = rule->second.forward;
      cost.bwd_flop = rule->second.backward;
    }
    out_.totals.fwd_flop += cost.fwd_flop;
    out_.totals.fwd_mac += cost.fwd_mac;
    out_.totals.bwd_flop += cost.bwd_flop;
    out_.totals.bwd_mac += cost.bwd_mac;
  }

  // Views need no formula: the estimate gives them no time.
  bool is_unknown(std::size_t n) const {
    if (costs_.unknown_ops.empty() || costs_.nodes[n].forward.count <= 0) return false;
    if (settings_.given_nodes.contains(n)) return false;
    const std::string& op = graph_.nodes()[n].op;
    return std::any_of(costs_.unknown_ops.begin(), costs_.unknown_ops.end(),
                       [&](const UnknownOp& unknown) { return unknown.op == op; });
  }

  void list_unknown() {
    std::map<std::string, UnknownOp> found;
    for (std::size_t i = 0; i < out_.spans.size(); ++i) {
      if (settings_.given.contains(i)) continue;
      for (std::size_t n = out_.spans[i].first.index(); n < out_.spans[i].last.index(); ++n) {
        if (!is_unknown(n)) continue;
        out_.costs[i].known = false;
        UnknownOp& entry = found[graph_.nodes()[n].op];
        ++entry.count;
      }
    }
    for (auto& [op, entry] : found) {
      entry.op = op;
      entry.share = static_cast<double>(entry.count) / static_cast<double>(graph_.num_nodes());
      out_.unknown_ops.push_back(entry);
    }
    std::stable_sort(out_.unknown_ops.begin(), out_.unknown_ops.end(),
                     [](const UnknownOp& a, const UnknownOp& b) { return a.share > b.share; });
  }

  void add_sets() {
    const std::vector<RegionNumber> none(graph_.num_nodes(), kNoRegion);
    std::vector<RegionNumber> regions = settings_.regions;
    if (regions.empty()) regions = traced_regions(graph_);
    const SavedSets alone = find_saved(graph_, 0, !is_host_, none);
    out_.ops_without_rule = alone.ops_without_rule;
    add_alone(alone);
    if (regions == none) return add_together(alone);
    add_together(find_saved(graph_, 0, !is_host_, regions));
  }

  void add_together(const SavedSets& sets) {
    const SpanStorages storages(graph_, out_.spans, sets);
    Bytes accumulated;
    for (std::size_t i = 0; i < out_.spans.size(); ++i) {
      SpanCost& cost = out_.costs[i];
      accumulated += storages.added(i);
      cost.accumulate = accumulated;
      for (const StorageId output : storages.made_outputs(i)) {
        const Bytes bytes = storages.bytes(output);
        if (!storages.is_kept(output)) cost.temp += bytes;
        if (storages.is_kept(output) && !storages.is_kept_by(output, i)) cost.output += bytes;
      }
      cost.param = storages.weight_bytes(i, /*parameters=*/true);
      cost.buffer = storages.weight_bytes(i, /*parameters=*/false);
      cost.backward = storages.input_bytes(i);
    }
    out_.totals.saved = accumulated;
    out_.totals.param = storages.all_weight_bytes(/*parameters=*/true);
    out_.totals.buffer = storages.all_weight_bytes(/*parameters=*/false);
  }

  void add_alone(const SavedSets& sets) {
    const SpanStorages storages(graph_, out_.spans, sets);
    SpanBackward backward(graph_, sets, !is_host_);
    for (std::size_t i = 0; i < out_.spans.size(); ++i) {
      SpanCost& cost = out_.costs[i];
      const SpanStorages::Kept kept = storages.kept_by(i);
      cost.fwd_in = kept.inputs;
      cost.fwd_tmp = kept.inside;
      for (const StorageId output : storages.made_outputs(i)) {
        if (storages.is_kept(output)) cost.fwd_out += storages.bytes(output);
      }
      const SpanGradients gradients = backward.run(out_.spans[i]);
      cost.bwd_tmp = gradients.inside;
      cost.bwd_out = gradients.leaving;
    }
  }

  const Graph& graph_;
  const SpanSettings& settings_;
  bool is_host_;
  Profile costs_;
  SpanProfile out_;
};

}  // namespace

SpanProfile profile_spans(const Graph& graph, std::vector<Span> spans,
                          const SpanSettings& settings) {
  check_spans(graph, spans);
  return Adder(graph, std::move(spans), settings).run();
}

}  // namespace kerf
