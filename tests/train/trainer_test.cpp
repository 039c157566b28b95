#include "train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/file.h"
#include "base/npy.h"
#include "base/rng.h"
#include "graph/onnx_reader.h"
#include "graph/onnx_writer.h"
#include "plan/fake_backend.h"

namespace opdiff {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A perceptron with one hidden layer on 44 samples of three classes, batches of 8: the last of an epoch has 4.
class Training : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    Graph model;
    model.inputs = {{"x", DType::f32, std::vector<Dimension>{{std::nullopt, "batch"}, {5, ""}}}};
    model.outputs = {{"scores", DType::f32, std::vector<Dimension>{{std::nullopt, "batch"}, {3, ""}}}};
    Rng rng(1);
    const auto weight = [&](const std::string& name, Shape shape) {
      std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
      for (double& v : values) v = rng.uniform(-0.5, 0.5);
      model.initialisers[name] = Tensor::from_doubles(DType::f32, std::move(shape), values);
    };
    weight("w1", {5, 8});
    weight("b1", {8});
    weight("w2", {8, 3});
    const auto node = [&](const std::string& id, const std::string& op, std::vector<std::string> inputs) {
      Node n;
      n.id = id;
      n.op = op;
      n.inputs = std::move(inputs);
      n.outputs = {id};
      model.nodes.push_back(n);
    };
    node("hidden", "Gemm", {"x", "w1", "b1"});
    node("relu", "Relu", {"hidden"});
    node("scores", "MatMul", {"relu", "w2"});
    ASSERT_TRUE(write_onnx_file(model, folder_ / "m.onnx"));
    TensorMap data;
    std::vector<double> x;
    std::vector<std::int64_t> y;
    for (int i = 0; i < 44; ++i) {
      y.push_back(i % 3);
      for (int k = 0; k < 5; ++k) x.push_back(rng.normal() * 0.3 + (k == i % 3 ? 2 : 0));
    }
    data["images"] = Tensor::from_doubles(DType::f32, {44, 5}, x);
    data["labels"] = Tensor::from_int64s(DType::i64, {44}, y);
    ASSERT_TRUE(write_npz(folder_ / "d.npz", data));
    recipe_.file = folder_ / "r.toml";
    recipe_.model = folder_ / "m.onnx";
    recipe_.optimiser = "adam:lr=0.01";
    recipe_.batch = 8;
    recipe_.epochs = 3;
    recipe_.train = {folder_ / "d.npz", "images", folder_ / "d.npz", "labels"};
    recipe_.test = recipe_.train;
    options_.open = [this](const std::string& spec, bool) -> BackendSource {
      return [this, spec]() -> Expected<Backend*> { return &fake(spec); };
    };
  }
  void TearDown() override { fs::remove_all(folder_); }

  FakeBackend& fake(const std::string& spec) {
    auto& backend = fakes_[spec];
    if (!backend) {
      backend = std::make_unique<FakeBackend>(spec);
      backend->mutable_info().gradient = true;
    }
    return *backend;
  }
  Expected<TrainResult> run(const std::string& out) {
    recipe_.out = folder_ / out;
    fs::create_directories(recipe_.out);
    return train(recipe_, options_);
  }
  std::string trained(const std::string& out) { return *read_file(folder_ / out / "trained.onnx", 1 << 20); }

  const fs::path folder_ = fs::temp_directory_path() / fmt::format("training-{}", getpid());
  Recipe recipe_;
  TrainOptions options_;
  std::map<std::string, std::unique_ptr<FakeBackend>> fakes_;
};

TEST_F(Training, Learns) {
  recipe_.epochs = 20;
  const auto result = run("a");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->end, TrainEnd::finished) << result->reason;
  EXPECT_EQ(result->step, 20 * 6);
  EXPECT_EQ(result->segments, 1u);
  ASSERT_EQ(result->curves.tests.size(), 20u);
  EXPECT_LT(result->curves.tests.back().loss, 0.5 * result->curves.tests.front().loss);
  EXPECT_GT(result->curves.tests.back().right, 40);
  EXPECT_EQ(result->curves.steps[5].rows, 4);
  const auto model = read_onnx(folder_ / "a/trained.onnx");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->nodes.size(), 3u);
  EXPECT_EQ(model->inputs[0].shape->front().symbol, "batch");
}

TEST_F(Training, TheSameUnderEveryAssignmentOfTheSameArithmetic) {
  ASSERT_TRUE(run("a"));
  recipe_.bindings = {{"Gemm", "one"}, {"relu", "two"}, {"Adam", "two"}, {"*/gradient", "one"}};
  const auto mixed = run("b");
  ASSERT_TRUE(mixed) << mixed.error().message;
  EXPECT_GT(mixed->segments, 4u);
  EXPECT_EQ(trained("a"), trained("b"));
  recipe_.bindings.clear();
  recipe_.backend = "one";
  const auto alone = run("c");
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(alone->segments, 1u);
  EXPECT_EQ(trained("a"), trained("c"));
  EXPECT_EQ(fake("one").open_graphs(), 0u);
}

TEST_F(Training, NoiseStartsElsewhereAndIsNotResumedAsTheTrainingItself) {
  ASSERT_TRUE(run("a"));
  options_.noise = 1;
  ASSERT_TRUE(run("b"));
  EXPECT_NE(trained("a"), trained("b"));
  options_.noise = 2;
  options_.resume = true;
  EXPECT_THAT(run("b").error().message, HasSubstr("was made with noise = 1, the recipe says 2"));
  options_.noise.reset();
  EXPECT_FALSE(run("b"));
}

TEST_F(Training, ResumesToTheSameBits) {
  ASSERT_TRUE(run("a"));
  for (const std::int64_t steps : {4, 6, 7, 1000}) {
    options_.steps = steps;
    options_.resume = true;
    const auto part = run("b");
    ASSERT_TRUE(part) << part.error().message;
    EXPECT_EQ(part->end, TrainEnd::finished) << part->reason;
  }
  EXPECT_EQ(trained("a"), trained("b"));
  recipe_.batch = 4;
  const auto other = run("b");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("was made with batch = 8, the recipe says 4"));
}

TEST_F(Training, AnInterruptionKeepsWhatWasDone) {
  ASSERT_TRUE(run("a"));
  std::atomic<bool> interrupted = false;
  options_.interrupted = &interrupted;
  options_.on_step = [&](const TrainOptions::StepReport& report) { interrupted = report.step == 9; };
  const auto part = run("b");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->end, TrainEnd::interrupted);
  EXPECT_EQ((*read_checkpoint(folder_ / "b"))->step, 9);
  interrupted = false;
  options_.on_step = {};
  options_.resume = true;
  ASSERT_TRUE(run("b"));
  EXPECT_EQ(trained("a"), trained("b"));
}

TEST_F(Training, ADeadWorkerIsReplacedAndTheStepRepeated) {
  ASSERT_TRUE(run("a"));
  recipe_.backend = "one";
  fake("one").killed_in_run = 8;
  std::vector<std::string> notes;
  options_.on_note = [&](const std::string& text) { notes.push_back(text); };
  const auto result = run("b");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->end, TrainEnd::finished) << result->reason;
  EXPECT_EQ(result->deaths, 1);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("again with a fresh worker")));
  EXPECT_EQ(trained("a"), trained("b"));
}

TEST_F(Training, OneThatAlwaysDiesEndsTheTrainingWithItsCheckpoint) {
  recipe_.backend = "one";
  options_.on_step = [&](const TrainOptions::StepReport& report) {
    if (report.step == 3) fake("one").dying["relu"] = OutcomeKind::crash;
  };
  const auto result = run("a");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->end, TrainEnd::died);
  EXPECT_THAT(result->reason, HasSubstr("step 4: one: crash"));
  EXPECT_EQ((*read_checkpoint(folder_ / "a"))->step, 3);
}

TEST_F(Training, WhatABackendRefuses) {
  recipe_.bindings = {{"Adam", "one"}, {"relu", "one"}};
  fake("one").unsupported = {"w1/update", "b1/update", "w2/update"};
  const auto refused = run("a");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("3 of"));
  EXPECT_THAT(refused.error().message, HasSubstr("w1/update (on one): Adam is not supported"));
  options_.fallback = true;
  const auto fallen = run("a");
  ASSERT_TRUE(fallen) << fallen.error().message;
  EXPECT_EQ(fallen->fallen_back.size(), 3u);
  EXPECT_EQ(fallen->end, TrainEnd::finished) << fallen->reason;
}

TEST_F(Training, ABackendWithoutGradients) {
  fake("one").mutable_info().gradient = false;
  recipe_.backend = "one";
  const auto refused = run("a");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("backend 'one' computes no gradients"));
  options_.fallback = true;
  const auto fallen = run("a");
  ASSERT_TRUE(fallen) << fallen.error().message;
  EXPECT_EQ(fallen->nodes_of[0], 3u);
}

TEST_F(Training, ANaNIsTracedToTheOperatorThatMadeIt) {
  recipe_.bindings = {{"relu", "one"}};
  options_.on_step = [&](const TrainOptions::StepReport& report) {
    if (report.step == 5) fake("one").faults["relu/gradient"] = [](Tensor& t) { t.mutable_as<float>()[3] = NAN; };
  };
  const auto result = run("a");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->end, TrainEnd::not_finite);
  EXPECT_THAT(result->reason, HasSubstr("step 6: "));
  EXPECT_THAT(result->reason, HasSubstr("the first operator to make one is 'relu/gradient' (Relu) on one"));
  EXPECT_THAT(result->reason, HasSubstr("the reference stays finite"));
  EXPECT_EQ((*read_checkpoint(folder_ / "a"))->step, 5);
}

TEST_F(Training, ProvenSteps) {
  recipe_.backend = "one";
  options_.check_every = 2;
  const auto healthy = run("a");
  ASSERT_TRUE(healthy) << healthy.error().message;
  EXPECT_FALSE(healthy->has_defect());
  EXPECT_EQ(healthy->lockstep.size(), 9u);  // 18 steps, of which the last of each epoch has half a batch
  for (const CheckedNode& node : healthy->checked) EXPECT_EQ(node.steps, 9) << node.id;
  EXPECT_EQ(healthy->lockstep[0].difference, 0);

  fake("one").faults["w1/update"] = [](Tensor& t) { t.mutable_as<float>()[7] *= 1.001f; };
  options_.check_every = 1;
  const auto faulty = run("b");
  ASSERT_TRUE(faulty) << faulty.error().message;
  EXPECT_TRUE(faulty->has_defect());
  for (const CheckedNode& node : faulty->checked) EXPECT_EQ(node.is_defect(), node.id == "w1/update") << node.id;
  EXPECT_GT(faulty->lockstep[0].difference, 0);
  EXPECT_EQ(faulty->lockstep[0].tensor, "w1");
}

TEST_F(Training, FreeRunning) {
  recipe_.backend = "one";
  recipe_.epochs = 2;
  options_.free = true;
  const auto healthy = run("a");
  ASSERT_TRUE(healthy) << healthy.error().message;
  EXPECT_EQ(healthy->drift.size(), 12u);
  EXPECT_FALSE(healthy->left);
  EXPECT_EQ(healthy->drift.back().drift, 0);  // the same arithmetic as the reference

  fake("one").faults["w1/update"] = [](Tensor& t) { t.mutable_as<float>()[7] *= 1.001f; };
  const auto faulty = run("b");
  ASSERT_TRUE(faulty) << faulty.error().message;
  ASSERT_TRUE(faulty->left);
  EXPECT_EQ(faulty->left->step, 1);
  EXPECT_TRUE(faulty->has_defect());
}

TEST_F(Training, TheLastStepAlone) {
  options_.check_last = true;
  recipe_.backend = "one";
  const auto result = run("a");
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result->lockstep.size(), 1u);
  EXPECT_EQ(result->lockstep[0].step, 18);  // of what is left over, a smaller batch
}

}  // namespace
}  // namespace opdiff
