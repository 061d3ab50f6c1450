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

// By storage: the block of the node that made it; 0 for none, and for what comes from outside.
std::vector<std::uint32_t> blocks_of_storages(const Graph& graph,
                                              const std::vector<std::uint32_t>& blocks) {
  std::vector<std::uint32_t> made_in(graph.storages().size(), 0);
  std::vector<bool> seen(made_in.size());
  const auto note = [&](ValueId id, std::uint32_t block) {
    const Value& value = graph.value(id);
    if (value.scalar || seen[value.storage.index()]) return;
    seen[value.storage.index()] = true;
    made_in[value.storage.index()] = block;
  };
  for (const auto& input : graph.inputs()) note(input.value, 0);
  for (const Weight& weight : graph.weights()) note(weight.value, 0);
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId id : graph.nodes()[n].outputs) {
      if (id.valid()) note(id, blocks[n]);
    }
  }
  return made_in;
}

// Blocks whose second run would not be their first: what Python runs may count its calls; what
// others made must not be written twice; and a weight or buffer that a block writes and goes by is
// another the second time. What only its writers use (running statistics) changes nothing.
std::set<std::uint32_t> blocks_that_run_once(const Graph& graph,
                                             const std::vector<std::uint32_t>& blocks) {
  std::set<std::uint32_t> once;
  std::vector<bool> is_weight(graph.storages().size());
  for (const Weight& weight : graph.weights()) {
    is_weight[graph.value(weight.value).storage.index()] = true;
  }
  const std::vector<std::uint32_t> made_in = blocks_of_storages(graph, blocks);
  std::set<std::pair<std::uint32_t, StorageId>> written;  // weights, by block
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    if (blocks[n] == 0) continue;
    if (graph.nodes()[n].op == "opaque") once.insert(blocks[n]);
    for (const StorageId storage : graph.writes(NodeId{n})) {
      if (is_weight[storage.index()]) {
        written.emplace(blocks[n], storage);
      } else if (made_in[storage.index()] != blocks[n]) {
        once.insert(blocks[n]);
      }
    }
  }
  for (std::size_t n = 0; n < graph.num_nodes() && !written.empty(); ++n) {
    const auto writes = graph.writes(NodeId{n});
    for (const ValueId id : graph.inputs_of(NodeId{n})) {
      const Value& value = graph.value(id);
      if (value.scalar || !written.contains({blocks[n], value.storage})) continue;
      if (std::find(writes.begin(), writes.end(), value.storage) == writes.end()) {
        once.insert(blocks[n]);
      }
    }
  }
  return once;
}

// By node the block that has it, and whether some node is in several.
struct NamedBlocks {
  std::vector<std::uint32_t> of;
  bool overlap = false;
};

// `counts[b]`: block b + 1 takes part.
NamedBlocks nodes_of_blocks(const Graph& graph, std::span<const std::string> names,
                            const std::vector<bool>& counts) {
  NamedBlocks out;
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
        if (counts[block - 1]) {
          out.overlap = !block_of_region.try_emplace(region, block).second || out.overlap;
        }
      }
    }
    for (std::size_t s = 0; s < graph.scopes().size(); ++s) {
      if (!is_within(known[s], name)) continue;
      found = true;
      if (!counts[block - 1]) continue;
      out.overlap = out.overlap || block_of_scope[s] != 0;
      if (block_of_scope[s] == 0) block_of_scope[s] = block;
    }
    if (found) continue;
    for (const std::string& region : regions) known.push_back(fmt::format("{}{}", kRegion, region));
    refuse_block(graph, name, known);
  }
  out.of.assign(graph.num_nodes(), 0);
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.nodes()[n];
    const auto region = block_of_region.find(node.region);
    const std::uint32_t by_scope = block_of_scope[node.scope.index()];
    const std::uint32_t by_region = region == block_of_region.end() ? 0 : region->second;
    out.overlap = out.overlap || (by_scope != 0 && by_region != 0);
    out.of[n] =
        by_scope == 0 || by_region == 0 ? by_scope + by_region : std::min(by_scope, by_region);
  }
  return out;
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
  const std::vector<bool> all(names.size(), true);
  NamedBlocks named = nodes_of_blocks(graph, names, all);
  if (!named.overlap) {
    const std::set<std::uint32_t> once = blocks_that_run_once(graph, named.of);
    for (std::uint32_t& block : named.of) {
      if (once.contains(block)) block = 0;
    }
    return named.of;
  }
  // A block can run again or not by what it is, not by what others have of it.
  std::vector<bool> can(names.size());
  for (std::size_t b = 0; b < names.size(); ++b) {
    const auto alone = nodes_of_blocks(graph, names.subspan(b, 1), std::vector<bool>{true}).of;
    can[b] = blocks_that_run_once(graph, alone).empty();
  }
  return nodes_of_blocks(graph, names, can).of;
}

std::vector<std::string> recomputed_without(const Graph& graph, std::string_view mode,
                                            std::span<const std::string> exempt) {
  const auto is_exempt = [&](std::string_view path) {
    return std::any_of(exempt.begin(), exempt.end(),
                       [&](const std::string& name) { return is_within(path, name); });
  };
  std::vector<std::string> out;
  for (const std::string& block : recomputed_by(graph, mode)) {
    const bool splits = std::any_of(exempt.begin(), exempt.end(), [&](const std::string& name) {
      return is_within(name, block) && name != block;
    });
    if (is_exempt(block)) continue;
    if (!splits) {
      out.push_back(block);
      continue;
    }
    // The outermost modules in it that have nothing exempt in them.
    for (const Scope& scope : graph.scopes()) {
      const std::string& path = scope.path;
      const bool inside = is_within(path, block) && path != block && !is_exempt(path);
      const bool clean = std::none_of(exempt.begin(), exempt.end(), [&](const std::string& name) {
        return is_within(name, path);
      });
      const bool taken = std::any_of(out.begin(), out.end(), [&](const std::string& before) {
        return is_within(path, before);
      });
      if (inside && clean && !taken) out.push_back(path);
    }
  }
  return out;
}

std::vector<std::string> recomputed_but_last(const Graph& graph,
                                             std::span<const std::string> blocks,
                                             std::span<const NodeId> last_stage) {
  std::vector<bool> in_last(graph.num_nodes());
  for (const NodeId node : last_stage) in_last[node.index()] = true;
  const std::vector<std::uint32_t> block_of = recompute_blocks(graph, blocks);
  std::vector<bool> outside(blocks.size());
  for (std::size_t n = 0; n < block_of.size(); ++n) {
    if (block_of[n] != 0 && !in_last[n]) outside[block_of[n] - 1] = true;
  }
  std::vector<std::string> out;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (outside[b]) out.push_back(blocks[b]);
  }
  return out;
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
