// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/problem.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/quantity.h"
#include "kerf/graph/has_backward.h"
#include "kerf/graph/total_bytes.h"
#include "kerf/graph/train_mode.h"
#include "kerf/plan/recompute.h"
#include "kerf/plan/schedule/schedule.h"
#include "kerf/profile/backward_times.h"
#include "kerf/profile/optimizer.h"

namespace kerf {
namespace {

constexpr int kMostMicrobatches = 1 << 20;
constexpr int kMostStagesPerDevice = 1 << 10;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::invalid_argument, "[plan.problem] " + message);
}

void check_microbatches(int n) {
  if (n >= 1 && n <= kMostMicrobatches) return;
  refuse(fmt::format("n_microbatches is {}; expected 1 to {}", n, kMostMicrobatches));
}

void check_batch(const Problem& problem) {
  const int n = problem.n_microbatches;
  check_microbatches(n);
  if (problem.batch < 0 || problem.batch > (std::int64_t{1} << 40)) {
    refuse(fmt::format("the batch is {}; expected at least 1, or 0 for the graph's own",
                       problem.batch));
  }
  if (problem.graph.is_static() && n > 1) {
    refuse(
        fmt::format("graph '{}' is static (no size depends on the batch), so it cannot be run in "
                    "{} micro-batches; use n_microbatches=1",
                    problem.graph.name(), n));
  }
  if (!problem.graph.is_static() && n > problem.batch_size()) {
    refuse(
        fmt::format("{} micro-batches of a batch of {}; expected at most one per sample; give a "
                    "larger batch or fewer micro-batches",
                    n, problem.batch_size()));
  }
  // A plan for sizes that the trace is not right for could never run.
  check_conditions(problem.graph.conditions(), problem.batch_size(), n, "[plan.problem]");
}

void check_training(const Problem& problem) {
  check_train_mode(problem.graph, "plan.problem");
  optimizer(problem.optimizer);
  check_backward_times(problem.profile, "plan.problem");
}

void check_transfers(const Problem& problem) {
  if (problem.transfer_times.empty()) return;
  const std::size_t values = problem.graph.num_values();
  if (problem.transfer_times.size() != values) {
    refuse(fmt::format("{} transfer times for {} values; expected one for each, or none",
                       problem.transfer_times.size(), values));
  }
  for (std::size_t v = 0; v < values; ++v) {
    const std::optional<Nanoseconds>& given = problem.transfer_times[v];
    if (!given || is_quantity(given->count)) continue;
    refuse(fmt::format("the transfer of '{}' takes {} ns; expected {}",
                       problem.graph.values()[v].name, given->count, kQuantityText));
  }
}

void check_kept(const Problem& problem) {
  if (!problem.keep_last_stage) return;
  if (!problem.training || problem.recompute == "auto") {
    refuse(
        fmt::format("keep_last_stage with {}; expected training with the blocks that run again "
                    "said: \"all\", \"as_traced\", \"none\" or a list",
                    problem.training ? "recompute \"auto\"" : "no training"));
  }
}

// Sums of times and sizes must be numbers that can be compared: each is sound by itself, and their
// products may still be too large.
void check_sums(const Problem& problem) {
  const std::int64_t micro_batch = problem.micro_batch();
  const double bytes = total_bytes(problem.graph.storages(), problem.graph.values(), micro_batch);
  // As many copies as there are micro-batches may be held, on every device.
  const double copies = static_cast<double>(problem.n_microbatches) *
                        static_cast<double>(problem.cluster.num_devices());
  if (bytes * copies > kMostTotalBytes) {
    refuse(
        fmt::format("the tensors of graph '{}' take {:.3g} bytes at a micro-batch of {}, times {} "
                    "micro-batches and {} devices; expected at most 2^60 bytes; give a smaller "
                    "batch, or fix the graph",
                    problem.graph.name(), bytes, micro_batch, problem.n_microbatches,
                    problem.cluster.num_devices()));
  }
  double slowest = kMostQuantity;
  for (const Device& device : problem.cluster.devices) slowest = std::min(slowest, device.speed);
  double transfer = 0;
  for (const Link& link : problem.cluster.links) {
    transfer = std::max(transfer, link.time(Bytes{static_cast<std::int64_t>(bytes)}).count);
  }
  const double scale =
      problem.profile.batch > 0 && micro_batch > 0
          ? static_cast<double>(micro_batch) / static_cast<double>(problem.profile.batch)
          : 1;
  for (const std::optional<Nanoseconds>& given : problem.transfer_times) {
    if (given) transfer = std::max(transfer, given->count);
  }
  const double nodes = static_cast<double>(problem.graph.num_nodes());
  const double step =
      ((problem.profile.total_forward() * 2 + problem.profile.total_backward()).count * scale /
           slowest +
       transfer * nodes) *
      problem.n_microbatches;
  if (!(step <= kMostQuantity)) {
    refuse(
        "the profile's times, the devices' speeds and the links make a step too long to count; "
        "expected less than 1e300 ns; fix the profile or the cluster");
  }
}

}  // namespace

std::int64_t batch_size(const Graph& graph, std::int64_t batch, int n_microbatches) {
  if (graph.is_static()) return 0;
  if (batch > 0) return batch;
  // An example may be smaller than what will be run: then a sample for each micro-batch.
  return std::max<std::int64_t>(graph.data().example_batch, n_microbatches);
}

std::int64_t micro_batch_size(const Graph& graph, std::int64_t batch, int n_microbatches) {
  check_microbatches(n_microbatches);
  return (batch_size(graph, batch, n_microbatches) + n_microbatches - 1) / n_microbatches;
}

Nanoseconds Problem::forward_time(NodeId node) const { return scaled(profile.node(node).forward); }

Nanoseconds Problem::backward_time(NodeId node) const {
  return training ? scaled(profile.node(node).backward) : Nanoseconds{};
}

Nanoseconds Problem::weight_gradient_time(NodeId node) const {
  if (!training || is_recomputed(node)) return {};
  return scaled(profile.node(node).backward_weights);
}

Nanoseconds Problem::node_time(NodeId node) const {
  const Nanoseconds forward = forward_time(node);
  const bool again = training && is_recomputed(node) && has_backward(graph, node);
  return forward + backward_time(node) + (again ? forward : Nanoseconds{});
}

Nanoseconds Problem::transfer_time(ValueId value, DeviceId from, DeviceId to) const {
  if (const std::optional<Nanoseconds> given = given_transfer(value)) return *given;
  return cluster.link(from, to).time(graph.value(value).bytes(micro_batch()));
}

std::vector<std::int64_t> Problem::weight_copies() const {
  std::vector<std::int64_t> copies(graph.storages().size(), 1);
  if (!training) return copies;
  const std::vector<bool> trained = trained_storages(graph);
  for (std::size_t s = 0; s < copies.size(); ++s) {
    if (trained[s]) copies[s] = 2 + kerf::optimizer(optimizer).state;
  }
  return copies;
}

void set_recomputed(Problem& problem, std::vector<std::string> recomputed) {
  problem.recompute_block = recompute_blocks(problem.graph, recomputed);
  problem.recomputed = std::move(recomputed);
}

Nanoseconds Problem::scaled(Nanoseconds time) const {
  const std::int64_t size = micro_batch();
  if (size == 0 || profile.batch == 0 || profile.batch == size) return time;
  return time * (static_cast<double>(size) / static_cast<double>(profile.batch));
}

void check_problem(const Problem& problem) {
  check_profile_matches(problem.profile, problem.graph);
  if (problem.training) check_training(problem);
  if (problem.stages_per_device < 1 || problem.stages_per_device > kMostStagesPerDevice) {
    refuse(fmt::format("stages_per_device is {}; expected 1 to {}", problem.stages_per_device,
                       kMostStagesPerDevice));
  }
  check_cluster(problem.cluster);
  schedule_kind(problem.schedule);
  check_batch(problem);
  check_transfers(problem);
  check_kept(problem);
  check_sums(problem);
}

}  // namespace kerf
