// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/verbs.h"
#include "kerf/emit/report/text_table.h"
#include "kerf/plan/schedule/schedule.h"

namespace kerf::cli {
namespace {

void run_schedules() {
  using Align = TextTable::Align;
  TextTable table({{"schedule", Align::left}, {"idle share", Align::left}, {"", Align::left}});
  for (const ScheduleKind& kind : schedule_kinds()) {
    table.add({std::string(kind.name), std::string(kind.idle), std::string(kind.summary)});
  }
  fmt::print(
      "{}\nidle share of a training step of equal stages without transfers, forward, input and "
      "weight gradients\nas long as each other: p devices, m micro-batches, v stages per device. "
      "The "
      "figures hold for m >= p: with\nfewer micro-batches devices stand idle longer, and so they "
      "do, "
      "by a tick at most, under zero_bubble\nwith v > 1 where m is no multiple of p\n",
      table.str());
}

}  // namespace

void add_schedules(CLI::App& app) {
  app.add_subcommand("schedules", "List the schedules and how long devices stand idle")
      ->callback(run_schedules);
}

}  // namespace kerf::cli
