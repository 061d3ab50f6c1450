// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/coarsen.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "kerf/base/error.h"
#include "kerf/base/nearest_name.h"
#include "kerf/graph/derive_impl.h"

namespace kerf {
namespace {

// The module around another; nothing for the model itself.
std::string_view around(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

bool is_transparent(const Scope& scope) {
  return scope.class_name == "ModuleList" || scope.class_name == "ModuleDict";
}

class BlockFinder {
 public:
  BlockFinder(const Graph& graph, const Coarseness& coarseness)
      : graph_(graph), coarseness_(coarseness) {
    for (std::size_t s = 0; s < graph.scopes().size(); ++s) {
      std::string_view path = graph.scopes()[s].path;
      by_path_.emplace(path, s);
      // Modules between may have no scope: a graph names those that something runs in.
      while (!path.empty()) {
        path = around(path);
        if (!parents_.insert(path).second) break;
      }
    }
    check_basic_blocks();
    for (std::size_t s = 0; s < graph.scopes().size(); ++s) block_of_.push_back(find_block(s));
  }

  std::vector<Block> find() const {
    std::vector<Block> out;
    std::size_t last = kNone;  // the block that the node before is in
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      const std::size_t scope = graph_.node(NodeId(n)).scope.index();
      const std::size_t block = block_of_[scope];
      if (block == kNone) {
        out.push_back({graph_.scopes()[scope].path, true, {NodeId(n)}});
      } else if (block == last) {
        out.back().nodes.emplace_back(n);
      } else {
        out.push_back({graph_.scopes()[block].path, false, {NodeId(n)}});
      }
      last = block;
    }
    return out;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  bool is_named(const Scope& scope) const {
    const auto& names = coarseness_.basic_blocks;
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name == scope.class_name || (name == scope.path && !name.empty());
    });
  }

  void check_basic_blocks() const {
    for (const std::string& name : coarseness_.basic_blocks) {
      const auto names_it = [&](const Scope& scope) {
        return name == scope.class_name || (name == scope.path && !name.empty());
      };
      const auto& scopes = graph_.scopes();
      if (std::any_of(scopes.begin(), scopes.end(), names_it)) continue;
      std::vector<std::string> known;
      for (const Scope& scope : scopes) {
        known.push_back(scope.class_name);
        if (!scope.path.empty()) known.push_back(scope.path);
      }
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("[graph.coarsen] basic_blocks names '{}'; expected the class name or "
                              "the path of a module of the model{}",
                              name, nearest_name_hint(name, known)));
    }
  }

  // The modules from the model down to this one.
  std::vector<std::size_t> way_to(std::size_t scope) const {
    std::vector<std::size_t> out;
    std::string_view path = graph_.scopes()[scope].path;
    while (true) {
      if (const auto found = by_path_.find(path); found != by_path_.end()) {
        out.push_back(found->second);
      }
      if (path.empty()) break;
      path = around(path);
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  // The outermost module on the way to this one that is a block; kNone where all are opened.
  std::size_t find_block(std::size_t scope) const {
    int left = coarseness_.depth;
    for (const std::size_t s : way_to(scope)) {
      const Scope& module = graph_.scopes()[s];
      const bool leaf = !parents_.contains(module.path);
      if (is_transparent(module) && !is_named(module)) continue;
      if (left == 0 || leaf || is_named(module)) return s;
      left -= left > 0 ? 1 : 0;
    }
    return kNone;
  }

  const Graph& graph_;
  const Coarseness& coarseness_;
  std::unordered_map<std::string_view, std::size_t> by_path_;
  std::unordered_set<std::string_view> parents_;  // paths of modules that have modules
  std::vector<std::size_t> block_of_;             // by scope
};

}  // namespace

std::vector<Block> find_blocks(const Graph& graph, const Coarseness& coarseness) {
  if (coarseness.depth < kAllDepths) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[graph.coarsen] depth is {}; expected a whole number from 0 on; leave "
                            "it out to open all modules",
                            coarseness.depth));
  }
  return BlockFinder(graph, coarseness).find();
}

Graph coarsen(const Graph& graph, const Coarseness& coarseness) {
  std::vector<std::vector<NodeId>> groups;
  for (Block& block : find_blocks(graph, coarseness)) {
    if (block.nodes.size() > 1) groups.push_back(std::move(block.nodes));
  }
  return GraphDerivation::add_glue(graph, groups);
}

}  // namespace kerf
