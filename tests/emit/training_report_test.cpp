// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What reports say of training: phases, gradients, saved bytes, the optimizer's state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kerf/emit/report/compare.h"
#include "kerf/emit/report/cut_out.h"
#include "kerf/emit/report/gantt.h"
#include "kerf/emit/report/report_json.h"
#include "kerf/emit/report/table.h"
#include "kerf/emit/report/trace.h"
#include "kerf/simulate/simulate.h"
#include "tests/emit/golden.h"
#include "tests/emit/samples.h"

namespace kerf {
namespace {

using testing::HasSubstr;
using testing::Not;

Plan training_plan(const std::string& schedule) {
  Plan plan = samples::plan();
  plan.training = true;
  plan.optimizer = "adamw";
  plan.recompute = "auto";
  plan.schedule = schedule;
  for (Stage& stage : plan.stages) {
    stage.has_backward = true;
    stage.backward = stage.time * 2;
    stage.weight_gradients = stage.time;
    stage.gradients = stage.weights;
    stage.optimizer = stage.weights * 2;
    stage.saved = {49152};
  }
  plan.cuts[0].gradients = {StageId{1}};
  for (std::size_t d = 0; d < 2; ++d) {
    plan.memory[d].gradients = plan.stages[d].gradients;
    plan.memory[d].optimizer = plan.stages[d].optimizer;
  }
  return plan;
}

// Equal stages in a row, a device each (or looped over fewer), whose forward, input and weight
// gradients take a millisecond each of a whole device.
Timeline row_of(const std::string& schedule, int devices, int stages_per_device, int microbatches) {
  Plan plan;
  plan.training = true;
  plan.schedule = schedule;
  plan.n_microbatches = microbatches;
  plan.stages_per_device = stages_per_device;
  for (int d = 0; d < devices; ++d) {
    Device device;
    device.name = "gpu:" + std::to_string(d);
    plan.cluster.devices.push_back(device);
  }
  plan.cluster.links.resize(static_cast<std::size_t>(devices * devices));
  for (int s = 0; s < devices * stages_per_device; ++s) {
    Stage stage;
    stage.device = DeviceId{s % devices};
    stage.time = {1e6 / stages_per_device};
    stage.has_backward = true;
    stage.backward = stage.time * 2;
    stage.weight_gradients = stage.time;
    if (s > 0) stage.after = {StageId{s - 1}};
    plan.stages.push_back(stage);
  }
  return simulate(plan);
}

const std::string kLegend =
    "F forward, B backward, W gradients of weights, then the micro-batch; ~ transfer, . idle\n";

TEST(ADrawnTrainingStep, ShowsThePhasesOfGpipe) {
  EXPECT_EQ(draw_timeline(row_of("gpipe", 3, 1, 3), 60),
            R"(simulated step 15.0 ms: 3 stages, 3 micro-batches, bubble 40.0 %
gpu:0  F000F111F222........................B0000000B1111111B2222222  busy 60 %
gpu:1  ....F000F111F222............B0000000B1111111B2222222........  busy 60 %
gpu:2  ........F000F111F222B0000000B1111111B2222222................  busy 60 %
       0                                                    15.0 ms
)" + kLegend);
}

TEST(ADrawnTrainingStep, ShowsThePhasesOfOneForwardOneBackward) {
  EXPECT_EQ(draw_timeline(row_of("1f1b", 3, 1, 4), 72),
            R"(simulated step 18.0 ms: 3 stages, 4 micro-batches, bubble 33.3 %
gpu:0  F000F111F222................B0000000F333B1111111....B2222222....B3333333  busy 67 %
gpu:1  ....F000F111........B0000000F222B1111111F333B2222222....B3333333........  busy 67 %
gpu:2  ........F000B0000000F111B1111111F222B2222222F333B3333333................  busy 67 %
       0                                                                18.0 ms
)" + kLegend);
}

TEST(ADrawnTrainingStep, ShowsThePhasesOfTheInterleavedSchedule) {
  EXPECT_EQ(draw_timeline(row_of("interleaved_1f1b", 2, 2, 4), 84),
            R"(simulated step 13.5 ms: 4 stages, 4 micro-batches, bubble 11.1 %
gpu:0  F00F11F00F11F222...B00000F33B11111F22B000000F33B11111...B22222...B333333B22222B33333  busy 89 %
gpu:1  ...F00F11F00B000000F11B11111F22B00000F33B111111F22B22222F33B33333B222222B33333......  busy 89 %
       0                                                                            13.5 ms
)" + kLegend);
}

TEST(ADrawnTrainingStep, ShowsWeightGradientsApart) {
  EXPECT_EQ(draw_timeline(row_of("zero_bubble", 3, 1, 4), 56),
            R"(simulated step 14.0 ms: 3 stages, 4 micro-batches, bubble 14.3 %
gpu:0  F000F111F222........B000W000F333B111W111B222W222B333W333  busy 86 %
gpu:1  ....F000F111F222B000W000B111W111F333B222W222B333W333....  busy 86 %
gpu:2  ........F000B000F111B111F222W000B222F333B333W111W222W333  busy 86 %
       0                                                14.0 ms
)" + kLegend);
}

TEST(ASchedule, StandsIdleForTheShareThatItSays) {
  const double p = 4;
  const double m = 8;
  const double v = 2;
  const struct {
    std::string name;
    std::string idle;
    double share;
    int stages_per_device;
  } rows[] = {{"fill_drain", "(p-1) / (m+p-1)", (p - 1) / (m + p - 1), 1},
              {"1f1b", "(p-1) / (m+p-1)", (p - 1) / (m + p - 1), 1},
              {"interleaved_1f1b", "(p-1) / (v*m+p-1)", (p - 1) / (v * m + p - 1), 2},
              {"zero_bubble", "(p-1) / (3*v*m+p-1)", (p - 1) / (3 * m + p - 1), 1},
              {"zero_bubble", "(p-1) / (3*v*m+p-1)", (p - 1) / (3 * v * m + p - 1), 2}};
  for (const auto& row : rows) {
    EXPECT_EQ(schedule_kind(row.name).idle, row.idle);
    EXPECT_NEAR(row_of(row.name, 4, row.stages_per_device, 8).bubble(), row.share, 1e-9)
        << row.name;
  }
}

TEST(ADrawnTrainingStep, KeepsTheLetterWhereAColumnIsAllThereIs) {
  EXPECT_THAT(draw_timeline(row_of("zero_bubble", 2, 1, 4), 13), HasSubstr("gpu:0  FF.BWFBWFBWBW"));
}

TEST(ATrainingPlanTable, ShowsBackwardGradientsSavedBytesAndTheOptimizersState) {
  expect_golden("training_table.txt", plan_table(training_plan("1f1b")));
}

TEST(ATrainingPlanTable, ShowsTimesOfWeightGradientsWhereTheyAreMadeApart) {
  EXPECT_THAT(plan_table(training_plan("zero_bubble")), HasSubstr("for weights"));
  EXPECT_THAT(plan_table(training_plan("1f1b")), Not(HasSubstr("for weights")));
}

TEST(ATrainingPlanTable, SaysWhatIsComputedAgain) {
  Plan plan = training_plan("1f1b");
  plan.recomputed = {"h.0", "h.1", "h.2", "h.3", "h.4", "h.5", "h.6"};
  plan.stages[0].recompute = {5e5};
  const std::string table = plan_table(plan);
  EXPECT_THAT(table, HasSubstr("computed again      7 blocks (auto), 500 us per micro-batch: h.0, "
                               "h.1, h.2, h.3, h.4, h.5, ...\n"));
  EXPECT_THAT(table, HasSubstr("again"));
}

TEST(ATrainingJsonReport, HasTheFiguresOfTheTable) {
  expect_golden("training_report.json", report_json(training_plan("1f1b")).dump(1) + "\n");
}

TEST(GradientBytesOfStages, AddUpToThoseOfThePlan) {
  Plan plan = training_plan("1f1b");
  // A second user on the maker's own device sends nothing.
  plan.stages.push_back(plan.stages[0]);
  plan.cuts[0].to = {StageId{1}, StageId{2}};
  plan.cuts[0].gradients = {StageId{1}, StageId{2}};
  EXPECT_THAT(gradient_bytes_of_stages(plan),
              testing::ElementsAre(Bytes{0}, Bytes{4096}, Bytes{0}));
  EXPECT_EQ(plan.gradient_bytes(), Bytes{4096});
}

TEST(ATraceOfTraining, HasACategoryAndAColourForEachPhase) {
  const Json json = Json::parse(chrome_trace(row_of("zero_bubble", 2, 1, 1)));
  std::vector<std::string> events;
  for (const Json& event : json["traceEvents"]) {
    if (event["ph"] != "X" || event["tid"] != 0) continue;
    events.push_back(event["name"].get<std::string>() + ": " + event["cat"].get<std::string>() +
                     ", " + event["cname"].get<std::string>());
  }
  EXPECT_THAT(events, testing::ElementsAre(
                          "stage 0 micro-batch 0: compute,forward, thread_state_running",
                          "stage 0 micro-batch 0 backward: compute,backward, thread_state_runnable",
                          "stage 0 micro-batch 0 weight gradients: compute,weight_gradient, "
                          "thread_state_iowait"));
}

TEST(AComparisonOfTraining, GoesByPhase) {
  const Plan plan = training_plan("1f1b");
  Timeline measured = simulate(plan);
  measured.origin = "measured";
  for (Event& event : measured.events) {
    if (event.kind == EventKind::compute && event.phase == Phase::backward) {
      event.end += (event.end - event.start) * 0.25;
    }
  }
  expect_golden("training_compare.txt", compare_timelines(simulate(plan), measured));
}

}  // namespace
}  // namespace kerf
