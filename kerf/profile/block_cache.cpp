// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/block_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "kerf/base/file.h"
#include "kerf/base/hash.h"
#include "kerf/base/json.h"
#include "kerf/base/quantity.h"

namespace kerf {
namespace {

constexpr FormatVersion kBlockVersion{1, 0};
constexpr std::string_view kBlockFormat = "kerf-block";
constexpr std::int64_t kMostCachedBytes = std::int64_t{1} << 48;

// What is kept of a node, by name.
struct TimeField {
  const char* name;
  Nanoseconds& (*of)(NodeCost& cost);
};
constexpr TimeField kTimes[] = {
    {"forward_ns", [](NodeCost& c) -> Nanoseconds& { return c.forward; }},
    {"forward_spread_ns", [](NodeCost& c) -> Nanoseconds& { return c.forward_spread; }},
    {"forward_issue_ns", [](NodeCost& c) -> Nanoseconds& { return c.forward_apart.issue; }},
    {"forward_device_ns", [](NodeCost& c) -> Nanoseconds& { return c.forward_apart.device; }},
    {"backward_ns", [](NodeCost& c) -> Nanoseconds& { return c.backward; }},
    {"backward_spread_ns", [](NodeCost& c) -> Nanoseconds& { return c.backward_spread; }},
    {"backward_weights_ns", [](NodeCost& c) -> Nanoseconds& { return c.backward_weights; }},
    {"backward_issue_ns", [](NodeCost& c) -> Nanoseconds& { return c.backward_apart.issue; }},
    {"backward_device_ns", [](NodeCost& c) -> Nanoseconds& { return c.backward_apart.device; }},
};

Json node_json(NodeCost cost) {
  Json out = Json::object();
  for (const TimeField& time : kTimes) out[time.name] = time.of(cost).count;
  out["workspace"] = cost.workspace().count;
  out["backward_workspace"] = cost.backward_workspace.count;
  out["samples"] = cost.samples;
  return out;
}

NodeCost node_from(const JsonReader& reader) {
  NodeCost cost;
  for (const TimeField& time : kTimes)
    time.of(cost) = Nanoseconds{read_quantity(reader, time.name)};
  cost.peak =
      Bytes{reader.integer("workspace", 0, kMostCachedBytes)};  // sizes are the graph's to say
  cost.backward_workspace = Bytes{reader.integer("backward_workspace", 0, kMostCachedBytes)};
  cost.samples = static_cast<int>(reader.integer("samples", 0, 1 << 30));
  return cost;
}

MeasuringConditions conditions_from(const JsonReader& reader) {
  MeasuringConditions out;
  for (const auto& [name, value] : reader.child("conditions").fields()) {
    out.emplace_back(name, value.as_text());
  }
  return out;
}

// Each condition of now that was another then, in words.
std::vector<std::string> differences(const MeasuringConditions& now,
                                     const MeasuringConditions& then) {
  std::vector<std::string> out;
  for (const auto& [name, value] : now) {
    const auto known = std::find_if(then.begin(), then.end(),
                                    [&](const auto& pair) { return pair.first == name; });
    if (known == then.end()) {  // of a Kerf that did not look at it
      out.push_back(fmt::format("other {}: '{}', measured without a word of it", name, value));
    } else if (known->second != value) {
      out.push_back(fmt::format("other {}: '{}', measured on '{}'", name, value, known->second));
    }
  }
  return out;
}

std::string hash_of(const MeasuringConditions& conditions) {
  Hasher hasher;
  for (const auto& [name, value] : conditions) hasher.add(name).add(value);
  return hasher.hex();
}

// Names of files in a folder; none where there is no folder.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    out.push_back(it->path().filename().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

BlockCache::BlockCache(std::string folder, MeasuringConditions conditions)
    : folder_(std::move(folder)),
      conditions_(std::move(conditions)),
      conditions_hash_(hash_of(conditions_)) {
  if (folder_.empty()) return;
  for (const std::string& name : names_in(folder_)) {
    if (!name.ends_with(".json")) continue;
    files_.emplace(name.substr(0, name.find('-')), folder_ + "/" + name);
  }
}

std::string BlockCache::path(const std::string& signature) const {
  return fmt::format("{}/{}-{}.json", folder_, signature, conditions_hash_);
}

void BlockCache::miss(const std::string& why) {
  ++misses_;
  ++reasons_[why];
}

// The record of the block with the fewest other conditions tells; the first of these is named.
std::string BlockCache::why_missing(const std::string& signature) const {
  std::string why = "new block";
  std::size_t fewest = conditions_.size() + 1;
  const auto [first, last] = files_.equal_range(signature);
  for (auto file = first; file != last; ++file) {
    try {
      const JsonDocument document = load_json(file->second, ErrorKind::invalid_profile);
      const std::vector<std::string> others =
          differences(conditions_, conditions_from(JsonReader(document)));
      if (others.empty() || others.size() >= fewest) continue;
      fewest = others.size();
      why = others.front();
    } catch (const Error&) {
      continue;  // damaged: another may tell
    }
  }
  return why;
}

std::optional<KnownBlock> BlockCache::find(const std::string& signature, std::size_t num_nodes) {
  if (folder_.empty()) {
    miss("no cache");
    return std::nullopt;
  }
  const std::string file = path(signature);
  std::error_code unreadable;  // a folder that cannot be looked into has nothing
  if (!std::filesystem::exists(file, unreadable)) {
    miss(why_missing(signature));
    return std::nullopt;
  }
  try {
    const JsonDocument document = load_json(file, ErrorKind::invalid_profile);
    check_format_header(document, kBlockFormat, kBlockVersion);
    const JsonReader reader(document);
    if (reader.text("signature") != signature || conditions_from(reader) != conditions_) {
      reader.fail("another block's figures", "those that the name of the file stands for");
    }
    KnownBlock block{block_cost_from_json(reader.child("block")), {}};
    for (const JsonReader& node : reader.children("nodes")) block.nodes.push_back(node_from(node));
    if (block.nodes.size() != num_nodes) {
      reader.fail(fmt::format("{} nodes", block.nodes.size()), fmt::format("{}", num_nodes));
    }
    ++hits_;
    return block;
  } catch (const Error& error) {
    notes_.push_back(
        fmt::format("measured again: a file of the cache is damaged: {}", error.what()));
    miss("damaged file");
    return std::nullopt;
  }
}

void BlockCache::store(const std::string& signature, const KnownBlock& block) {
  if (folder_.empty() || !writable_) return;
  Json json = format_header(kBlockFormat, kBlockVersion);
  json["signature"] = signature;
  json["conditions"] = Json::object();
  for (const auto& [name, value] : conditions_) json["conditions"][name] = value;
  json["block"] = to_json(block.cost);
  json["nodes"] = Json::array();
  for (const NodeCost& cost : block.nodes) json["nodes"].push_back(node_json(cost));
  try {
    std::filesystem::create_directories(folder_);
    write_file(path(signature), json.dump(1) + "\n");
  } catch (const std::exception& error) {
    writable_ = false;
    notes_.push_back(fmt::format("nothing was kept in the cache {}: {}", folder_, error.what()));
  }
}

CacheUse BlockCache::use() const {
  CacheUse out{folder_, hits_, misses_, {}};
  for (const auto& [why, count] : reasons_)
    out.reasons.push_back(fmt::format("{}: {}", why, count));
  return out;
}

}  // namespace kerf
