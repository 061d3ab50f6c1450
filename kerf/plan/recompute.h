// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What a training step computes twice: forward without keeping anything but inputs, and again in
// backward. Said by names of blocks: the path of a module ("transformer.h.0": all that runs in it),
// or "region:0/1", a region that the model's own code checkpoints. A block that is cut by a stage's
// border is one block in each of the stages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/profile/saved/regions.h"

namespace kerf {

// As users say it: a mode, or in its place a list of blocks.
struct RecomputeChoice {
  std::string mode = "auto";
  std::optional<std::vector<std::string>> blocks = {};

  std::string name() const { return blocks ? "list" : mode; }
};

// The modes by name: auto, none, all, as_traced.
std::vector<std::string> recompute_modes();

// From one text: a mode, or paths of modules with commas between them. What is neither, and near a
// mode, stays a mode, for whoever reads it to refuse with the nearest.
RecomputeChoice parse_recompute(const std::string& text);

// The blocks that a mode names:
//   none       nothing
//   all        the outermost numbered modules (the layers of a ModuleList or Sequential), or, when
//              there are none, the modules that the model itself has
//   as_traced  the regions that the model checkpoints
//   auto       nothing yet: the planner adds what memory asks for
// Throws Error(invalid_argument) for another mode, with the nearest one, or with how to write a
// list where it is a module.
std::vector<std::string> recomputed_by(const Graph& graph, std::string_view mode);

// By node: 0, or the number of its block from 1 on. The first block that has a node has it; nodes
// of a block that cannot run twice (it writes what it was given, or a weight that it goes by, or
// has a part that runs as Python) have none. Throws Error(invalid_argument) for a name that the
// graph does not have, with the nearest one.
std::vector<std::uint32_t> recompute_blocks(const Graph& graph, std::span<const std::string> names);

// The blocks of a choice, each once, and none that lies within one before it. Throws as the two
// above do.
std::vector<std::string> chosen_blocks(const Graph& graph, const RecomputeChoice& choice);

// The modules and regions that a mode names, without those that are exempt (paths): a block around
// an exempt module makes room for the modules in it that are not; its own operators are kept.
std::vector<std::string> recomputed_without(const Graph& graph, std::string_view mode,
                                            std::span<const std::string> exempt);

// Of the blocks those that run again when the last stage keeps what it has: all
// with a node outside of it. A block that its border cuts runs again in both stages.
std::vector<std::string> recomputed_but_last(const Graph& graph,
                                             std::span<const std::string> blocks,
                                             std::span<const NodeId> last_stage);

// The regions that find_saved takes, numbered from 0 in order of first node.
std::vector<RegionNumber> recompute_regions(const Graph& graph,
                                            std::span<const std::string> blocks);

// By storage: is it a weight whose gradient is asked for?
std::vector<bool> trained_storages(const Graph& graph);

}  // namespace kerf
