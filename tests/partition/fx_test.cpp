// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The FX family in C++. What the original does and where it fails is held against the installed
// PyTorch in tests/python/test_fx_*.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kerf/base/error.h"
#include "kerf/base/infinity.h"
#include "kerf/partition/fx/compat.h"
#include "kerf/partition/fx/effects.h"
#include "kerf/partition/fx/search.h"
#include "tests/partition/random_op_graph.h"

namespace kerf::partition::fx {
namespace {

constexpr Mode kCostModes[] = {Mode::cost_aware, Mode::kl};

RandomRequestOptions small(std::uint64_t seed, std::size_t ops) {
  RandomRequestOptions options;
  options.num_ops = ops;
  options.num_devices = 2 + seed % 2;
  options.shape = static_cast<Shape>(seed % 4);
  options.room = 1.05 + 0.25 * static_cast<double>(seed % 4);
  return options;
}

// Every device for every op, each op a partition of its own: nothing that is valid costs less.
double cheapest_placement(const Request& request) {
  const std::size_t ops = request.graph.ops().size();
  const std::size_t devices = request.devices.size();
  std::size_t count = 1;
  for (std::size_t op = 0; op < ops; ++op) count *= devices;
  double least = kInfinity;
  for (std::size_t code = 0; code < count; ++code) {
    std::vector<Partition> partitions;
    std::size_t rest = code;
    for (const OpIndex n : request.graph.ops()) {
      Partition& partition = partitions.emplace_back();
      partition.nodes = with_leaves(request.graph, std::vector<OpIndex>{n});
      partition.device_ids = {request.devices[rest % devices].id};
      rest /= devices;
    }
    if (!is_valid(request, partitions)) continue;
    least = std::min(least, finish(request, std::move(partitions)).cost);
  }
  return least;
}

TEST(FxFamily, IsValidAndNeverBeatsAllPlacements) {
  int feasible = 0;
  int optimal = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Request request = random_request(seed, small(seed, 6));
    const double least = cheapest_placement(request);
    for (const Mode mode : kCostModes) {
      request.mode = mode;
      const auto outcome = partition_graph(request);
      ASSERT_EQ(static_cast<bool>(outcome), least < kInfinity) << seed;
      if (!outcome) continue;
      EXPECT_TRUE(is_valid(request, outcome->partitions)) << seed;
      EXPECT_GE(outcome->cost, least * (1 - 1e-12)) << seed;
      ++feasible;
      optimal += outcome->cost <= least * (1 + 1e-12) ? 1 : 0;
    }
  }
  EXPECT_GT(feasible, 60);
  EXPECT_GE(optimal, feasible * 95 / 100);
}

TEST(FxFamily, IsNeverWorseThanTheOriginalWhereThatIsValid) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    Request request = random_request(seed, small(seed, 8 + seed % 8));
    for (const Mode mode : {Mode::size, Mode::sparse_nn, Mode::cost_aware, Mode::kl}) {
      request.mode = mode;
      Answer original;
      try {
        original = partition_graph_compat(request);
      } catch (const OriginalError&) {
        continue;
      }
      if (!is_valid(request, original.partitions)) continue;
      const auto ours = partition_graph(request);
      ASSERT_TRUE(ours) << seed << ' ' << to_string(mode);
      EXPECT_LE(ours->cost, finish(request, original.partitions).cost)
          << seed << ' ' << to_string(mode);
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(FxFamily, KeepsTheLimitsOfTheAccountingThatIsAskedFor) {
  int differ = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    Request request = random_request(seed, small(seed, 10));
    for (const Accounting accounting : {Accounting::fx, Accounting::exact}) {
      request.accounting = accounting;
      const auto outcome = partition_graph(request);
      if (!outcome) continue;
      for (std::size_t d = 0; d < request.devices.size(); ++d) {
        const DeviceBytes& bytes = outcome->device_bytes[d];
        EXPECT_LE(used_bytes(request, bytes), request.devices[d].memory) << seed;
        EXPECT_LE(bytes.peak, bytes.exact) << seed;
        differ += bytes.exact != bytes.fx ? 1 : 0;
      }
    }
  }
  EXPECT_GT(differ, 20);
}

TEST(FxFamily, AnswersTheSameAgain) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Request request = random_request(seed, small(seed, 30));
    for (const Mode mode : kCostModes) {
      request.mode = mode;
      const auto first = partition_graph(request);
      const auto second = partition_graph(request);
      ASSERT_EQ(static_cast<bool>(first), static_cast<bool>(second));
      if (!first) continue;
      ++compared;
      EXPECT_EQ(first->node_to_partition, second->node_to_partition) << seed;
      EXPECT_EQ(first->cost, second->cost) << seed;
    }
  }
  EXPECT_GT(compared, 10);
}

// U2: under the serial model two branches go to two devices even when one device holds both.
TEST(FxFamily, SpreadsBranchesWhenDevicesDoOneThingAtATime) {
  std::vector<OpNode> nodes(8);
  nodes[0].leaf = true;
  nodes[0].output_size = nodes[0].total_size = 4;
  for (OpIndex n = 1; n < nodes.size(); ++n) {
    nodes[n].name = "op" + std::to_string(n);
    nodes[n].output_size = nodes[n].total_size = 4;
    nodes[n].mem_latency = nodes[n].computer_latency = 10;
    nodes[n].inputs = {n < 3 ? 0 : n - 2};
  }
  nodes[7].inputs = {5, 6};
  Request request;
  request.graph = OpGraph(nodes);
  request.devices = {{"a", 1000, 0}, {"b", 1000, 1}};
  request.mode = Mode::cost_aware;
  request.rate = 4;
  request.cost_model = CostModel::serial;
  const auto serial = partition_graph(request);
  ASSERT_TRUE(serial);
  EXPECT_LT(serial->serial_cost, 50);  // 70 on one device, 41 on two
  request.cost_model = CostModel::critical_path;
  const auto path = partition_graph(request);
  ASSERT_TRUE(path);
  EXPECT_EQ(path->cost, 40);  // the longest path, no transfer on it
}

// y = a(x); z = b(y); y.add_(1): b must come before the change, and no data says so.
Request in_place_request() {
  const auto op = [](const char* name, std::vector<OpIndex> inputs) {
    OpNode node;
    node.name = name;
    node.inputs = std::move(inputs);
    node.output_size = node.total_size = 16;
    node.mem_latency = node.computer_latency = 1;
    return node;
  };
  std::vector<OpNode> nodes{op("x", {}), op("a", {0}), op("b", {1}), op("add_", {1}),
                            op("mul", {3})};
  nodes[0].leaf = true;
  nodes[3].aliases = nodes[3].mutates = {1};
  Request request;
  request.graph = OpGraph(std::move(nodes));
  request.devices = {{"d0", 80, 0}, {"d1", 80, 1}, {"d2", 80, 2}};
  request.rate = 2;
  return request;
}

TEST(FxEffects, KeepAChangeInPlaceWithWhatReadsTheSameMemory) {
  const Request request = in_place_request();
  EXPECT_THAT(inseparable_ops(request.graph), ::testing::ElementsAre(std::vector<OpIndex>{2, 3}));
  for (const Mode mode : {Mode::size, Mode::sparse_nn, Mode::cost_aware, Mode::kl}) {
    Request asked = request;
    asked.mode = mode;
    const auto outcome = partition_graph(asked);
    ASSERT_TRUE(outcome) << to_string(mode);
    EXPECT_EQ(outcome->node_to_partition[2], outcome->node_to_partition[3]) << to_string(mode);
    EXPECT_TRUE(is_valid(asked, outcome->partitions));
  }
}

TEST(FxEffects, RefuseAMapThatSeparatesThem) {
  Request request = in_place_request();
  request.mode = Mode::aot;
  request.node_to_partition = {{1, 0}, {2, 0}, {3, 1}, {4, 1}};
  request.partition_to_devices = {{0, {0}}, {1, {1}}};
  EXPECT_THROW(partition_graph(request), Error);
  request.node_to_partition[2].second = 0;
  EXPECT_TRUE(partition_graph(request));
}

TEST(FxEffects, LeaveAnActivationInPlaceAlone) {
  Request request = in_place_request();
  std::vector<OpNode> nodes = request.graph.nodes();
  nodes[2].inputs = {3 - 3};  // b reads x instead
  EXPECT_TRUE(inseparable_ops(OpGraph(std::move(nodes))).empty());
}

TEST(FxEffects, TakeInWhatLiesBetween) {
  // p = view(y); q = relu(y); r = add(q, ...); p.add_(r): q and the change share memory y, r lies
  // between them by data.
  std::vector<OpNode> nodes(6);
  for (OpNode& node : nodes) node.output_size = node.total_size = 4;
  nodes[0].leaf = true;
  nodes[1].inputs = {0};  // y
  nodes[2].inputs = {1};  // q reads y
  nodes[3].inputs = {2};  // r
  nodes[4].inputs = {1};  // z reads y, unordered with the change
  nodes[5].inputs = {1, 3};
  nodes[5].aliases = nodes[5].mutates = {1};
  const OpGraph graph(nodes);
  EXPECT_THAT(inseparable_ops(graph), ::testing::ElementsAre(std::vector<OpIndex>{4, 5}));
}

TEST(FxFamily, KeepsPartitionsFewUnderTheSerialModel) {
  RandomRequestOptions options;
  options.num_ops = 600;
  options.num_devices = 4;
  options.shape = Shape::wide;
  Request request = random_request(2, options);
  request.cost_model = CostModel::serial;
  const auto outcome = partition_graph(request);
  ASSERT_TRUE(outcome);
  EXPECT_LT(outcome->partitions.size(), 200U);
}

TEST(FxLatency, OfManyResidualBlocksTakesOnePass) {
  // 2^64 paths.
  std::vector<OpNode> nodes;
  for (OpIndex block = 0; block < 64; ++block) {
    for (int step = 0; step < 3; ++step) {
      OpNode node;
      const auto n = static_cast<OpIndex>(nodes.size());
      if (n > 0) node.inputs.push_back(n - 1);
      if (step == 2 && n >= 3) node.inputs.push_back(n - 3);
      node.output_size = node.total_size = 4;
      node.mem_latency = 1;
      node.computer_latency = 2;
      nodes.push_back(node);
    }
  }
  const OpGraph graph(nodes);
  const Latency latency = partition_latency(graph, graph.ops());
  EXPECT_EQ(latency.overall, 2 * 64 * 3);
  EXPECT_EQ(latency.mem, 64 * 3);
}

TEST(FxInfeasible, NamesTheNodeThatFitsNowhere) {
  Request request = random_request(3, small(3, 6));
  for (Device& device : request.devices) device.memory = 5;
  for (const Mode mode : {Mode::size, Mode::cost_aware, Mode::kl}) {
    request.mode = mode;
    const auto outcome = partition_graph(request);
    ASSERT_FALSE(outcome);
    EXPECT_GT(outcome.reason().short_by, Bytes{0});
    EXPECT_EQ(outcome.reason().needed - outcome.reason().limit, outcome.reason().short_by);
    EXPECT_THAT(outcome.reason().what_would_help, ::testing::HasSubstr("node 'op"));
  }
}

}  // namespace
}  // namespace kerf::partition::fx
