// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/derive_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/interrupt.h"
#include "kerf/verify/moves.h"
#include "kerf/verify/task_order.h"
#include "kerf/verify/wire_walk.h"

namespace kerf::derive {
namespace {

// The moments of the last few micro-batches: as many of each row as somebody still waits for.
class Recent {
 public:
  explicit Recent(const std::vector<std::size_t>& wait) {
    for (const std::size_t clocks : wait) {
      rows_.push_back({at_.size(), clocks + 1});
      at_.resize(at_.size() + clocks + 1);
    }
  }
  double& at(std::size_t row, std::size_t microbatch) {
    return at_[rows_[row].first + microbatch % rows_[row].kept];
  }

 private:
  struct Row {
    std::size_t first;
    std::size_t kept;
  };
  std::vector<Row> rows_;
  std::vector<double> at_;
};

// Without a shared wire nothing depends on who comes first: each moment follows from earlier ones.
Walked walk(const Flow& flow, const Traffic& traffic, const Moves& moves, const Plan& plan,
            std::size_t n_microbatches) {
  Walked walked;
  walked.busy.resize(plan.cluster.num_devices());
  std::vector<double> free(plan.cluster.num_devices(), 0);
  std::vector<double> sender_free(plan.cluster.num_devices(), 0);
  Recent moments(moves.wait);
  for_each_task(flow.num_stages(), n_microbatches, [&](const Task& task) {
    if (task.stage == 0) poll_interrupt();
    const Stage& stage = plan.stages[task.stage];
    const std::size_t device = stage.device.index();
    double now = free[device];
    for (const Incoming& move : moves.incoming[task.stage]) {
      if (!move.first) continue;  // stages of a micro-batch run in their order
      now = std::max(now, moments.at(move.row, task.microbatch)) + move.time;
    }
    for (const StageId before : flow.after[task.stage]) {
      now = std::max(now, moments.at(before.index(), task.microbatch));
    }
    if (traffic.overlapped) walked.busy[device].emplace_back(now, now + stage.time.count);
    now += stage.time.count;
    moments.at(task.stage, task.microbatch) = now;
    sender_free[device] = std::max(sender_free[device], now);
    for (const Outgoing& move : moves.outgoing[task.stage]) {
      double& clock = traffic.overlapped ? sender_free[device] : now;
      if (traffic.overlapped) walked.busy[move.to.index()].emplace_back(clock, clock + move.time);
      clock += move.time;
      moments.at(move.row, task.microbatch) = clock;
    }
    free[device] = now;
  });
  walked.end = *std::max_element(free.begin(), free.end());
  return walked;
}

// Spans may overlap: a device that receives while it computes is busy once.
double length_of_union(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end());
  double sum = 0;
  double until = 0;
  for (const auto& [start, end] : spans) {
    sum += std::max(0.0, end - std::max(start, until));
    until = std::max(until, end);
  }
  return sum;
}

// The mean, over devices with stages, of the share of the step in which each stands idle.
double derive_bubble(const Traffic& traffic, const Walked& walked, const Plan& plan,
                     int n_microbatches) {
  if (walked.end <= 0) return 0;
  const std::vector<DeviceLoad> loads = derive_loads(traffic, plan);
  std::vector<bool> used(plan.cluster.num_devices());
  for (const Stage& stage : plan.stages) used[stage.device.index()] = true;
  double idle = 0;
  double count = 0;
  for (std::size_t d = 0; d < used.size(); ++d) {
    if (!used[d]) continue;
    const double share = traffic.overlapped ? length_of_union(walked.busy[d]) / walked.end
                                            : n_microbatches * (loads[d].busy().count / walked.end);
    idle += 1 - share;
    ++count;
  }
  return std::clamp(idle / count, 0.0, 1.0);  // sums may pass the step by a rounding error
}

constexpr double kMostMoves = 1 << 28;
constexpr double kMostKept = 1 << 24;  // where all of them stay in memory

// How many there are to follow, where that can be done.
double find_amount(const Flow& flow, const Traffic& traffic, const Moves& moves,
                   int n_microbatches) {
  double each = static_cast<double>(flow.num_stages() + moves.num_rows());
  for (const auto& list : flow.after) each += static_cast<double>(list.size());
  for (const auto& list : moves.incoming) each += static_cast<double>(list.size());
  const double amount = each * n_microbatches;
  const bool kept = traffic.overlapped || traffic.uses_wire();
  const double most = kept ? kMostKept : kMostMoves;
  if (amount <= most) return amount;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("[verify.step] {} micro-batches of {} stages and {} tensors that change "
                  "devices are {:.3g} moments to follow; expected at most {:.3g}; use "
                  "fewer micro-batches",
                  n_microbatches, flow.num_stages(), traffic.shipments.size(), amount, most));
}

}  // namespace

StepFigures derive_step(const Flow& flow, const Traffic& traffic, const Plan& plan,
                        int n_microbatches) {
  const Moves moves = read_moves(flow, traffic);
  const double moments = find_amount(flow, traffic, moves, n_microbatches);
  const auto count = static_cast<std::size_t>(n_microbatches);
  const Walked walked =
      traffic.uses_wire()
          ? walk_with_wire(flow, traffic, moves, plan,
                           {plan.stage_devices(), plan.cluster.num_devices(), count})
          : walk(flow, traffic, moves, plan, count);
  return {walked.end, derive_bubble(traffic, walked, plan, n_microbatches), moments};
}

StepFigures derive_step(const Flow& flow, const Traffic& traffic, const Plan& plan,
                        const TaskOrder& order) {
  const Moves moves = read_moves(flow, traffic);
  const int count = static_cast<int>(order.n_microbatches());
  const double moments = find_amount(flow, traffic, moves, count);
  const Walked walked = walk_with_wire(flow, traffic, moves, plan, order);
  return {walked.end, derive_bubble(traffic, walked, plan, count), moments};
}

}  // namespace kerf::derive
