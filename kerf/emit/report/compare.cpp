// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kerf/base/error.h"
#include "kerf/emit/report/phases.h"
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

// Of all devices together.
Nanoseconds total(const Timeline& timeline, EventKind kind, Phase phase) {
  Nanoseconds sum;
  for (const Event& event : timeline.events) {
    if (event.kind == kind && event.phase == phase) sum += event.end - event.start;
  }
  return sum;
}

std::string ratio(Nanoseconds predicted, Nanoseconds measured) {
  if (predicted.count <= 0) return "-";
  return fmt::format("{:.2f}", measured / predicted);
}

// The most that a device had in use, where both say so.
void add_peaks(const Timeline& predicted, const Timeline& measured, TextTable& table) {
  for (std::size_t d = 0; d < predicted.devices.size(); ++d) {
    const MemoryCurve* const a = predicted.find_memory(DeviceId(d));
    const MemoryCurve* const b = measured.find_memory(DeviceId(d));
    if (a == nullptr || b == nullptr) continue;
    const auto bytes = [](const MemoryCurve* curve) {
      return static_cast<double>(curve->peak().count);
    };
    table.add({predicted.devices[d] + " peak memory", to_string(a->peak()), to_string(b->peak()),
               bytes(a) > 0 ? fmt::format("{:.2f}", bytes(b) / bytes(a)) : "-"});
  }
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
  std::vector<Phase> phases;
  for (const Phase phase : kPhases) {
    if (has_phase(predicted, phase) || has_phase(measured, phase)) phases.push_back(phase);
  }
  const bool training = phases.size() > 1;
  if (training) {
    for (const Phase phase : phases) {
      for (const EventKind kind : {EventKind::compute, EventKind::transfer}) {
        const Nanoseconds a = total(predicted, kind, phase);
        const Nanoseconds b = total(measured, kind, phase);
        if (a.count == 0 && b.count == 0) continue;
        add(fmt::format("all {}{}", words(phase), kind == EventKind::transfer ? " transfers" : ""),
            a, b);
      }
    }
  }
  for (const Phase phase : phases) {
    const std::vector<Nanoseconds> a = stage_medians(predicted, phase);
    const std::vector<Nanoseconds> b = stage_medians(measured, phase);
    for (std::size_t s = 0; s < a.size(); ++s) {
      if (training && a[s].count == 0 && b[s].count == 0) continue;
      add(fmt::format("stage {}{} per micro-batch", s,
                      training ? fmt::format(" {}", words(phase)) : ""),
          a[s], b[s]);
    }
  }
  table.add({"bubble", fmt::format("{:.1f} %", predicted.bubble() * 100),
             fmt::format("{:.1f} %", measured.bubble() * 100), ""});
  add_peaks(predicted, measured, table);
  if (predicted.n_microbatches == measured.n_microbatches) return table.str();
  return table.str() +
         fmt::format(
             "timelines of {} and {} micro-batches: only times per micro-batch are comparable\n",
             predicted.n_microbatches, measured.n_microbatches);
}

}  // namespace kerf
