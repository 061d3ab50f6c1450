// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What blocks that are computed again can free at most, and so what must be computed again at
// least, for given stages on given devices. Private to partition/training/.
//
// Let a plan that computes nothing again exceed the limit of a memory by E. A set S of blocks fits
// only if it takes E away from the moment of the plan's peak, since the peak of S is no lower than
// what S has at that moment, and the schedule does not depend on S. At any moment a device holds,
// for each of its stages s, what at most A(s) micro-batches keep for their backward, the one that
// runs included. What S takes away from a micro-batch is
//   - a storage (or an operator's own tensor) that is kept without S and not with it. All nodes
//     that keep it are then in one block of S, and so are the makers of the values they keep:
//     whatever a block reads from outside of it is kept. So that block alone, too, would free the
//     storage, and each such storage is counted by a block of S: freed(b, s).
//   - while the backward of s runs, in its one micro-batch, a storage that is kept all the same
//     and released earlier: with S only nodes outside of its block keep it. It was made in a block
//     of S, and is kept without S by nodes of that block: early(b, s).
// All else that S changes comes on top: inputs of blocks that are kept now, and what a block has
// while it runs again. Hence S takes away at most the sum over its blocks b, and over the stages s
// of that memory's devices, of
//   A(s) freed(b, s) + early(b, s),
// and what S costs is at least the cheapest choice, for each memory by itself, of parts of blocks
// whose figures cover E. The test tries all sets of small problems.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf::partition {

// A block's part in the stages on the devices of one memory.
struct BlockPart {
  double time = 0;         // ns a micro-batch that it adds, whatever other blocks are taken
  std::int64_t freed = 0;  // bytes that it takes away at most
};

class BlockFigures {
 public:
  // `bare` computes nothing again; the problem must outlive the object.
  BlockFigures(const Problem& problem, const Plan& bare, std::vector<std::string> names);

  std::size_t num_blocks() const { return names_.size(); }
  const std::string& name(std::size_t block) const { return names_[block]; }
  const BlockPart& part(int memory, std::size_t block) const {
    return parts_[static_cast<std::size_t>(memory)][block];
  }
  // It has nodes that another block has, too: the first of those taken has them.
  bool overlaps(std::size_t block) const { return overlaps_[block]; }
  // What a set adds to a micro-batch, of all devices; blocks in the order in which they are given.
  double added_time(std::span<const std::size_t> blocks) const;
  // No set of blocks that frees these bytes (by memory) adds less. kInfinity: none frees them.
  double least_time(std::span<const std::int64_t> wanted) const;

 private:
  struct Place {
    std::uint32_t stage;
    double time;  // of its forward, there
    bool backward;
  };

  const Plan& plan_;
  std::vector<std::string> names_;
  std::vector<Place> nodes_;                        // by node
  std::vector<std::vector<std::uint32_t>> blocks_;  // by node: the blocks that have it, ascending
  std::vector<std::vector<BlockPart>> parts_;       // by memory and block
  std::vector<bool> overlaps_;                      // by block
};

// The least time of parts, each taken or not, that free `wanted` together; kInfinity when all do
// not. Where there are too many combinations of unlike parts: with parts taken in part, which is no
// more.
double cheapest_cover(std::span<const BlockPart> parts, std::int64_t wanted);

}  // namespace kerf::partition
