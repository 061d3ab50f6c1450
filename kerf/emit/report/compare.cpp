// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kerf/base/error.h"
#include "kerf/emit/report/text_table.h"

namespace kerf {
namespace {

void check_comparable(const Timeline& a, const Timeline& b) {
  const auto refuse = [](const std::string& found, std::string_view expected) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[report.compare] {}; expected {}", found, expected));
  };
  if (a.graph_hash != b.graph_hash) {
    refuse(fmt::format("timelines of graphs {} and {}", a.graph_hash, b.graph_hash), "one graph");
  }
  if (a.devices != b.devices || a.num_stages != b.num_stages) {
    refuse("timelines of different stages or devices", "timelines of one plan");
  }
}

// The median, so that one interrupted micro-batch does not colour the whole comparison.
std::vector<Nanoseconds> stage_medians(const Timeline& timeline) {
  std::vector<std::vector<Nanoseconds>> times(static_cast<std::size_t>(timeline.num_stages));
  for (const Event& event : timeline.events) {
    if (event.kind != EventKind::compute) continue;
    times[event.stage.index()].push_back(event.end - event.start);
  }
  std::vector<Nanoseconds> out;
  for (auto& of_stage : times) {
    const auto middle = of_stage.begin() + static_cast<std::ptrdiff_t>(of_stage.size() / 2);
    std::nth_element(of_stage.begin(), middle, of_stage.end());
    out.push_back(of_stage.empty() ? Nanoseconds{} : *middle);
  }
  return out;
}

std::string ratio(Nanoseconds predicted, Nanoseconds measured) {
  if (predicted.count <= 0) return "-";
  return fmt::format("{:.2f}", measured / predicted);
}

}  // namespace

std::string compare_timelines(const Timeline& predicted, const Timeline& measured) {
  check_comparable(predicted, measured);
  TextTable table({{"", TextTable::Align::left},
                   {predicted.origin, TextTable::Align::right},
                   {measured.origin, TextTable::Align::right},
                   {"ratio", TextTable::Align::right}});
  const auto add = [&](const std::string& label, Nanoseconds a, Nanoseconds b) {
    table.add({label, to_string(a), to_string(b), ratio(a, b)});
  };
  add("step", predicted.end(), measured.end());
  for (std::size_t d = 0; d < predicted.devices.size(); ++d) {
    add(predicted.devices[d] + " busy", predicted.busy(DeviceId(d)), measured.busy(DeviceId(d)));
  }
  const std::vector<Nanoseconds> a = stage_medians(predicted);
  const std::vector<Nanoseconds> b = stage_medians(measured);
  for (std::size_t s = 0; s < a.size(); ++s) {
    add(fmt::format("stage {} per micro-batch", s), a[s], b[s]);
  }
  table.add({"bubble", fmt::format("{:.1f} %", predicted.bubble() * 100),
             fmt::format("{:.1f} %", measured.bubble() * 100), ""});
  if (predicted.n_microbatches == measured.n_microbatches) return table.str();
  return table.str() +
         fmt::format(
             "timelines of {} and {} micro-batches: only times per micro-batch are comparable\n",
             predicted.n_microbatches, measured.n_microbatches);
}

}  // namespace kerf
