// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <pybind11/stl.h>

#include "kerf/emit/report/span_table.h"
#include "kerf/plan/recompute.h"
#include "kerf/simulate/spans/span_profile.h"
#include "python/src/module.h"
#include "python/src/recompute.h"

namespace kerf::bindings {
namespace {

using Flops = std::map<std::size_t, std::pair<double, double>>;

std::map<std::size_t, GivenFlops> to_given(const Flops& flops) {
  std::map<std::size_t, GivenFlops> out;
  for (const auto& [place, pair] : flops) out[place] = {pair.first, pair.second};
  return out;
}

SpanProfile profile(const Graph& graph, std::vector<Span> spans, const std::string& kind,
                    const Recompute& recompute, const Flops& given, const Flops& given_nodes) {
  SpanSettings settings;
  settings.kind = kind;
  settings.regions = recompute_regions(graph, chosen_blocks(graph, to_choice(recompute)));
  settings.given = to_given(given);
  settings.given_nodes = to_given(given_nodes);
  return profile_spans(graph, std::move(spans), settings);
}

template <Bytes SpanCost::*Field>
std::int64_t bytes_field(const SpanCost& cost) {
  return (cost.*Field).count;
}

void init_costs(py::module_& m) {
  py::class_<SpanCost>(m, "SpanCost", "What one node of an FX graph computes and keeps.")
      .def_readonly("fwd_flop", &SpanCost::fwd_flop)
      .def_readonly("fwd_mac", &SpanCost::fwd_mac)
      .def_readonly("bwd_flop", &SpanCost::bwd_flop)
      .def_readonly("bwd_mac", &SpanCost::bwd_mac)
      .def_property_readonly("fwd_time", [](const SpanCost& c) { return seconds(c.fwd_time); })
      .def_property_readonly("bwd_time", [](const SpanCost& c) { return seconds(c.bwd_time); })
      .def_readonly("known", &SpanCost::known)
      .def_property_readonly("accumulate_size", &bytes_field<&SpanCost::accumulate>)
      .def_property_readonly("output_size", &bytes_field<&SpanCost::output>)
      .def_property_readonly("temp_size", &bytes_field<&SpanCost::temp>)
      .def_property_readonly("param_size", &bytes_field<&SpanCost::param>)
      .def_property_readonly("buffer_size", &bytes_field<&SpanCost::buffer>)
      .def_property_readonly("backward_size", &bytes_field<&SpanCost::backward>)
      .def_property_readonly("fwd_in", &bytes_field<&SpanCost::fwd_in>)
      .def_property_readonly("fwd_tmp", &bytes_field<&SpanCost::fwd_tmp>)
      .def_property_readonly("fwd_out", &bytes_field<&SpanCost::fwd_out>)
      .def_property_readonly("bwd_tmp", &bytes_field<&SpanCost::bwd_tmp>)
      .def_property_readonly("bwd_out", &bytes_field<&SpanCost::bwd_out>);
}

py::dict totals(const SpanProfile& profile) {
  const SpanTotals& sum = profile.totals;
  py::dict out;
  out["saved"] = sum.saved.count;
  out["param"] = sum.param.count;
  out["buffer"] = sum.buffer.count;
  out["fwd_flop"] = sum.fwd_flop;
  out["fwd_mac"] = sum.fwd_mac;
  out["bwd_flop"] = sum.bwd_flop;
  out["bwd_mac"] = sum.bwd_mac;
  return out;
}

py::list unknown_ops(const SpanProfile& profile) {
  py::list out;
  for (const UnknownOp& op : profile.unknown_ops) {
    out.append(py::make_tuple(op.op, op.count, op.share));
  }
  return out;
}

}  // namespace

void init_symbolic(py::module_& m) {
  py::class_<Span>(m, "Span", "A node of an FX graph: a run of nodes of a kerf.Graph.")
      .def_readonly("name", &Span::name)
      .def_readonly("kind", &Span::kind)
      .def_readonly("target", &Span::target)
      .def_property_readonly("first", [](const Span& s) { return s.first.index(); })
      .def_property_readonly("last", [](const Span& s) { return s.last.index(); });
  init_costs(m);
  py::class_<SpanProfile>(m, "SpanProfile", "What the nodes of an FX graph compute and keep.")
      .def("__len__", [](const SpanProfile& p) { return p.spans.size(); })
      .def_readonly("spans", &SpanProfile::spans)
      .def_readonly("costs", &SpanProfile::costs)
      .def_readonly("device_kind", &SpanProfile::device_kind)
      .def_property_readonly("totals", &totals)
      .def_property_readonly("unknown_ops", &unknown_ops,
                             "(operator, calls, share of all calls) of those without a formula.")
      .def_readonly("ops_without_rule", &SpanProfile::ops_without_rule,
                    "Operators of which no rule says exactly what they keep for backward.")
      .def(
          "text",
          [](const SpanProfile& p, const std::string& sort, std::size_t limit) {
            return span_table(p, {sort, limit});
          },
          py::arg("sort") = "", py::arg("limit") = 0)
      .def(
          "html",
          [](const SpanProfile& p, const std::string& sort, std::size_t limit) {
            return span_table_html(p, {sort, limit});
          },
          py::arg("sort") = "", py::arg("limit") = 0)
      .def("json", &span_table_json);
  m.def("profile_spans", &profile, py::arg("graph"), py::arg("spans"),
        py::arg("device_kind") = "cuda", py::arg("recompute") = Recompute("as_traced"),
        py::arg("given") = Flops{}, py::arg("given_nodes") = Flops{});
}

}  // namespace kerf::bindings
