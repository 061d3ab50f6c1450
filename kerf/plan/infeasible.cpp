// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/infeasible.h"

#include <fmt/format.h>

#include <algorithm>

namespace kerf {
namespace {

std::string listed(const std::vector<Setting>& settings, Wording wording, std::string_view join) {
  std::string out;
  for (const Setting& setting : settings) {
    if (!out.empty()) out += join;
    out += setting.str(wording);
  }
  return out;
}

}  // namespace

std::string Setting::str(Wording wording) const {
  if (wording == Wording::python) {
    return is_text ? fmt::format("{}='{}'", name, value) : fmt::format("{}={}", name, value);
  }
  std::string option = name;
  std::replace(option.begin(), option.end(), '_', '-');
  return fmt::format("--{} {}", option, value);
}

std::string Advice::str(Wording wording) const {
  const std::string failed = listed(not_enough, wording, ", ");
  if (together_fits) {
    return fmt::format("not enough: {}; what would fit: all of these together", failed);
  }
  const std::string_view together = together_tried ? ", nor all of these together" : "";
  if (!fits.empty()) {
    const std::string rest =
        failed.empty() ? "" : fmt::format("; not enough: {}{}", failed, together);
    return fmt::format("what would fit: {}{}", listed(fits, wording, ", or "), rest);
  }
  return fmt::format("not enough: {}{} ({} short at best); add a device or memory", failed,
                     together, to_string(least));
}

std::string Infeasible::help(Wording wording) const {
  return advice.empty() ? what_would_help : advice.str(wording);
}

std::string Infeasible::message(Wording wording) const {
  return fmt::format(
      "[partition.{}] no plan fits in memory; the tightest device is {}: it needs {} and has {}, "
      "{} ({} bytes) short; {}{}{}",
      method, device, to_string(needed), to_string(limit), to_string(short_by), short_by.count,
      help(wording), caveat.empty() ? "" : fmt::format(" ({})", caveat),
      timed_out ? " (stopped by the clock: another run may find a plan that fits)" : "");
}

}  // namespace kerf
