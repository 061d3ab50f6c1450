// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/size.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/count_up.h"
#include "kerf/base/error.h"
#include "kerf/partition/fx/modes.h"
#include "kerf/partition/fx/search.h"

namespace kerf::partition::fx {
namespace {

std::optional<std::vector<Partition>> greedy(const Request& request, bool compat) {
  try {
    auto partitions = greedy_by_size(request.graph, request.devices, compat);
    if (is_valid(request, partitions)) return partitions;
  } catch (const OriginalError&) {
    // It gets stuck where another order need not.
  }
  return std::nullopt;
}

std::optional<Answer> all_on(const Request& request, const Device& device) {
  std::vector<Partition> one(1);
  for (OpIndex n = 0; n < request.graph.num_nodes(); ++n) one.front().nodes.push_back(n);
  one.front().used_bytes = used_bytes(request.graph, one.front().nodes);
  one.front().device_ids = {device.id};
  if (!is_valid(request, one)) return std::nullopt;
  return finish(request, std::move(one));
}

}  // namespace

std::optional<std::vector<Partition>> by_size(const Request& request) {
  auto mended = greedy(request, false);
  auto original = greedy(request, true);
  if (!mended || !original) return mended ? std::move(mended) : std::move(original);
  // Comparisons with an unknown cost are false.
  if (finish(request, *original).cost < finish(request, *mended).cost) return original;
  return mended;
}

void add_usual_starts(const Request& request, Search& search) {
  if (auto partitions = by_size(request)) search.add_partitions(std::move(*partitions));
  for (Placement& start : interval_starts(search.table(), request.devices)) {
    search.add(std::move(start));
  }
}

void add_last_starts(const Request& request, Search& search) {
  const OpTable& table = search.table();
  const std::int64_t largest = request.devices[largest_device(request.devices)].memory;
  constexpr std::size_t kManyOps = 4000;  // clusters take quadratic time
  if (table.size() <= kManyOps) {
    search.add(by_clusters(table, request.devices, largest));
    search.add(by_clusters(table, request.devices, largest / 2));
  }
  search.add(by_finish_time(table, request.devices));
  if (!search.empty()) return;
  // Large ops after many small ones: backtracking meets them last, and runs out of tries.
  Placement spread = least_overflow(table, request.devices);
  if (spread.fits()) search.add(std::move(spread));
  constexpr std::int64_t kPlacements = 300'000;
  search.add(by_backtracking(table, request.devices, kPlacements));
}

std::optional<Answer> all_on_one(const Request& request) {
  return all_on(request, request.devices[largest_device(request.devices)]);
}

Outcome<Answer, Infeasible> single(const Request& request) {
  const std::size_t device = find_device(request.devices, request.device_id);
  if (device == request.devices.size()) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.single] everything on device {}; expected a device's "
                            "logical_id",
                            request.device_id));
  }
  if (auto answer = all_on(request, request.devices[device])) return std::move(*answer);
  const auto all = count_up<OpIndex>(request.graph.num_nodes());
  return too_small(request, device, used_bytes(request, device_bytes(request.graph, all)),
                   "use a larger device, or another mode: this one does not cut");
}

Outcome<Answer, Infeasible> size(const Request& request) {
  if (auto answer = all_on_one(request)) return std::move(*answer);
  if (auto partitions = by_size(request)) return finish(request, std::move(*partitions));
  Search search(request, 1);
  add_usual_starts(request, search);
  if (search.empty()) add_last_starts(request, search);
  if (auto best = search.best()) return std::move(*best);
  return no_room(request, search.table());
}

}  // namespace kerf::partition::fx
