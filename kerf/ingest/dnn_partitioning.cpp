// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/ingest/dnn_partitioning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "kerf/base/file.h"
#include "kerf/base/json.h"

namespace kerf {
namespace {

constexpr double kEqualCost = 1e-6;

LoadNode read_node(const JsonReader& json) {
  LoadNode node;
  node.id = json.integer("id");
  if (json.has("name")) node.name = json.text("name");
  node.accelerator_time = json.number("fpgaLatency");
  node.cpu_time = json.number("cpuLatency");
  if (json.has("size")) node.bytes = json.number("size");
  if (json.has("supportedOnFpga")) {
    const Json& supported = json.json().at("supportedOnFpga");
    node.on_accelerator = supported.is_boolean() ? supported.get<bool>()
                                                 : json.integer("supportedOnFpga", 0, 1) == 1;
  }
  if (json.has("isBackwardNode")) {
    const Json& backward = json.json().at("isBackwardNode");
    node.backward =
        backward.is_boolean() ? backward.get<bool>() : json.integer("isBackwardNode", 0, 1) == 1;
  }
  if (json.has("colorClass") && !json.json().at("colorClass").is_null()) {
    node.colour = json.integer("colorClass");
  }
  return node;
}

}  // namespace

LoadProblem parse_dnn_partitioning(std::string_view text, std::string_view source) {
  const Json json = parse_json(text, source, ErrorKind::invalid_graph);
  const JsonReader reader(json, std::string(source), ErrorKind::invalid_graph);
  LoadProblem problem;
  problem.name = std::string(source);
  problem.num_accelerators = static_cast<int>(reader.integer("maxFPGAs", 0, 1 << 20));
  problem.num_cpus = static_cast<int>(reader.integer("maxCPUs", 0, 1 << 20));
  problem.memory = reader.number("maxSizePerFPGA");
  std::unordered_map<std::int64_t, std::uint32_t> by_id;
  for (const JsonReader& child : reader.children("nodes")) {
    LoadNode node = read_node(child);
    const auto number = static_cast<std::uint32_t>(problem.nodes.size());
    if (!by_id.try_emplace(node.id, number).second) {
      child.fail(fmt::format("a second node with id {}", node.id), "ids that differ");
    }
    problem.nodes.push_back(std::move(node));
  }
  problem.successors.resize(problem.nodes.size());
  std::vector<std::optional<double>> cost(problem.nodes.size());
  for (const JsonReader& child : reader.children("edges")) {
    const auto find = [&](const char* key) {
      const auto found = by_id.find(child.integer(key));
      if (found == by_id.end()) {
        child.fail(fmt::format("{} {}", key, child.integer(key)), "the id of a node");
      }
      return found->second;
    };
    const std::uint32_t from = find("sourceId");
    const std::uint32_t to = find("destId");
    const double transfer = child.number("cost");
    if (transfer < 0) child.fail(fmt::format("a cost of {}", transfer), "a number from 0");
    if (cost[from] && std::abs(*cost[from] - transfer) > kEqualCost) {
      child.fail(fmt::format("a cost of {} for the output of node {}, which costs {} on another "
                             "edge",
                             transfer, problem.nodes[from].id, *cost[from]),
                 "one cost for all edges out of a node: they carry one tensor");
    }
    if (!cost[from]) cost[from] = transfer;
    problem.successors[from].push_back(to);
  }
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    auto& next = problem.successors[n];
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    problem.nodes[n].transfer = cost[n].value_or(0);
  }
  check_load_problem(problem);
  return problem;
}

LoadProblem load_dnn_partitioning(const std::string& path) {
  return parse_dnn_partitioning(read_file(path), path);
}

}  // namespace kerf
