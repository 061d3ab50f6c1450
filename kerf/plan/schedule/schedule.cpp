// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/schedule/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "kerf/base/error.h"
#include "kerf/base/nearest_name.h"

namespace kerf {
namespace {

constexpr ScheduleKind kSchedules[] = {
    {"fill_drain", "all forwards, then all backwards (GPipe); keeps every micro-batch",
     "(p-1) / (m+p-1)", fill_drain},
    {"1f1b",
     "one forward, one backward: as short as fill_drain, keeps a micro-batch per later stage",
     "(p-1) / (m+p-1)", one_forward_one_backward},
    {"interleaved_1f1b", "1f1b over several stages per device: less idle time, more transfers",
     "(p-1) / (v*m+p-1)", interleaved},
    {"zero_bubble", "gradients of weights fill the gaps: hardly any idle time",
     "(p-1) / (3*v*m+p-1)", zero_bubble, true},
};

// Other names: the papers' (Huang et al., GPipe, 2019) and those of torch's classes.
struct OtherName {
  std::string_view name;  // in lower case
  std::string_view kerfs;
};
constexpr OtherName kOtherNames[] = {
    {"gpipe", "fill_drain"},
    {"one_f_one_b", "1f1b"},
    {"interleaved1f1b", "interleaved_1f1b"},
    {"interleavedzerobubble", "zero_bubble"},
    {"zerobubble", "zero_bubble"},
    {"zb1p", "zero_bubble"},
};

// Stages times micro-batches: a schedule lists them all.
constexpr std::size_t kMostTasks = std::size_t{1} << 22;

std::string normalized(std::string_view name) {
  std::string lower;
  for (const char c : name) {
    lower.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  constexpr std::string_view kTorchPrefix = "schedule";
  if (lower.starts_with(kTorchPrefix)) lower.erase(0, kTorchPrefix.size());
  return lower;
}

}  // namespace

// A number of micro-batches may come from a file, and each of them costs memory in every stage.
void check_amount(std::size_t num_stages, int n_microbatches) {
  if (n_microbatches < 1) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[plan.schedule] {} micro-batches; expected at least 1; give another number",
                    n_microbatches));
  }
  const std::size_t tasks = num_stages * static_cast<std::size_t>(n_microbatches);
  if (tasks <= kMostTasks) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[plan.schedule] {} micro-batches of {} stages are {} tasks; expected at "
                          "most {}; use fewer micro-batches",
                          n_microbatches, num_stages, tasks, kMostTasks));
}

const ScheduleKind* find_schedule(std::string_view name) {
  std::string wanted = normalized(name);
  for (const OtherName& other : kOtherNames) {
    if (other.name == wanted) wanted = other.kerfs;
  }
  for (const ScheduleKind& kind : kSchedules) {
    if (kind.name == wanted) return &kind;
  }
  return nullptr;
}

const ScheduleKind& schedule_kind(std::string_view name) {
  if (const ScheduleKind* kind = find_schedule(name)) return *kind;
  const std::vector<std::string> names = schedule_names();
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[plan.schedule] unknown schedule '{}'; expected one of {}{}", name,
                          fmt::join(names, ", "), nearest_name_hint(name, names)));
}

std::span<const ScheduleKind> schedule_kinds() { return kSchedules; }

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleKind& kind : kSchedules) names.emplace_back(kind.name);
  names.insert(names.begin() + 1, "gpipe");
  return names;
}

}  // namespace kerf
