// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/recompute.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "kerf/base/error.h"
#include "kerf/base/nearest_name.h"

namespace kerf {
namespace {

constexpr std::string_view kRegion = "region:";

[[noreturn]] void refuse_recompute(const std::string& message) {
  throw Error(ErrorKind::invalid_argument, "[plan.recompute] " + message);
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The shortest beginning of a module's path that ends with a number: "h.0" of "h.0.attn"; empty
// when there is none.
std::string_view numbered_part(std::string_view path) {
  for (std::size_t start = 0; start < path.size();) {
    const std::size_t end = std::min(path.find('.', start), path.size());
    if (is_number(path.substr(start, end - start))) return path.substr(0, end);
    start = end + 1;
  }
  return {};
}

std::string_view first_part(std::string_view path) { return path.substr(0, path.find('.')); }

// Each once, in the order of the nodes that have one.
template <class NameOf>
std::vector<std::string> names_of_nodes(const Graph& graph, NameOf&& name_of) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Node& node : graph.nodes()) {
    std::string name(name_of(node));
    if (!name.empty() && seen.insert(name).second) names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> region_names(const Graph& graph) {
  return names_of_nodes(graph, [](const Node& node) {
    // Nested regions are computed again with the outermost.
    const std::string_view outer = std::string_view(node.region).substr(0, node.region.find('/'));
    return node.region.empty() ? std::string() : fmt::format("{}{}", kRegion, outer);
  });
}

std::vector<std::string> layer_names(const Graph& graph) {
  const auto part_of = [&](auto&& part) {
    return names_of_nodes(
        graph, [&](const Node& node) { return std::string(part(graph.scope(node.scope).path)); });
  };
  std::vector<std::string> layers = part_of(numbered_part);
  return layers.empty() ? part_of(first_part) : layers;
}

bool is_mode(std::string_view text) {
  const std::vector<std::string> modes = recompute_modes();
  return std::find(modes.begin(), modes.end(), text) != modes.end();
}

// A name that no block has, among those that some have.
[[noreturn]] void refuse_block(const Graph& graph, const std::string& name,
                               std::span<const std::string> known) {
  constexpr std::size_t kMostNames = 3;
  std::string hint = nearest_name_hint(name, known);
  if (is_mode(name)) hint = fmt::format("; for the mode write '{}' without a list", name);
  if (hint.empty()) {
    std::vector<std::string> layers = layer_names(graph);
    if (layers.size() > kMostNames) layers.resize(kMostNames);
    if (!layers.empty()) hint = fmt::format(", such as {}", fmt::join(layers, ", "));
  }
  refuse_recompute(fmt::format("{} to recompute; expected the path of a module of '{}'{}",
                               name.empty() ? "an empty name" : fmt::format("no module '{}'", name),
                               graph.name(), hint));
}

// Is `path` the module at `name`, or inside of it?
bool is_within(std::string_view path, std::string_view name) {
  if (name.empty()) return true;
  if (!path.starts_with(name)) return false;
  return path.size() == name.size() || path[name.size()] == '.' || path[name.size()] == '/';
}

}  // namespace

std::vector<std::string> recompute_modes() { return {"auto", "none", "all", "as_traced"}; }

RecomputeChoice parse_recompute(const std::string& text) {
  if (is_mode(text)) return {text};
  const bool is_path = text.find_first_of(".,:") != std::string::npos;
  if (!is_path && !nearest_name(text, recompute_modes()).empty()) return {text};
  std::vector<std::string> blocks;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    blocks.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return {{}, std::move(blocks)};
}

std::vector<std::string> recomputed_by(const Graph& graph, std::string_view mode) {
  if (mode == "none" || mode == "auto") return {};
  if (mode == "all") return layer_names(graph);
  if (mode == "as_traced") return region_names(graph);
  const std::vector<std::string> modes = recompute_modes();
  const bool is_module = std::any_of(graph.scopes().begin(), graph.scopes().end(),
                                     [&](const Scope& scope) { return scope.path == mode; });
  refuse_recompute(fmt::format(
      "unknown mode '{}'; expected one of {}, or a list of modules{}", mode, fmt::join(modes, ", "),
      is_module && !mode.empty() ? fmt::format("; for the module of that name write ['{}']", mode)
                                 : nearest_name_hint(mode, modes)));
}

std::vector<std::string> chosen_blocks(const Graph& graph, const RecomputeChoice& choice) {
  if (!choice.blocks) return recomputed_by(graph, choice.mode);
  recompute_blocks(graph, *choice.blocks);  // refuses names that nothing has
  std::vector<std::string> chosen;
  for (const std::string& name : *choice.blocks) {
    const bool is_there = std::any_of(chosen.begin(), chosen.end(), [&](const std::string& before) {
      return is_within(name, before);
    });
    if (!is_there) chosen.push_back(name);
  }
  return chosen;
}

std::vector<std::uint32_t> recompute_blocks(const Graph& graph,
                                            std::span<const std::string> names) {
  std::vector<std::uint32_t> block_of_scope(graph.scopes().size(), 0);
  std::unordered_map<std::string, std::uint32_t> block_of_region;
  std::vector<std::string> known;
  for (const Scope& scope : graph.scopes()) known.push_back(scope.path);
  std::set<std::string> regions;
  for (const Node& node : graph.nodes()) {
    if (!node.region.empty()) regions.insert(node.region);
  }
  for (std::uint32_t block = 1; block <= names.size(); ++block) {
    const std::string& name = names[block - 1];
    if (name.empty()) refuse_block(graph, name, known);
    bool found = false;
    if (name.starts_with(kRegion)) {
      const std::string_view wanted = std::string_view(name).substr(kRegion.size());
      for (const std::string& region : regions) {
        if (!is_within(region, wanted)) continue;
        found = true;
        block_of_region.try_emplace(region, block);
      }
    }
    for (std::size_t s = 0; s < known.size(); ++s) {
      if (!is_within(known[s], name)) continue;
      found = true;
      if (block_of_scope[s] == 0) block_of_scope[s] = block;
    }
    if (found) continue;
    for (const std::string& region : regions) known.push_back(fmt::format("{}{}", kRegion, region));
    refuse_block(graph, name, known);
  }
  std::vector<std::uint32_t> blocks(graph.num_nodes(), 0);
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.nodes()[n];
    const auto region = block_of_region.find(node.region);
    const std::uint32_t by_scope = block_of_scope[node.scope.index()];
    const std::uint32_t by_region = region == block_of_region.end() ? 0 : region->second;
    blocks[n] =
        by_scope == 0 || by_region == 0 ? by_scope + by_region : std::min(by_scope, by_region);
  }
  return blocks;
}

std::vector<RegionNumber> recompute_regions(const Graph& graph,
                                            std::span<const std::string> blocks) {
  std::unordered_map<std::uint32_t, RegionNumber> numbers;
  std::vector<RegionNumber> regions;
  for (const std::uint32_t block : recompute_blocks(graph, blocks)) {
    const auto next = static_cast<RegionNumber>(numbers.size());
    regions.push_back(block == 0 ? kNoRegion : numbers.try_emplace(block, next).first->second);
  }
  return regions;
}

std::vector<bool> trained_storages(const Graph& graph) {
  std::vector<bool> trained(graph.storages().size());
  for (const Weight& weight : graph.weights()) {
    const Value& value = graph.value(weight.value);
    if (value.requires_grad) trained[value.storage.index()] = true;
  }
  return trained;
}

}  // namespace kerf
