// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/ingest/dnn_partitioning.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "kerf/base/file.h"
#include "kerf/base/json.h"
#include "kerf/base/quantity.h"
#include "kerf/place/load_plan.h"

namespace kerf {
namespace {

constexpr double kEqualCost = 1e-6;  // relative

// true or 1, false or 0.
bool read_flag(const JsonReader& json, std::string_view key) {
  return json.child(key).type() == JsonType::boolean ? json.boolean(key)
                                                     : json.integer(key, 0, 1) == 1;
}

LoadNode read_node(const JsonReader& json) {
  LoadNode node;
  node.id = json.integer("id");
  if (json.has("name")) node.name = json.text("name");
  node.accelerator_time = read_quantity(json, "fpgaLatency");
  node.cpu_time = read_quantity(json, "cpuLatency");
  if (json.has("size")) node.bytes = read_quantity(json, "size");
  if (json.has("supportedOnFpga")) {
    node.on_accelerator = read_flag(json, "supportedOnFpga");
  }
  if (json.has("supportedOnCpu")) {
    node.on_cpu = read_flag(json, "supportedOnCpu");
  }
  if (json.has("isBackwardNode")) {
    node.backward = read_flag(json, "isBackwardNode");
  }
  if (json.has("colorClass") && json.child("colorClass").type() != JsonType::null) {
    node.colour = json.integer("colorClass");
  }
  return node;
}

}  // namespace

LoadProblem parse_dnn_partitioning(std::string_view text, std::string_view source) {
  const JsonDocument document = parse_json(text, source, ErrorKind::invalid_graph);
  const JsonReader reader(document);
  LoadProblem problem;
  problem.name = std::string(source);
  problem.num_accelerators = static_cast<int>(reader.integer("maxFPGAs", 0, 1 << 20));
  problem.num_cpus = static_cast<int>(reader.integer("maxCPUs", 0, 1 << 20));
  // Sums of sizes are rounded: what is over by no more than that fits.
  constexpr double kRounding = 1e-12;
  problem.memory = read_quantity(reader, "maxSizePerFPGA") * (1 + kRounding);
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
    const double transfer = read_quantity(child, "cost");
    if (cost[from] &&
        std::abs(*cost[from] - transfer) > kEqualCost * std::max(*cost[from], transfer)) {
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
  forbid_large_times(problem);
  return problem;
}

namespace {

class SplitReader {
 public:
  SplitReader(const LoadProblem& problem, const JsonReader& reader)
      : problem_(problem), reader_(reader), device_(problem.nodes.size()) {
    for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) by_id_[problem.nodes[n].id] = n;
  }

  std::vector<SlotId> run() {
    if (reader_.has("fpgas")) {
      read_published();
    } else {
      read_map(reader_.has("assignment") ? reader_.child("assignment") : reader_);
    }
    for (std::size_t n = 0; n < device_.size(); ++n) {
      if (!device_[n].valid()) {
        reader_.fail(fmt::format("no device for node {}", problem_.nodes[n].id),
                     "one for every node of the problem");
      }
    }
    return std::move(device_);
  }

 private:
  void place(const JsonReader& where, std::int64_t id, SlotId device) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) {
      where.fail(fmt::format("node {}", id), "the id of a node of the problem");
    }
    if (device_[found->second].valid()) {
      where.fail(fmt::format("node {} a second time", id), "each node once");
    }
    device_[found->second] = device;
  }

  // {"<id>": 0, "<id>": "cpu"}.
  void read_map(const JsonReader& map) {
    if (map.type() != JsonType::object) map.fail("no object", "node ids with their devices");
    for (const auto& [key, value] : map.fields()) {
      std::int64_t id = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size()) {
        map.fail(fmt::format("the key '{}'", key), "the id of a node");
      }
      const Json device = value.to_json();
      if (value.type() == JsonType::string && value.as_text() == "cpu" && problem_.num_cpus > 0) {
        place(map, id, problem_.cpu());
      } else if (device.is_number_integer() && device.get<std::int64_t>() >= 0 &&
                 device.get<std::int64_t>() < problem_.num_accelerators) {
        place(map, id, SlotId{device.get<std::int64_t>()});
      } else {
        map.fail(
            fmt::format("node {} on {}", key, device.dump()),
            fmt::format("an accelerator from 0 to {}, or \"cpu\"", problem_.num_accelerators - 1));
      }
    }
  }

  // {"fpgas": [{"nodes": [..]}, ..], "cpus": [{"nodes": [..]}, ..]}; also bare lists of ids.
  void read_published() {
    SlotId next{0};
    for (const JsonReader& device : reader_.children("fpgas")) {
      if (next >= problem_.cpu()) {
        device.fail("one accelerator too many", fmt::format("{}", problem_.num_accelerators));
      }
      read_nodes(device, next);
      ++next;
    }
    if (!reader_.has("cpus")) return;
    int cpus = 0;
    for (const JsonReader& device : reader_.children("cpus")) {
      const bool bare = device.type() == JsonType::array;
      const bool empty = (bare ? device.elements() : device.children("nodes")).empty();
      if (!empty && ++cpus > problem_.num_cpus) {
        device.fail("one CPU too many", fmt::format("{}", problem_.num_cpus));
      }
      read_nodes(device, problem_.cpu());
    }
  }
  void read_nodes(const JsonReader& device, SlotId number) {
    const bool bare = device.type() == JsonType::array;
    for (const JsonReader& id : bare ? device.elements() : device.children("nodes")) {
      place(id, id.as_integer(), number);
    }
  }

  const LoadProblem& problem_;
  const JsonReader& reader_;
  std::vector<SlotId> device_;
  std::unordered_map<std::int64_t, std::uint32_t> by_id_;
};

}  // namespace

std::vector<SlotId> parse_split(const LoadProblem& problem, std::string_view text,
                                std::string_view source) {
  const JsonDocument document = parse_json(text, source, ErrorKind::invalid_plan);
  const JsonReader reader(document);
  if (reader.has("format")) check_format_header(document, kLoadPlanFormat, kLoadPlanVersion);
  return SplitReader(problem, reader).run();
}

std::optional<SplitClaim> parse_split_claim(std::string_view text, std::string_view source) {
  const JsonDocument document = parse_json(text, source, ErrorKind::invalid_plan);
  const JsonReader reader(document);
  const bool claims = reader.has("problem") && reader.has("minimised") && reader.has("objective");
  if (!reader.has("format") || !claims) return std::nullopt;
  return SplitClaim{reader.text("problem"), parse_objective(reader.text("minimised")),
                    reader.number("objective")};
}

LoadProblem load_dnn_partitioning(const std::string& path) {
  return parse_dnn_partitioning(read_file(path), path);
}

}  // namespace kerf
