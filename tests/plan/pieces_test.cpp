// The parts that need no comparison: cuts, readings, rewrites, inputs, threads.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "fake_backend.h"
#include "plan/cut.h"
#include "plan/inputs.h"
#include "plan/probe.h"
#include "plan/reading.h"
#include "plan/rewrite.h"
#include "plan/thread_pool.h"
#include "plan/whole_model.h"

namespace opdiff {
namespace {

TensorMap inputs_of_chain() { return draw_inputs({{"x", {DType::f32, Shape{4, 8}}}}, 3); }

TEST(Cut, EveryAssignmentOfAHealthyBackendGivesTheReferencesBits) {
  const Graph graph = chain_graph(5);
  const TensorMap inputs = inputs_of_chain();
  const TensorMap right = *evaluate_graph(graph, inputs);
  FakeBackend backend("fake");
  for (int bits = 0; bits < 32; ++bits) {
    std::vector<int> labels;
    for (int i = 0; i < 5; ++i) labels.push_back(bits >> i & 1);
    std::vector<CutPart> parts;
    for (NodeSet& nodes : partition_into_convex_segments(graph, labels)) {
      const bool reference = label_of(graph, nodes, labels) == 1;
      parts.push_back({std::move(nodes), reference ? reference_runner({}) : backend_runner(backend)});
    }
    const Outcome outcome = run_cut(graph, inputs, parts, {});
    ASSERT_TRUE(outcome.ok()) << outcome.reason;
    EXPECT_TRUE(outcome.outputs.at("t4").bit_equal(right.at("t4")));
  }
}

TEST(Cut, AFailureNamesTheNodes) {
  const Graph graph = chain_graph(4);
  FakeBackend backend("fake");
  backend.dying["n2"] = OutcomeKind::crash;
  const Outcome outcome = run_cut(graph, inputs_of_chain(), nodes_apart(graph, backend_runner(backend)), {});
  EXPECT_EQ(outcome.kind, OutcomeKind::crash);
  EXPECT_NE(outcome.reason.find("n2"), std::string::npos);
}

TEST(Reading, ShapesTypesAndMissingOutputs) {
  const TensorMap expected = {{"y", Tensor::zeros(DType::f32, {2, 3})}};
  const FloorSource floor = []() -> Expected<const Floor*> { return make_error("not asked for"); };
  Outcome outcome;
  EXPECT_EQ(read_outputs(outcome, expected, floor).outcome, OutcomeKind::error);
  outcome.outputs["y"] = Tensor::zeros(DType::f32, {2, 3});
  EXPECT_FALSE(read_outputs(outcome, expected, floor).wrong);  // bit-identical: no floor needed
  for (const Tensor& wrong : {Tensor::zeros(DType::f32, {3, 2}), Tensor::zeros(DType::f64, {2, 3})}) {
    outcome.outputs["y"] = wrong;
    const Reading reading = read_outputs(outcome, expected, floor);
    EXPECT_TRUE(reading.wrong && reading.wrong_shape);
    EXPECT_NE(reading.reason.find("'y'"), std::string::npos);
    EXPECT_TRUE(std::isinf(reading.error()));
  }
}

TEST(Reading, AFlipInsideTheNoiseIsNoMoreThanThat) {
  const std::vector<double> right = {0.5, 0.5000001, 0, 1, 0, 0}, got = {0.5000001, 0.5, 0, 0, 1, 0};
  const std::vector<double> floor(6, 1e-7);
  const std::vector<std::int64_t> labels = {1, 0};
  const Tensor label = Tensor::from_int64s(DType::i64, {2}, labels);
  const auto result = classify(Tensor::from_doubles(DType::f64, {2, 3}, got),
                               Tensor::from_doubles(DType::f64, {2, 3}, right), &floor, &label);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->flips, 2);
  EXPECT_EQ(result->flips_inside_noise, 1);
  EXPECT_EQ(result->right, 0);
  EXPECT_EQ(result->reference_right, 2);
}

TEST(Rewrite, BroadcastOperandsGiveTheSameResult) {
  Node node;
  node.op = "Add";
  node.inputs = {"a", "b"};
  node.outputs = {"y"};
  const Tensor a = draw_inputs({{"a", {DType::f32, Shape{2, 1, 3}}}}, 0).at("a");
  const Tensor b = draw_inputs({{"b", {DType::f32, Shape{4, 1}}}}, 0).at("b");
  const auto rewritten = rewrite_node(node, 17, {&a, &b});
  ASSERT_TRUE(rewritten);
  const std::vector<const Tensor*> before = {&a, &b};
  EXPECT_TRUE((*evaluate_node(node, 17, before))[0].bit_equal(
      (*evaluate_node(rewritten->node, rewritten->opset, pointers_to(rewritten->inputs)))[0]));
  EXPECT_FALSE(rewrite_node(node, 17, {&a, &a}));
}

TEST(Rewrite, AxesMoveBetweenAttributeAndInput) {
  Node node;
  node.op = "ReduceMean";
  node.inputs = {"x"};
  node.outputs = {"y"};
  node.attributes["axes"] = std::vector<std::int64_t>{1};
  const Tensor x = draw_inputs({{"x", {DType::f32, Shape{2, 5, 3}}}}, 0).at("x");
  const auto as_input = rewrite_node(node, 13, {&x});
  ASSERT_TRUE(as_input);
  EXPECT_EQ(as_input->opset, 18);
  const std::vector<const Tensor*> before = {&x};
  const Tensor right = (*evaluate_node(node, 13, before))[0];
  EXPECT_TRUE((*evaluate_node(as_input->node, 18, pointers_to(as_input->inputs)))[0].bit_equal(right));
  const auto back = rewrite_node(as_input->node, 18, pointers_to(as_input->inputs));
  ASSERT_TRUE(back);
  EXPECT_TRUE((*evaluate_node(back->node, back->opset, pointers_to(back->inputs)))[0].bit_equal(right));
}

TEST(Inputs, DependOnTheSeedAndTheirNameAlone) {
  const TensorType type{DType::f32, Shape{3, 3}};
  EXPECT_TRUE(draw_inputs({{"a", type}}, 1).at("a").bit_equal(draw_inputs({{"a", type}, {"b", type}}, 1).at("a")));
  EXPECT_FALSE(draw_inputs({{"a", type}}, 1).at("a").bit_equal(draw_inputs({{"a", type}}, 2).at("a")));
  EXPECT_FALSE(
      draw_inputs({{"a", type}, {"b", type}}, 1).at("a").bit_equal(draw_inputs({{"a", type}, {"b", type}}, 1).at("b")));
}

TEST(Inputs, AMissingOneIsNamedWithWhatIsThere) {
  const Graph graph = chain_graph(1);
  const auto missing = split_inputs(graph, {{"image", Tensor::zeros(DType::f32, {1})}}, "in.npz");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "in.npz: no array for the model's input 'x'; the file has: image");
  const auto split = split_inputs(graph, {{"x", Tensor()}, {"label", Tensor()}}, "in.npz");
  ASSERT_TRUE(split);
  EXPECT_EQ(split->extra.count("label"), 1U);
}

TEST(DrawnLike, KeepsZerosScaleAndIntegers) {
  Rng rng(5);
  std::vector<double> values(1000, 0.0);
  for (std::size_t i = 0; i < 500; ++i) values[i] = 3;
  const Tensor drawn = drawn_like(Tensor::from_doubles(DType::f32, {1000}, values), rng);
  int zeros = 0;
  for (const float value : drawn.as<float>()) {
    zeros += value == 0;
    EXPECT_TRUE(value == 0 || std::abs(value - 3) <= 3 * 0x1p-8);
  }
  EXPECT_NEAR(zeros, 500, 100);
  const std::vector<std::int64_t> indices = {4, 2};
  const Tensor integers = Tensor::from_int64s(DType::i64, {2}, indices);
  EXPECT_TRUE(drawn_like(integers, rng).bit_equal(integers));
}

TEST(ThreadPool, RunsEverythingAndWaits) {
  for (const int threads : {1, 3, 8}) {
    ThreadPool pool(threads);
    std::atomic<int> done{0};
    for (int i = 0; i < 500; ++i) pool.submit([&] { ++done; });
    pool.wait();
    EXPECT_EQ(done, 500);
  }
}

TEST(WholeModel, RepeatsThatDifferAreSeen) {
  const Graph graph = chain_graph(3);
  FakeBackend backend("fake");
  EXPECT_FALSE(run_whole(backend, graph, inputs_of_chain(), {}).again);
  int runs = 0;
  backend.faults["n1"] = [&](Tensor& tensor) { tensor.mutable_as<float>()[0] += static_cast<float>(++runs); };
  EXPECT_TRUE(run_whole(backend, graph, inputs_of_chain(), {}).again);
  EXPECT_EQ(backend.open_graphs(), 0U);
}

}  // namespace
}  // namespace opdiff
