// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "kerf/partition/fx/compat.h"
#include "kerf/partition/fx/form.h"
#include "kerf/partition/fx/serial_latency.h"

namespace kerf::partition::fx {
namespace {

constexpr std::size_t kKept = 4;  // placements that become partitions
constexpr std::uint64_t kSeed = 1;

// Enough for thorough work on small graphs, linear on large ones.
std::int64_t default_work(std::int64_t ops, std::int64_t effort) {
  return std::max<std::int64_t>(
      100'000, std::min(effort * ops * ops, std::int64_t{30'000'000} + 15'000 * ops));
}

bool known_costs(const Request& request) {
  if (!(request.rate > 0)) return false;
  return std::none_of(request.graph.ops().begin(), request.graph.ops().end(), [&](OpIndex n) {
    return std::isnan(request.graph.node(n).mem_latency) ||
           std::isnan(request.graph.node(n).computer_latency);
  });
}

// By cost, then by the other model's cost, then by partitions. The serial model's times are
// estimates: there a few per mille do not buy more partitions.
std::optional<Answer> cheapest(const Request& request, std::vector<Answer>& answers) {
  const bool serial = request.cost_model == CostModel::serial;
  double least = std::numeric_limits<double>::infinity();
  for (const Answer& answer : answers) least = std::min(least, answer.serial_cost);
  constexpr double kWorthAPartition = 1.005;
  const auto key = [&](const Answer& answer) {
    if (!serial) return std::tuple(answer.cost, answer.serial_cost, answer.partitions.size());
    const bool near = answer.serial_cost <= least * kWorthAPartition;
    return std::tuple(near ? least : answer.serial_cost,
                      near ? static_cast<double>(answer.partitions.size()) : 0, std::size_t{0});
  };
  const auto best =
      std::min_element(answers.begin(), answers.end(),
                       [&](const Answer& a, const Answer& b) { return key(a) < key(b); });
  if (best == answers.end()) return std::nullopt;
  return std::move(*best);
}

}  // namespace

std::vector<DeviceBytes> bytes_by_device(const Request& request,
                                         std::span<const Partition> partitions) {
  std::vector<DeviceBytes> out;
  for (const Device& device : request.devices) {
    std::vector<OpIndex> nodes;
    for (const Partition& partition : partitions) {
      const auto& ids = partition.device_ids;
      if (std::find(ids.begin(), ids.end(), device.id) == ids.end()) continue;
      nodes.insert(nodes.end(), partition.nodes.begin(), partition.nodes.end());
    }
    out.push_back(device_bytes(request.graph, nodes));
  }
  return out;
}

bool is_valid(const Request& request, std::span<const Partition> partitions) {
  std::vector<int> times(request.graph.num_nodes(), 0);
  for (const Partition& partition : partitions) {
    if (partition.device_ids.empty()) return false;
    for (const std::int64_t id : partition.device_ids) {
      if (find_device(request.devices, id) == request.devices.size()) return false;
    }
    for (const OpIndex n : partition.nodes) ++times[n];
  }
  for (const OpIndex n : request.graph.ops()) {
    if (times[n] != 1) return false;
  }
  std::vector<Partition> related(partitions.begin(), partitions.end());
  set_relations(request.graph, related);
  if (reached_order(related).order.size() < related.size()) return false;  // they wait in a circle
  const std::vector<DeviceBytes> bytes = bytes_by_device(request, partitions);
  for (std::size_t d = 0; d < bytes.size(); ++d) {
    if (used_bytes(request, bytes[d]) > request.devices[d].memory) return false;
  }
  return true;
}

Answer finish(const Request& request, std::vector<Partition> partitions) {
  Answer answer;
  set_relations(request.graph, partitions);
  set_levels(partitions);
  answer.device_bytes = bytes_by_device(request, partitions);
  answer.node_to_partition = node_to_partition(request.graph, partitions);
  if (known_costs(request)) {
    answer.cost = graph_latency(request.graph, partitions,
                                compat::latencies(request.graph, partitions), request.rate);
    answer.serial_cost = serial_latency(request, partitions);
  }
  answer.partitions = std::move(partitions);
  return answer;
}

Infeasible too_small(const Request& request, std::size_t device, std::int64_t bytes,
                     std::string help) {
  Infeasible reason;
  reason.method = to_string(request.mode);
  reason.tightest = DeviceId{device};
  reason.device = request.devices[device].name;
  reason.needed = Bytes{bytes};
  reason.limit = Bytes{request.devices[device].memory};
  reason.short_by = reason.needed - reason.limit;
  reason.what_would_help = std::move(help);
  return reason;
}

Infeasible no_room(const Request& request, const OpTable& table) {
  Placement alone(table, request.devices);
  const auto device = static_cast<std::uint32_t>(largest_device(request.devices));
  for (std::size_t op = 0; op < table.size(); ++op) {
    alone.move(op, device);
    if (!alone.over(device)) {
      alone.move(op, Placement::kNowhere);
      continue;
    }
    return too_small(
        request, device, alone.bytes(device),
        fmt::format(
            "node '{}' with its inputs is larger than any device; give one device at least {}",
            request.graph.node(table.node[op]).name, to_string(Bytes{alone.bytes(device)})));
  }
  const Placement spread = least_overflow(table, request.devices);
  std::size_t tightest = 0;
  for (std::size_t d = 1; d < request.devices.size(); ++d) {
    if (spread.bytes(d) - spread.limit(d) > spread.bytes(tightest) - spread.limit(tightest)) {
      tightest = d;
    }
  }
  const std::int64_t needed = std::max(spread.bytes(tightest), spread.limit(tightest) + 1);
  return too_small(request, tightest, needed, "give the devices more memory, or add a device");
}

Search::Search(const Request& request, std::int64_t effort)
    : request_(request),
      table_(request),
      work_(request.work_limit > 0
                ? request.work_limit
                : default_work(static_cast<std::int64_t>(table_.size()), effort)),
      improver_(table_, request.cost_model, work_, kSeed) {}

void Search::add(std::optional<Placement> start) {
  if (!start) return;
  Found found{std::move(*start), {}};
  found.score = improver_.descend(found.placement);
  for (const Found& other : found_) {
    if (other.placement.devices() == found.placement.devices()) return;
  }
  const auto place = std::find_if(found_.begin(), found_.end(), [&](const Found& other) {
    return better(found.score, other.score);
  });
  found_.insert(place, std::move(found));
  if (found_.size() > kKept) found_.pop_back();
}

void Search::add_partitions(std::vector<Partition> partitions) {
  if (!is_valid(request_, partitions)) return;
  add(as_given(table_, request_.devices, partitions));
  given_.push_back(std::move(partitions));
}

void Search::improve_best(int kicks) {
  for (std::size_t i = 0; i < std::min<std::size_t>(2, found_.size()); ++i) {
    Found better_one = found_[i];
    better_one.score = improver_.pass(better_one.placement);
    if (better(better_one.score, found_[i].score)) found_[i] = std::move(better_one);
  }
  std::stable_sort(found_.begin(), found_.end(),
                   [](const Found& a, const Found& b) { return better(a.score, b.score); });
  if (found_.empty() || improver_.out_of_steps()) return;
  Found kicked = found_.front();
  kicked.score = improver_.kick(kicked.placement, kicks);
  if (better(kicked.score, found_.front().score)) found_.insert(found_.begin(), std::move(kicked));
}

std::optional<Answer> Search::best() {
  std::vector<Answer> answers;
  const auto offer = [&](std::vector<Partition> partitions) {
    answers.push_back(finish(request_, std::move(partitions)));
  };
  for (std::size_t i = 0; i < found_.size(); ++i) {
    // Partitions of a placement never cost less than its ops alone: the worse ones cannot win.
    if (i > 0 && found_[i].score.cost > found_.front().score.cost * (1 + 1e-9)) break;
    offer(form_partitions(request_, table_, found_[i].placement));
  }
  for (std::vector<Partition>& partitions : given_) {
    for (std::size_t p = 0; p < partitions.size(); ++p) {
      partitions[p].id = static_cast<std::int64_t>(p);
    }
    offer(std::move(partitions));
  }
  given_.clear();
  return cheapest(request_, answers);
}

}  // namespace kerf::partition::fx
