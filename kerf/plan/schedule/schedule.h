// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/plan/schedule/task.h"

namespace kerf {

// For each device its tasks in execution order. A worker runs them one after the other and waits,
// before each, for those that it depends on (TaskTable) to have ended.
using Schedule = std::vector<std::vector<Task>>;

// What a schedule is made for. Stages are numbered topologically.
struct ScheduleRequest {
  std::vector<DeviceId> stage_devices;  // by stage
  int num_devices = 1;
  int n_microbatches = 1;
  StepShape shape;
};

// A pure function from a request to a schedule that cannot deadlock, whatever waits for what and
// wherever it runs. Each generator has a file; its comment draws what it makes.
using ScheduleMaker = Schedule (*)(const ScheduleRequest&);

struct ScheduleKind {
  std::string_view name;
  std::string_view summary;  // one line for people
  // Idle share of a training step of equal stages without transfers, where forward, input and
  // weight gradients take the same time: p devices, m >= p micro-batches, v stages per
  // device; more where m < p. zero_bubble: where v > 1 and p does not divide m, up to a third of a
  // stage of one micro-batch more.
  std::string_view idle;
  ScheduleMaker make;
  bool apart = false;  // gradients of weights are tasks of their own
};

// All forwards, then all backwards; peak: every micro-batch. Also "gpipe".
Schedule fill_drain(const ScheduleRequest& request);
Schedule one_forward_one_backward(const ScheduleRequest& request);
Schedule interleaved(const ScheduleRequest& request);
Schedule zero_bubble(const ScheduleRequest& request);

// By Kerf's name or torch's ("1F1B", "ScheduleGPipe", "InterleavedZeroBubble"), in any case.
// nullptr when unknown.
const ScheduleKind* find_schedule(std::string_view name);
// Throws Error(invalid_argument) that lists the names, the nearest one first.
const ScheduleKind& schedule_kind(std::string_view name);
std::span<const ScheduleKind> schedule_kinds();
std::vector<std::string> schedule_names();  // with the other names that Kerf itself uses

// Throws Error(invalid_argument) for more tasks than a schedule can list.
void check_amount(std::size_t num_stages, int n_microbatches);

}  // namespace kerf
