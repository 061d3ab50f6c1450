// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/search.h"

#include <algorithm>
#include <tuple>

#include "kerf/base/error.h"
#include "kerf/base/infinity.h"

namespace kerf::partition::fx {
namespace {

constexpr std::size_t kKept = 4;  // placements that become partitions
constexpr std::uint64_t kSeed = 1;

// Enough for thorough work on small graphs, linear on large ones.
std::int64_t default_work(std::int64_t ops, std::int64_t effort) {
  return std::max<std::int64_t>(
      100'000, std::min(effort * ops * ops, std::int64_t{30'000'000} + 15'000 * ops));
}

// By cost, then by the other model's cost, then by partitions. The serial model's times are
// estimates: there a few per mille do not buy more partitions.
std::optional<Answer> cheapest(const Request& request, std::vector<Answer>& answers) {
  const bool serial = request.cost_model == CostModel::serial;
  double least = kInfinity;
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
    const Placement& placement = found_[i].placement;
    offer(form_partitions(request_, table_, placement));
    for (std::size_t d = 0; d < request_.devices.size(); ++d) {
      KERF_DCHECK(placement.bytes(d) == used_bytes(request_, answers.back().device_bytes[d]),
                  "the tracked bytes of a device differ from the sum");
    }
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
