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
#include "kerf/partition/fx/judge.h"
#include "kerf/partition/fx/starts.h"

namespace kerf::partition::fx {

// Partitions of a placement, as few as the cost allows. Ops of one device whose paths cross between
// devices equally often can form one without a cycle; they do when that does not raise the cost,
// else parts of them do.
std::vector<Partition> form_partitions(const Request& request, const OpTable& table,
                                       const Placement& placement);

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
