// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// When a stage is recorded, what is replayed and what leaves it, without a card: the double's
// "recording" remembers where the program read and wrote, and a replay does the work there again.
#include "kerf/libtorch/stage_graphs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/graph/text.h"
#include "tests/runtime/hand_plan.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;
using Values = std::vector<c10::IValue>;

// A program of one stage as the test computes it: from tensors at places to tensors sent, and again
// into the memory of the first time.
struct Work {
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> compute;
  int executed = 0;
  int replayed = 0;
  int recorded = 0;
  bool refuses_recording = false;
};

class FakeGraph : public DeviceGraph {
 public:
  FakeGraph(Work& work, const std::vector<at::Tensor>& read, const std::vector<at::Tensor>& made)
      : work_(work), last_read_(read), last_made_(made) {}

  void record(const std::function<void()>& run) override {
    if (work_.refuses_recording) throw std::runtime_error("operation not permitted\nand a stack");
    ++work_.recorded;
    run();
    read_ = last_read_;
    made_ = last_made_;
  }
  void replay() override {
    ++work_.replayed;
    const std::vector<at::Tensor> now = work_.compute(read_);
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!now[i].is_alias_of(made_[i])) made_[i].copy_(now[i]);
    }
  }
  void draw_from(const at::Generator&) override {}

 private:
  Work& work_;
  const std::vector<at::Tensor>& last_read_;
  const std::vector<at::Tensor>& last_made_;
  std::vector<at::Tensor> read_;
  std::vector<at::Tensor> made_;
};

class FakePool : public GraphPool {
 public:
  explicit FakePool(Work& work) : work_(work) {}
  std::unique_ptr<DeviceGraph> make() override {
    return std::make_unique<FakeGraph>(work_, last_read, last_made);
  }
  std::int64_t bytes() const override { return 0; }
  std::vector<at::Tensor> last_read;
  std::vector<at::Tensor> last_made;

 private:
  Work& work_;
};

class AStage : public ::testing::Test {
 protected:
  void load(const std::string& nodes,
            std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> compute) {
    graph_ = parse_graph("kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n" + nodes);
    std::vector<std::string> names;
    for (const Node& node : graph_.nodes()) names.push_back(node.name);
    program_ = compile_programs(graph_, hand_plan(graph_, {names}, {0}, {"cpu:0"}))[0];
    work_.compute = std::move(compute);
    graphs_ = std::make_unique<StageGraphs>(graph_, program_, c10::kCPU, &pool_, "");
  }

  std::vector<at::Tensor> run(const at::Tensor& x, std::int64_t part_of = 0) {
    Values places{c10::IValue(x)};
    const auto execute = [&](Values& at) {
      ++work_.executed;
      pool_.last_read.clear();
      for (const c10::IValue& place : at) pool_.last_read.push_back(place.toTensor());
      pool_.last_made = work_.compute(pool_.last_read);
      return Values(pool_.last_made.begin(), pool_.last_made.end());
    };
    const auto weight = [&](std::size_t i) -> const at::Tensor& { return weights_[i]; };
    const Values sends = graphs_->run(
        x.size(0), places, {execute, weights_.size(), weight, [&] { ++seeded_; }}, part_of);
    std::vector<at::Tensor> out;
    for (const c10::IValue& send : sends) out.push_back(send.toTensor());
    return out;
  }

  void load_doubling() {
    load("%y: f32[B, 4] = aten.mul.Tensor(%x, 2)\noutput \"y\" = %y\n",
         [](const auto& at) { return std::vector<at::Tensor>{at[0] * 2}; });
  }

  Graph graph_;
  Program program_;
  Work work_;
  FakePool pool_{work_};
  std::vector<at::Tensor> weights_;
  int seeded_ = 0;
  std::unique_ptr<StageGraphs> graphs_;
};

TEST_F(AStage, IsRecordedAtTheThirdCallAndReplayedFromThenOn) {
  load_doubling();
  for (int call = 1; call <= 5; ++call) {
    const at::Tensor x = at::randn({2, 4});
    EXPECT_TRUE(at::equal(run(x)[0], x * 2)) << "call " << call;
    EXPECT_EQ(work_.replayed, std::max(0, call - 2));
  }
  EXPECT_EQ(work_.executed, 3);
  EXPECT_EQ(graphs_->num_recordings(), 1U);
  EXPECT_EQ(graphs_->why_not(), "");
}

TEST_F(AStage, GivesResultsThatTheNextCallDoesNotTouch) {
  load_doubling();
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> results;
  for (int call = 0; call < 6; ++call) {
    inputs.push_back(at::randn({2, 4}));
    results.push_back(run(inputs.back())[0]);
  }
  for (int call = 0; call < 6; ++call) EXPECT_TRUE(at::equal(results[call], inputs[call] * 2));
}

TEST_F(AStage, KeepsARecordingForEachBatchAndNotMoreThanItSays) {
  load_doubling();
  const auto most = static_cast<std::int64_t>(StageGraphs::kMostForms);
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t batch = 1; batch <= most; ++batch) run(at::randn({batch, 4}));
  }
  EXPECT_EQ(graphs_->num_recordings(), StageGraphs::kMostForms);
  const int executed = work_.executed;
  const at::Tensor x = at::randn({most + 1, 4});
  EXPECT_TRUE(at::equal(run(x)[0], x * 2));
  EXPECT_EQ(graphs_->num_recordings(), StageGraphs::kMostForms - 1);  // batch 1 had to go
  run(at::randn({2, 4}));
  EXPECT_EQ(work_.executed, executed + 1);
}

TEST_F(AStage, KeepsPartsOfABatchFromWholeOnesOfTheirSize) {
  load_doubling();
  for (int call = 0; call < 4; ++call) run(at::randn({1, 4}));
  EXPECT_EQ(work_.recorded, 1);
  const int executed = work_.executed;
  run(at::randn({1, 4}), 4);
  EXPECT_EQ(work_.executed, executed + 1);
  for (int call = 0; call < 4; ++call) run(at::randn({1, 4}), 4);
  EXPECT_EQ(graphs_->num_recordings(), 2U);
}

TEST_F(AStage, IsRecordedAnewWhenAWeightIsAtAnotherPlace) {
  load_doubling();
  weights_ = {at::ones({4})};
  for (int call = 0; call < 4; ++call) run(at::randn({2, 4}));
  EXPECT_EQ(work_.recorded, 1);
  weights_[0].add_(1);  // in place: the same memory
  run(at::randn({2, 4}));
  EXPECT_EQ(work_.recorded, 1);
  weights_ = {at::zeros({4})};
  run(at::randn({2, 4}));
  EXPECT_EQ(work_.recorded, 2);
}

TEST_F(AStage, UsesAnInputThatItWritesWhereItIs) {
  load("%y: f32[B, 4] in %x = aten.add_.Tensor(&~%x, 1)\noutput \"y\" = %y\n",
       [](const auto& at) { return std::vector<at::Tensor>{at[0].add_(1)}; });
  const at::Tensor state = at::zeros({2, 4});
  for (int call = 1; call <= 5; ++call) {
    const at::Tensor y = run(state)[0];
    // Recording executes nothing on a device; the double's does, once.
    const float expected = static_cast<float>(call + (call >= 3 ? 1 : 0));
    EXPECT_TRUE(y.is_alias_of(state));
    EXPECT_EQ(state.max().item<float>(), expected) << "call " << call;
  }
  EXPECT_EQ(work_.replayed, 3);
  const at::Tensor other = at::zeros({2, 4});
  run(other);
  EXPECT_EQ(work_.replayed, 3) << "what was recorded writes elsewhere";
  EXPECT_EQ(other.max().item<float>(), 1.0F);
}

TEST_F(AStage, KeepsViewsOfOneMemoryViewsOfOneMemory) {
  load(R"(%h: f32[B, 4] = aten.mul.Tensor(%x, 2)
%a: f32[B, 2]{4, 1} in %h, %b: f32[B, 2]{4, 1} in %h + 8 = aten.split.Tensor(~%h, 2, 1)
output "a" = %a
output "b" = %b
)",
       [](const auto& at) { return (at[0] * 2).split(2, 1); });
  for (int call = 0; call < 5; ++call) {
    const at::Tensor x = at::randn({3, 4});
    const std::vector<at::Tensor> halves = run(x);
    EXPECT_TRUE(at::equal(at::cat(halves, 1), x * 2));
    EXPECT_TRUE(halves[0].is_alias_of(halves[1]));
    EXPECT_EQ(halves[1].storage_offset(), 2);
  }
  EXPECT_GT(work_.replayed, 0);
}

TEST_F(AStage, ThatCannotBeRecordedSaysWhyAndRunsAsBefore) {
  load_doubling();
  work_.refuses_recording = true;
  for (int call = 0; call < 5; ++call) {
    const at::Tensor x = at::randn({2, 4});
    EXPECT_TRUE(at::equal(run(x)[0], x * 2));
  }
  EXPECT_EQ(graphs_->why_not(), "operation not permitted");
  EXPECT_EQ(work_.executed, 5);
  EXPECT_EQ(work_.recorded, 0);
}

TEST_F(AStage, IsNotRecordedWhereANumberGoesToTheHost) {
  load("%n: scalar f64 = aten._local_scalar_dense.default(%x) ; name=\"item\"\noutput \"n\" = %n\n",
       [](const auto&) { return std::vector<at::Tensor>{}; });
  EXPECT_THAT(graphs_->why_not(), HasSubstr("item"));
  EXPECT_THAT(graphs_->why_not(), HasSubstr("gives a number to the host"));
}

TEST_F(AStage, GivesItsGeneratorsASeedForEachReplay) {
  load_doubling();
  for (int call = 1; call <= 6; ++call) run(at::randn({2, 4}));
  EXPECT_EQ(seeded_, work_.recorded + work_.replayed);
}

TEST_F(AStage, IsRecordedAnewUnderOtherSettings) {
  load_doubling();
  for (int call = 0; call < 4; ++call) run(at::randn({2, 4}));
  const int replayed = work_.replayed;
  at::globalContext().setDeterministicAlgorithms(true, true);
  run(at::randn({2, 4}));
  EXPECT_EQ(work_.replayed, replayed);
  at::globalContext().setDeterministicAlgorithms(false, false);
  run(at::randn({2, 4}));
  EXPECT_EQ(work_.replayed, replayed + 1);
}

}  // namespace
}  // namespace kerf
