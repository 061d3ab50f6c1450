// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <span>

#include "kerf/emit/report/analysis.h"
#include "kerf/emit/report/figures.h"
#include "kerf/emit/report/text_table.h"

namespace kerf {
namespace {

using Align = TextTable::Align;

std::string count_text(const std::optional<std::int64_t>& count) {
  if (!count) return "-";
  if (*count < 100'000) return fmt::format("{}", *count);
  return fmt::format("{:.2f} M", static_cast<double>(*count) / 1e6);
}

std::string analysed_stages(const Plan& plan, const Analysis& analysis) {
  TextTable table({{"stage"},
                   {"device", Align::left},
                   {"forward"},
                   {"backward"},
                   {"again"},
                   {"forward, sent"},
                   {"backward, sent"},
                   {"in"},
                   {"out"},
                   {"compute"},
                   {"parameters"}});
  for (std::size_t s = 0; s < analysis.stages.size(); ++s) {
    const StageAnalysis& row = analysis.stages[s];
    table.add({std::to_string(s), plan.cluster.device(row.device).name, to_string(row.forward),
               time_or_dash(row.backward), time_or_dash(row.recompute),
               to_string(row.forward + row.forward_transfers),
               time_or_dash(row.backward + row.backward_transfers), bytes_or_dash(row.received),
               bytes_or_dash(row.sent), percent(row.compute_share()), count_text(row.parameters)});
  }
  return table.str();
}

std::string analysed_devices(const Plan& plan, const Analysis& analysis) {
  TextTable table({{"device", Align::left},
                   {"forward"},
                   {"backward"},
                   {"transfers"},
                   {"busy"},
                   {"utilisation"},
                   {"parameters"},
                   {"peak memory"}});
  for (std::size_t d = 0; d < analysis.devices.size(); ++d) {
    const DeviceAnalysis& row = analysis.devices[d];
    table.add({plan.cluster.devices[d].name, time_or_dash(row.forward), time_or_dash(row.backward),
               time_or_dash(row.transfers), time_or_dash(row.busy()), percent(row.utilisation),
               count_text(row.parameters), to_string(row.peak)});
  }
  return table.str();
}

std::string layouts_text(const std::vector<std::string>& names) {
  constexpr std::size_t kMostNames = 4;
  const auto shown = std::span(names).first(std::min(names.size(), kMostNames));
  return fmt::format("note: sent with gaps between their elements, which costs a copy: {}{}\n",
                     fmt::join(shown, ", "), names.size() > kMostNames ? ", ..." : "");
}

double in_seconds(Nanoseconds time) { return time.count * 1e-9; }

Json count_json(const std::optional<std::int64_t>& count) {
  return count ? Json(*count) : Json(nullptr);
}

Json stage_row(const Plan& plan, const StageAnalysis& row) {
  Json json;
  json["device"] = plan.cluster.device(row.device).name;
  json["forward_s"] = in_seconds(row.forward);
  json["backward_s"] = in_seconds(row.backward);
  json["recompute_s"] = in_seconds(row.recompute);
  json["forward_transfer_s"] = in_seconds(row.forward_transfers);
  json["backward_transfer_s"] = in_seconds(row.backward_transfers);
  json["received_bytes"] = row.received.count;
  json["sent_bytes"] = row.sent.count;
  json["compute_share"] = row.compute_share();
  json["parameters"] = count_json(row.parameters);
  return json;
}

Json device_row(const std::string& name, const DeviceAnalysis& row) {
  Json json;
  json["device"] = name;
  json["forward_s"] = in_seconds(row.forward);
  json["backward_s"] = in_seconds(row.backward);
  json["transfer_s"] = in_seconds(row.transfers);
  json["busy_s"] = in_seconds(row.busy());
  json["utilisation"] = row.utilisation;
  json["parameters"] = count_json(row.parameters);
  json["peak_bytes"] = row.peak.count;
  return json;
}

}  // namespace

std::string analysis_table(const Plan& plan, const Analysis& analysis) {
  const auto line = [](std::string_view label, const std::string& text) {
    return fmt::format("{:<28}{}\n", label, text);
  };
  std::string out = fmt::format("{}: one micro-batch, {}\n\n", plan.graph_name,
                                analysis.measured ? "times of a run" : "predicted times");
  out += analysed_stages(plan, analysis) + '\n' + analysed_devices(plan, analysis) + '\n';
  out += line("busiest device", fmt::format("{}, without transfers {}", to_string(analysis.busiest),
                                            to_string(analysis.busiest_without_transfers)));
  out += line("a perfect split", to_string(analysis.ideal));
  out += line("pipeline slowdown", fmt::format("{:.3f}", analysis.slowdown()));
  out += line("expected speed-up", fmt::format("{:.2f} on {}", analysis.expected_speedup(),
                                               counted(analysis.devices.size(), "device")));
  out += line("speed-up against sequential",
              fmt::format("{:.2f} ({} with nothing computed again)", analysis.speedup(),
                          to_string(analysis.sequential)));
  if (!analysis.not_contiguous.empty()) out += layouts_text(analysis.not_contiguous);
  return out;
}

Json analysis_json(const Plan& plan, const Analysis& analysis) {
  constexpr FormatVersion kAnalysisVersion{1, 0};
  Json json = format_header("kerf-analysis", kAnalysisVersion);
  json["graph"] = plan.graph_name;
  json["graph_hash"] = plan.graph_hash;
  json["method"] = plan.method;
  json["measured"] = analysis.measured;
  json["stages"] = Json::array();
  for (const StageAnalysis& row : analysis.stages) json["stages"].push_back(stage_row(plan, row));
  json["devices"] = Json::array();
  for (std::size_t d = 0; d < analysis.devices.size(); ++d) {
    json["devices"].push_back(device_row(plan.cluster.devices[d].name, analysis.devices[d]));
  }
  json["busiest_s"] = in_seconds(analysis.busiest);
  json["busiest_without_transfers_s"] = in_seconds(analysis.busiest_without_transfers);
  json["ideal_s"] = in_seconds(analysis.ideal);
  json["slowdown"] = analysis.slowdown();
  json["expected_speedup"] = analysis.expected_speedup();
  json["sequential_s"] = in_seconds(analysis.sequential);
  json["speedup"] = analysis.speedup();
  json["not_contiguous"] = analysis.not_contiguous;
  return json;
}

}  // namespace kerf
