// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Measured costs of blocks, kept in a folder by what the blocks do and what they were measured on.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kerf/profile/block_cost.h"
#include "kerf/profile/profile.h"

namespace kerf {

// What a measurement depends on beside the block, in the order in which it is looked at: "torch",
// "2.13.0"; "device", the full name; and so on.
using MeasuringConditions = std::vector<std::pair<std::string, std::string>>;

// A block's own times and bytes; sizes that follow from shapes are not among them.
struct KnownBlock {
  BlockCost cost;
  std::vector<NodeCost> nodes;  // by node of the block, ascending
};

// One file for each block and set of conditions, "<signature>-<hash>.json", "kerf-block" 1.0,
// written under another name and then renamed: any number of processes may share a folder. What
// cannot be read counts as not there, and what cannot be written is left out; `notes` says so.
class BlockCache {
 public:
  // An empty folder: nothing is found and nothing kept.
  BlockCache(std::string folder, MeasuringConditions conditions);

  // Counts it as a hit, or as a miss with the reason.
  std::optional<KnownBlock> find(const std::string& signature, std::size_t num_nodes);
  // A block that no cache can know.
  void skip(const std::string& why) { miss(why); }
  void store(const std::string& signature, const KnownBlock& block);

  CacheUse use() const;
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::string path(const std::string& signature) const;
  std::string why_missing(const std::string& signature) const;
  void miss(const std::string& why);

  std::string folder_;
  MeasuringConditions conditions_;
  std::string conditions_hash_;
  std::multimap<std::string, std::string> files_;  // by signature
  std::int64_t hits_ = 0;
  std::int64_t misses_ = 0;
  std::map<std::string, std::int64_t> reasons_;
  std::vector<std::string> notes_;
  bool writable_ = true;
};

}  // namespace kerf
