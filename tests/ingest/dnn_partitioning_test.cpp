// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/ingest/dnn_partitioning.h"
#include "kerf/place/lower_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "tests/support/ids.h"

namespace kerf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string node(int id, const std::string& more = "") {
  return R"({"id": )" + std::to_string(id) + R"(, "cpuLatency": 10, "fpgaLatency": 2, "size": 3)" +
         more + "}";
}
std::string problem_text(const std::string& nodes, const std::string& edges) {
  return R"({"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 7, "nodes": [)" + nodes +
         R"(], "edges": [)" + edges + "]}";
}
std::string edge(int from, int to, double cost) {
  return R"({"sourceId": )" + std::to_string(from) + R"(, "destId": )" + std::to_string(to) +
         R"(, "cost": )" + std::to_string(cost) + "}";
}

// 7 feeds 8 and 9; 8 feeds 9.
LoadProblem small() {
  return parse_dnn_partitioning(
      problem_text(node(7) + "," + node(8) + "," + node(9),
                   edge(7, 8, 0.5) + "," + edge(7, 9, 0.5) + "," + edge(8, 9, 0.25)),
      "small.json");
}

std::string refusal(const std::string& text) {
  try {
    parse_dnn_partitioning(text, "bad.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_graph);
    return error.what();
  }
  return "it was taken";
}

TEST(DnnPartitioning, IsReadAsItIs) {
  const LoadProblem problem = small();
  EXPECT_EQ(problem.num_accelerators, 2);
  EXPECT_EQ(problem.nodes[1].id, 8);
  EXPECT_THAT(problem.successors[0], ElementsAre(1, 2));
  EXPECT_EQ(problem.nodes[0].transfer, 0.5);
  EXPECT_EQ(problem.nodes[2].transfer, 0);
}

TEST(DnnPartitioning, IsScoredOncePerTensorAndDevice) {
  const LoadProblem problem = small();
  // 7 | 8 | 9 on the CPU: 7's tensor leaves once, arrives once; 8's leaves once; the CPU pays none.
  const std::vector<SlotId> device = slots({0, 1, 2});
  const Loads loads = find_loads(problem, device);
  EXPECT_EQ(loads.transfer[0], 0.5);
  EXPECT_EQ(loads.transfer[1], 0.75);
  EXPECT_EQ(loads.transfer[2], 0);
  EXPECT_EQ(loads.busiest, 10);
  const place::Instance units = place::to_instance(problem);
  EXPECT_EQ(find_loads(units, device).busiest, loads.busiest);
  // 7: 2 + 0.5 out; 8: 0.5 in + 2 + 0.25 out; 9 on the CPU: 10.
  EXPECT_EQ(find_latency(problem, device, false), 2.5 + 2.75 + 10);
}

TEST(DnnPartitioning, KnowsWhatIsContiguous) {
  const LoadProblem problem = small();
  EXPECT_TRUE(is_contiguous(problem, slots({0, 0, 1})));
  EXPECT_FALSE(is_contiguous(problem, slots({0, 1, 0})));
}

TEST(DnnPartitioning, RefusesWhatIsWrongByName) {
  EXPECT_THAT(refusal(problem_text(node(7) + "," + node(7), "")),
              HasSubstr("second node with id 7"));
  EXPECT_THAT(refusal(problem_text(node(7), edge(7, 9, 1))), HasSubstr("destId 9"));
  EXPECT_THAT(refusal(problem_text(node(7) + "," + node(8) + "," + node(9),
                                   edge(7, 8, 1) + "," + edge(7, 9, 2))),
              HasSubstr("the output of node 7"));
  EXPECT_THAT(refusal(problem_text(node(7) + "," + node(8), edge(7, 8, 1) + "," + edge(8, 7, 1))),
              HasSubstr("7 -> 8 -> 7"));
  EXPECT_THAT(refusal(problem_text(R"({"id": 1, "cpuLatency": -3, "fpgaLatency": 1})", "")),
              HasSubstr("nodes[0]: cpuLatency: found -3; expected 0"));
  EXPECT_THAT(refusal("{"), HasSubstr("bad.json"));
}

TEST(Splits, AreReadAsMapsAndAsPublished) {
  const LoadProblem problem = small();
  EXPECT_THAT(parse_split(problem, R"({"7": 0, "8": 1, "9": "cpu"})", "s"), ElementsAre(0, 1, 2));
  EXPECT_THAT(parse_split(problem, R"({"assignment": {"7": 1, "8": 1, "9": 1}})", "s"),
              ElementsAre(1, 1, 1));
  EXPECT_THAT(parse_split(problem, R"({"fpgas": [{"nodes": [7]}, {"nodes": [8]}],
                                       "cpus": [{"nodes": [9]}]})",
                          "s"),
              ElementsAre(0, 1, 2));
}

TEST(Splits, NameWhatIsMissingOrUnknown) {
  const LoadProblem problem = small();
  const auto split_refusal = [&](const char* text) -> std::string {
    try {
      parse_split(problem, text, "s");
    } catch (const Error& error) {
      return error.what();
    }
    return "it was taken";
  };
  EXPECT_THAT(split_refusal(R"({"7": 0, "8": 1})"), HasSubstr("no device for node 9"));
  EXPECT_THAT(split_refusal(R"({"7": 0, "8": 1, "9": 2})"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(split_refusal(R"({"7": 0, "8": 1, "10": 0})"), HasSubstr("node 10"));
}

TEST(Splits, OfKerfSayWhatTheyWereMadeFor) {
  const auto claim = parse_split_claim(
      R"({"format": "kerf-load-plan", "version": "1.1", "problem": "a.json", "minimised": "latency",
          "objective": 2.5, "assignment": {"7": 1}})",
      "s");
  ASSERT_TRUE(claim);
  EXPECT_EQ(claim->problem, "a.json");
  EXPECT_EQ(claim->objective, Objective::latency);
  EXPECT_EQ(claim->value, 2.5);
  EXPECT_FALSE(parse_split_claim(R"({"7": 0, "8": 1, "9": "cpu"})", "s"));
}

TEST(Splits, WithAHeaderAreReadIfItIsTheirOwn) {
  const LoadProblem problem = small();
  const std::string rest = R"(, "assignment": {"7": 1, "8": 1, "9": 1}})";
  EXPECT_THAT(parse_split(problem, R"({"format": "kerf-load-plan", "version": "1.1")" + rest, "s"),
              ElementsAre(1, 1, 1));
  EXPECT_THROW(parse_split(problem, R"({"format": "kerf-plan", "version": "1.1")" + rest, "s"),
               Error);
  EXPECT_THROW(parse_split(problem, R"({"format": "kerf-load-plan", "version": "9.9")" + rest, "s"),
               Error);
}

}  // namespace
}  // namespace kerf
