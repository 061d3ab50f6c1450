// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/span_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "kerf/base/error.h"
#include "kerf/base/nearest_name.h"
#include "kerf/emit/report/text_table.h"

namespace kerf {
namespace {

std::string flops_text(double flops) {
  static constexpr std::array<const char*, 6> kNames{"FLOP",  "kFLOP", "MFLOP",
                                                     "GFLOP", "TFLOP", "PFLOP"};
  std::size_t unit = 0;
  while (flops >= 999.5 && unit + 1 < kNames.size()) flops /= 1000, ++unit;
  return fmt::format("{:.4g} {}", flops, kNames[unit]);
}

std::string share_text(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "";
}

// A span beside the one before it, which says how much the two differ.
struct SpanRow {
  const Span* span;
  const SpanCost* cost;
  Bytes incremental;
};

std::vector<SpanRow> rows_of(const SpanProfile& profile) {
  std::vector<SpanRow> rows;
  Bytes before;
  for (std::size_t i = 0; i < profile.spans.size(); ++i) {
    const SpanCost& cost = profile.costs[i];
    rows.push_back({&profile.spans[i], &cost, cost.accumulate - before});
    before = cost.accumulate;
  }
  return rows;
}

struct SpanColumn {
  const char* name;
  double (*figure)(const SpanRow& row);
};

double count_of(Bytes bytes) { return static_cast<double>(bytes.count); }

constexpr SpanColumn kSpanColumns[] = {
    {"accumulate", [](const SpanRow& row) { return count_of(row.cost->accumulate); }},
    {"incremental", [](const SpanRow& row) { return count_of(row.incremental); }},
    {"output", [](const SpanRow& row) { return count_of(row.cost->output); }},
    {"temp", [](const SpanRow& row) { return count_of(row.cost->temp); }},
    {"param", [](const SpanRow& row) { return count_of(row.cost->param); }},
    {"backward", [](const SpanRow& row) { return count_of(row.cost->backward); }},
    {"fwd_flop", [](const SpanRow& row) { return row.cost->fwd_flop; }},
    {"bwd_flop", [](const SpanRow& row) { return row.cost->bwd_flop; }},
};

void sort_rows(std::vector<SpanRow>& rows, const std::string& by) {
  if (by.empty()) return;
  for (const SpanColumn& column : kSpanColumns) {
    if (by != column.name) continue;
    std::stable_sort(rows.begin(), rows.end(), [&](const SpanRow& a, const SpanRow& b) {
      return column.figure(a) > column.figure(b);
    });
    return;
  }
  std::vector<std::string> names;
  for (const SpanColumn& column : kSpanColumns) names.emplace_back(column.name);
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[symbolic.table] sort is '{}'; expected one of {}{}", by,
                          fmt::join(names, ", "), nearest_name_hint(by, names)));
}

using TableRows = std::vector<std::vector<std::string>>;

const std::vector<std::string>& titles() {
  static const std::vector<std::string> kTitles = {"op",     "name",  "accumulate", "incremental",
                                                   "output", "temp",  "param",      "backward",
                                                   "fwd",    "share", "bwd",        "share"};
  return kTitles;
}

std::vector<std::string> cells_of(const SpanRow& row, const SpanTotals& totals) {
  const SpanCost& cost = *row.cost;
  const char* const mark = cost.known ? "" : " + ?";
  return {row.span->kind,
          row.span->name,
          to_string(cost.accumulate),
          to_string(row.incremental),
          to_string(cost.output),
          to_string(cost.temp),
          to_string(cost.param),
          to_string(cost.backward),
          flops_text(cost.fwd_flop) + mark,
          share_text(cost.fwd_flop, totals.fwd_flop),
          flops_text(cost.bwd_flop) + mark,
          share_text(cost.bwd_flop, totals.bwd_flop)};
}

TableRows table_rows(const SpanProfile& profile, const SpanTableOptions& options) {
  std::vector<SpanRow> rows = rows_of(profile);
  sort_rows(rows, options.sort);
  if (options.limit > 0) rows.resize(std::min(rows.size(), options.limit));
  TableRows out;
  for (const SpanRow& row : rows) out.push_back(cells_of(row, profile.totals));
  const SpanTotals& totals = profile.totals;
  Bytes output;
  Bytes temp;
  for (const SpanCost& cost : profile.costs) output += cost.output, temp += cost.temp;
  out.push_back({"total", fmt::format("{} nodes", profile.spans.size()), to_string(totals.saved),
                 "", to_string(output), to_string(temp), to_string(totals.param), "",
                 flops_text(totals.fwd_flop), share_text(1, 1), flops_text(totals.bwd_flop),
                 share_text(1, 1)});
  return out;
}

std::string unknown_text(const SpanProfile& profile) {
  if (profile.unknown_ops.empty()) return "";
  std::vector<std::string> parts;
  for (const UnknownOp& op : profile.unknown_ops) {
    parts.push_back(fmt::format("{} ({}, {:.1f} % of the calls)", op.op, op.count, 100 * op.share));
  }
  return fmt::format("no formula counts the flops of: {}\n", fmt::join(parts, ", "));
}

std::string without_rule_text(const SpanProfile& profile) {
  if (profile.ops_without_rule.empty()) return "";
  return fmt::format(
      "no rule says exactly what these keep for backward; an estimate is counted: {}\n",
      fmt::join(profile.ops_without_rule, ", "));
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string html_row(const std::vector<std::string>& cells, const char* tag) {
  std::string out = "<tr>";
  for (std::size_t c = 0; c < cells.size(); ++c) {
    out += fmt::format("<{0} style=\"text-align:{1}\">{2}</{0}>", tag, c < 2 ? "left" : "right",
                       escaped(cells[c]));
  }
  return out + "</tr>\n";
}

Json span_json(const SpanRow& row) {
  const SpanCost& cost = *row.cost;
  return {{"name", row.span->name},
          {"op", row.span->kind},
          {"target", row.span->target},
          {"nodes", row.span->last.index() - row.span->first.index()},
          {"accumulate", cost.accumulate.count},
          {"incremental", row.incremental.count},
          {"output", cost.output.count},
          {"temp", cost.temp.count},
          {"param", cost.param.count},
          {"buffer", cost.buffer.count},
          {"backward", cost.backward.count},
          {"fwd_in", cost.fwd_in.count},
          {"fwd_tmp", cost.fwd_tmp.count},
          {"fwd_out", cost.fwd_out.count},
          {"bwd_tmp", cost.bwd_tmp.count},
          {"bwd_out", cost.bwd_out.count},
          {"fwd_flop", cost.fwd_flop},
          {"fwd_mac", cost.fwd_mac},
          {"bwd_flop", cost.bwd_flop},
          {"bwd_mac", cost.bwd_mac},
          {"known", cost.known}};
}

}  // namespace

std::string span_table(const SpanProfile& profile, const SpanTableOptions& options) {
  std::vector<TextTable::Column> columns;
  for (const std::string& title : titles()) {
    columns.push_back(
        {title, columns.size() < 2 ? TextTable::Align::left : TextTable::Align::right});
  }
  TextTable table(std::move(columns));
  for (std::vector<std::string>& row : table_rows(profile, options)) table.add(std::move(row));
  return table.str() + unknown_text(profile) + without_rule_text(profile);
}

std::string span_table_html(const SpanProfile& profile, const SpanTableOptions& options) {
  std::string out = "<table>\n<thead>" + html_row(titles(), "th") + "</thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table_rows(profile, options)) {
    out += html_row(row, "td");
  }
  out += "</tbody>\n</table>\n";
  for (const std::string& note : {unknown_text(profile), without_rule_text(profile)}) {
    if (!note.empty()) out += "<p>" + escaped(note) + "</p>\n";
  }
  return out;
}

std::string span_table_json(const SpanProfile& profile) {
  Json out = format_header("kerf-symbolic-profile", {1, 0});
  out["device_kind"] = profile.device_kind;
  const SpanTotals& totals = profile.totals;
  out["totals"] = {{"saved", totals.saved.count},   {"param", totals.param.count},
                   {"buffer", totals.buffer.count}, {"fwd_flop", totals.fwd_flop},
                   {"fwd_mac", totals.fwd_mac},     {"bwd_flop", totals.bwd_flop},
                   {"bwd_mac", totals.bwd_mac}};
  out["nodes"] = Json::array();
  for (const SpanRow& row : rows_of(profile)) out["nodes"].push_back(span_json(row));
  out["unknown_ops"] = Json::array();
  for (const UnknownOp& op : profile.unknown_ops) {
    out["unknown_ops"].push_back({{"op", op.op}, {"count", op.count}, {"share", op.share}});
  }
  out["ops_without_rule"] = profile.ops_without_rule;
  return out.dump(1);
}

}  // namespace kerf
