// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the mended cost modes share: starts are improved, partitions formed, the best kept.
//
// Why not the searches of kerf/place: they level what devices do, and here only a path counts; an
// edge's bytes depend on both of its ends, and a device's memory on what it reads from elsewhere,
// neither of which an Instance has. Tried on 160 requests of benchmarks/fx_partitioner's families
// (both cost models) and 3,744 random ones, with an FX graph lowered to an Instance:
//   metis_starts among the starts                   54 plans more expensive, 111 cheaper
//   metis_starts instead of clusters, finish times  136 more expensive, 128 cheaper, 20 no longer
//   found fill_memory instead of finish times             21 more expensive, 31 cheaper
// More starts can make a plan more expensive because the work that all of them share is limited.
#pragma once

#include <optional>

#include "kerf/partition/fx/improve.h"
#include "kerf/partition/fx/starts.h"

namespace kerf::partition::fx {

// Throws Error(invalid_argument) for devices, sizes or latencies that no mode can use.
void check_request(const Request& request);

// Every op in one partition, every partition on known devices, no cycle, every device within its
// memory by the request's accounting.
bool is_valid(const Request& request, std::span<const Partition> partitions);

// Cost, serial cost and bytes of partitions that stay as they are. Numbers are kept.
Answer finish(const Request& request, std::vector<Partition> partitions);

// By device of the request, whatever the partitions are.
std::vector<DeviceBytes> bytes_by_device(const Request& request,
                                         std::span<const Partition> partitions);

// `device` would hold `bytes`.
Infeasible too_small(const Request& request, std::size_t device, std::int64_t bytes,
                     std::string help);

// Why nothing fits: the device that is shortest of memory when the ops are spread by room, or the
// node that fits nowhere.
Infeasible no_room(const Request& request, const OpTable& table);

class Search {
 public:
  // `effort`: work a squared op; the limit of the request, if any, counts instead.
  Search(const Request& request, std::int64_t effort);

  const OpTable& table() const { return table_; }
  std::span<const Device> devices() const { return request_.devices; }
  std::int64_t work() const { return work_; }

  // A start, or nothing.
  void add(std::optional<Placement> start);
  // Partitions of the original: a candidate as they are, and a start. Ignored when not valid.
  void add_partitions(std::vector<Partition> partitions);
  void improve_best(int kicks);
  std::optional<Answer> best();
  bool empty() const { return found_.empty() && given_.empty(); }

 private:
  struct Found {
    Placement placement;
    Score score;
  };
  const Request& request_;
  OpTable table_;
  std::int64_t work_;
  Improver improver_;
  std::vector<Found> found_;  // best first
  std::vector<std::vector<Partition>> given_;
};

}  // namespace kerf::partition::fx
