// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kerf/place/acyclic/goal.h"
#include "kerf/place/instance.h"

namespace kerf::place::acyclic {

// The part of every vertex: the order in consecutive runs, the best ones for the goal, by dynamic
// programming. Long orders are cut between blocks of about equal weight. Where no runs keep the
// limits they are stretched, memory last. Adds what it did to `work`.
// place/cut/cut_order knows neither edge cuts nor limits that stretch, which the edge cuts of
// benchmarks/scale (`tile`) need; this one knows neither classes of devices nor sums of times.
Split cut_order(const Instance& level, const Goal& goal, std::span<const UnitId> order,
                double& work);

// Moves the borders of a partition along an order of its parts' vertices, part after part: the best
// runs whose ends are borders of blocks, small ones within `zone` (a share) of the ends of a part.
// Never worse where the partition keeps its limits.
Split cut_again(const Instance& level, const Goal& goal, std::span<const SlotId> part,
                std::span<const UnitId> order, double zone, double& work);

}  // namespace kerf::place::acyclic
