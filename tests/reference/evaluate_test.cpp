// The reference walk over graphs, shape inference, and the measured noise floor.
#include "reference/evaluate.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "numerics/parallel.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

Node node(std::string op, std::vector<std::string> inputs, std::vector<std::string> outputs,
          std::map<std::string, Attribute> attributes = {}) {
  return {outputs.empty() ? "n" : "n_" + outputs[0],
          std::move(op),
          "",
          std::move(inputs),
          std::move(outputs),
          std::move(attributes)};
}
Tensor random_tensor(Shape shape, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<double> v(static_cast<std::size_t>(element_count(shape)));
  for (double& x : v) x = rng.normal();
  return Tensor::from_doubles(DType::f32, std::move(shape), v);
}
Graph graph(std::vector<Node> nodes, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  Graph g;
  g.nodes = std::move(nodes);
  for (auto& name : inputs) g.inputs.push_back({name, DType::f32, std::nullopt});
  for (auto& name : outputs) g.outputs.push_back({name, DType::f32, std::nullopt});
  return g;
}
using Types = std::map<std::string, TensorType>;

TEST(EvaluateGraph, GivesTheOutputsOfAChain) {
  const Graph g = graph({node("Relu", {"x"}, {"a"}), node("Add", {"a", "x"}, {"y"})}, {"x"}, {"y", "a"});
  const auto y = evaluate_graph(g, {{"x", Tensor::from_doubles(DType::f32, {3}, std::vector<double>{-1, 2, 0.5})}});
  ASSERT_TRUE(y.has_value()) << y.error().message;
  EXPECT_EQ(y->at("y").to_doubles(), (std::vector<double>{-1, 4, 1}));
  EXPECT_EQ(y->at("a").to_doubles(), (std::vector<double>{0, 2, 0.5}));
}

TEST(EvaluateGraph, NamesAMissingInput) {
  const Graph g = graph({node("Relu", {"x"}, {"y"})}, {"x"}, {"y"});
  const auto y = evaluate_graph(g, {});
  ASSERT_FALSE(y.has_value());
  EXPECT_NE(y.error().message.find("'x'"), std::string::npos) << y.error().message;
  EXPECT_NE(y.error().message.find("n_y"), std::string::npos) << y.error().message;
  const auto none = evaluate_graph(graph({}, {}, {"z"}), {});
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find("'z'"), std::string::npos);
}

TEST(EvaluateGraph, DropsTensorsAfterTheirLastUse) {
  // A chain of 40 nodes: at most the input, one result and its operand are alive together.
  std::vector<Node> nodes;
  for (int k = 0; k < 40; ++k)
    nodes.push_back(node("Relu", {k == 0 ? "x" : "t" + std::to_string(k - 1)}, {"t" + std::to_string(k)}));
  const Graph g = graph(nodes, {"x"}, {"t39"});
  const auto heap = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const std::size_t before = heap();
  std::size_t most = 0;
  const auto y = evaluate_graph(g, {{"x", random_tensor({1 << 16}, 1)}}, [&](const NodeVisit&) -> Expected<void> {
    most = std::max(most, heap());
    return {};
  });
  ASSERT_TRUE(y.has_value());
  // A tensor takes 256 KiB; all 40 would take 10 MiB.
  EXPECT_LE(most, before + (4u << 20)) << "dropped tensors give their memory back";
}

TEST(EvaluateGraph, KeepsWhatIsReadAgainAndDropsWhatNobodyReads) {
  const Graph g = graph({node("Relu", {"x"}, {"a"}), node("Relu", {"a"}, {"unread"}), node("Mul", {"a", "a"}, {"b"}),
                         node("Add", {"a", "b"}, {"y"})},
                        {"x"}, {"y"});
  const auto y = evaluate_graph(g, {{"x", Tensor::from_doubles(DType::f32, {1}, std::vector<double>{3})}});
  ASSERT_TRUE(y.has_value());
  EXPECT_EQ(y->at("y").at(0), 12);
  EXPECT_EQ(y->size(), 1u);
}

TEST(EvaluateGraph, OutputsMayBeInputsAndInitialisers) {
  Graph g = graph({node("Relu", {"x"}, {"y"})}, {"x"}, {"x", "w", "y"});
  g.initialisers["w"] = random_tensor({2}, 2);
  const auto y = evaluate_graph(g, {{"x", random_tensor({2}, 1)}});
  ASSERT_TRUE(y.has_value()) << y.error().message;
  EXPECT_TRUE(y->at("w").bit_equal(g.initialisers["w"]));
}

TEST(EvaluateGraph, AsksTheForeignEvaluator) {
  Graph g = graph({node("Frobnicate", {"x"}, {"a"}), node("Relu", {"a"}, {"y"})}, {"x"}, {"y"});
  const TensorMap x{{"x", Tensor::from_doubles(DType::f32, {2}, std::vector<double>{1, -1})}};
  const auto alone = evaluate_graph(g, x);
  ASSERT_FALSE(alone.has_value());
  EXPECT_NE(alone.error().message.find("Frobnicate"), std::string::npos);
  int asked = 0;
  const ForeignEvaluator twice = [&](const Node& n,
                                     std::span<const Tensor* const> inputs) -> Expected<std::vector<Tensor>> {
    ++asked;
    EXPECT_EQ(n.op, "Frobnicate");
    std::vector<double> v = inputs[0]->to_doubles();
    for (double& t : v) t *= 2;
    return std::vector<Tensor>{Tensor::from_doubles(DType::f32, {2}, v)};
  };
  const auto y = evaluate_graph(g, x, {}, twice);
  ASSERT_TRUE(y.has_value());
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(y->at("y").to_doubles(), (std::vector<double>{2, 0}));
  const auto refused =
      evaluate_graph(g, x, {}, [](const Node&, auto) -> Expected<std::vector<Tensor>> { return make_error("cannot"); });
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("cannot"), std::string::npos);
  const auto few = evaluate_graph(
      g, x, {}, [](const Node&, auto) -> Expected<std::vector<Tensor>> { return std::vector<Tensor>{}; });
  EXPECT_FALSE(few.has_value());
}

TEST(EvaluateGraph, AVisitorMayStop) {
  const Graph g = graph({node("Relu", {"x"}, {"a"}), node("Relu", {"a"}, {"y"})}, {"x"}, {"y"});
  int visits = 0;
  const auto y = evaluate_graph(g, {{"x", random_tensor({2}, 1)}}, [&](const NodeVisit&) -> Expected<void> {
    ++visits;
    return make_error("enough");
  });
  EXPECT_FALSE(y.has_value());
  EXPECT_EQ(visits, 1);
}

TEST(EvaluatePerturbed, DisturbsBeforeAnybodyReads) {
  const Graph g = graph({node("Relu", {"x"}, {"a"}), node("Mul", {"a", "a"}, {"y"})}, {"x"}, {"y"});
  const auto y = evaluate_perturbed(g, {{"x", Tensor::from_doubles(DType::f32, {1}, std::vector<double>{3})}},
                                    [](int k, std::vector<Tensor>& out) {
                                      if (k == 0)
                                        out[0] = Tensor::from_doubles(DType::f32, {1}, std::vector<double>{5});
                                    });
  ASSERT_TRUE(y.has_value());
  EXPECT_EQ(y->at("y").at(0), 25);
}

TEST(InferTypes, FollowsShapes) {
  Graph g =
      graph({node("Conv", {"x", "w"}, {"a"}), node("Relu", {"a"}, {"b"}), node("Flatten", {"b"}, {"y"})}, {"x"}, {"y"});
  g.initialisers["w"] = random_tensor({4, 3, 3, 3}, 1);
  const auto t = infer_types(g, Types{{"x", {DType::f32, Shape{2, 3, 8, 8}}}});
  ASSERT_TRUE(t.has_value()) << t.error().message;
  EXPECT_EQ(*t->at("a").shape, (Shape{2, 4, 6, 6}));
  EXPECT_EQ(*t->at("y").shape, (Shape{2, 144}));
}

TEST(InferTypes, DataDependentShapesAreUnknown) {
  Graph g = graph({node("Reshape", {"x", "s"}, {"a"}), node("Relu", {"a"}, {"y"})}, {"x", "s"}, {"y"});
  const auto t = infer_types(g, Types{{"x", {DType::f32, Shape{2, 3}}}, {"s", {DType::i64, Shape{1}}}});
  ASSERT_TRUE(t.has_value()) << t.error().message;
  EXPECT_FALSE(t->at("a").shape.has_value());
  EXPECT_FALSE(t->at("y").shape.has_value());
  EXPECT_EQ(t->at("y").dtype, DType::f32);
}

TEST(InferTypes, ShapesOfShapesAreKnown) {
  // Reshape to a part of another tensor's shape, as exporters write it; Slice without axes but with steps.
  Graph g = graph({node("Shape", {"x"}, {"s"}), node("Slice", {"s", "from", "to", "", "step"}, {"part"}),
                   node("Concat", {"part", "rest"}, {"target"}, {{"axis", std::int64_t{0}}}),
                   node("Reshape", {"x", "target"}, {"y"})},
                  {"x"}, {"y"});
  const auto ints = [](std::vector<std::int64_t> v) {
    return Tensor::from_int64s(DType::i64, {static_cast<std::int64_t>(v.size())}, v);
  };
  g.initialisers = {{"from", ints({0})}, {"to", ints({1})}, {"step", ints({1})}, {"rest", ints({-1})}};
  const auto t = infer_types(g, Types{{"x", {DType::f32, Shape{2, 3, 4}}}});
  ASSERT_TRUE(t.has_value()) << t.error().message;
  ASSERT_TRUE(t->at("y").shape.has_value());
  EXPECT_EQ(*t->at("y").shape, (Shape{2, 12}));
}

TEST(InferTypes, NamesTheInconsistentNode) {
  Graph g = graph({node("Relu", {"x"}, {"a"}), node("Add", {"a", "w"}, {"y"})}, {"x"}, {"y"});
  g.initialisers["w"] = random_tensor({5}, 1);
  const auto shapes = infer_types(g, Types{{"x", {DType::f32, Shape{2, 3}}}});
  ASSERT_FALSE(shapes.has_value());
  EXPECT_NE(shapes.error().message.find("n_y"), std::string::npos) << shapes.error().message;
  g.initialisers["w"] = Tensor::zeros(DType::f64, {3});
  const auto types = infer_types(g, Types{{"x", {DType::f32, Shape{2, 3}}}});
  ASSERT_FALSE(types.has_value());
  EXPECT_NE(types.error().message.find("n_y"), std::string::npos) << types.error().message;
}

TEST(InferTypes, UnknownOperatorsTakeTheirDeclaration) {
  Graph g = graph({node("Frobnicate", {"x"}, {"a"}), node("Relu", {"a"}, {"y"})}, {"x"}, {"y"});
  g.values.push_back({"a", DType::f32, std::vector<Dimension>{{2, ""}, {3, ""}}});
  const auto t = infer_types(g, Types{{"x", {DType::f32, Shape{7}}}});
  ASSERT_TRUE(t.has_value()) << t.error().message;
  EXPECT_EQ(*t->at("y").shape, (Shape{2, 3}));
}

TEST(NoiseFloor, DependsOnTheSeedAlone) {
  Graph g = graph({node("Gemm", {"x", "w"}, {"a"}), node("Sigmoid", {"a"}, {"b"}), node("Gemm", {"b", "w"}, {"y"})},
                  {"x"}, {"y"});
  g.initialisers["w"] = random_tensor({12, 12}, 1);
  const TensorMap x{{"x", random_tensor({5, 12}, 2)}};
  set_threads(1);
  const auto one = noise_floor(g, x, 8, 7);
  set_threads(5);
  const auto five = noise_floor(g, x, 8, 7), other = noise_floor(g, x, 8, 8);
  set_threads(0);
  ASSERT_TRUE(one.has_value() && five.has_value() && other.has_value());
  EXPECT_EQ(one->at("y"), five->at("y"));
  EXPECT_NE(one->at("y"), other->at("y"));
  for (const double s : one->at("y")) EXPECT_GT(s, 0);
}

TEST(NoiseFloor, OfOneNodeIsItsDeviation) {
  Graph g = graph({node("Gemm", {"x", "w"}, {"y"})}, {"x"}, {"y"});
  g.initialisers["w"] = random_tensor({100, 8}, 1);
  const TensorMap x{{"x", random_tensor({8, 100}, 2)}};
  const auto floor = noise_floor(g, x, 64, 3);
  ASSERT_TRUE(floor.has_value());
  const Tensor* inputs[] = {&x.at("x"), &g.initialisers.at("w")};
  const auto e = enclose(*find_operator("", "Gemm"), Call(g.nodes[0], 17, inputs), inner_f32(DType::f32), 0)[0];
  std::vector<double> sorted = e.deviation;
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[sorted.size() / 2];
  for (std::size_t i = 0; i < e.deviation.size(); ++i) {
    EXPECT_GT(floor->at("y")[i], 0.5 * e.deviation[i]);
    EXPECT_LT(floor->at("y")[i], 2 * std::max(e.deviation[i], median));
  }
}

TEST(NoiseFloor, GrowsThroughALayerAndHonestRunsStayBelowIt) {
  Graph g = graph({node("Gemm", {"x", "w"}, {"a"}), node("Tanh", {"a"}, {"b"}), node("Gemm", {"b", "w"}, {"c"}),
                   node("Softmax", {"c"}, {"y"})},
                  {"x"}, {"y", "a"});
  g.initialisers["w"] = random_tensor({30, 30}, 1);
  const TensorMap x{{"x", random_tensor({6, 30}, 2)}};
  const auto floor = noise_floor(g, x, 8, 3);
  ASSERT_TRUE(floor.has_value());
  // An honest f32 run, node by node.
  TensorMap live = x;
  live["w"] = g.initialisers["w"];
  for (const Node& n : g.nodes) {
    std::vector<const Tensor*> inputs;
    for (const auto& name : n.inputs) inputs.push_back(&live.at(name));
    live[n.outputs[0]] = work(*find_operator("", n.op), Call(n, 17, inputs), inner_f32(DType::f32), 0)[0];
  }
  const auto reference = evaluate_graph(g, x);
  double squares = 0;
  const auto& s = floor->at("y");
  for (std::int64_t i = 0; i < live["y"].size(); ++i) {
    const double z = (live["y"].at(i) - reference->at("y").at(i)) / s[static_cast<std::size_t>(i)];
    squares += z * z;
    EXPECT_LT(std::fabs(z), 10);
  }
  EXPECT_LT(std::sqrt(squares / static_cast<double>(s.size())), 3);
  EXPECT_GT(squares, 0);
}

TEST(NoiseFloor, AsksForeignNodesUnperturbed) {
  Graph g = graph({node("Gemm", {"x", "w"}, {"a"}), node("Frobnicate", {"a"}, {"y"})}, {"x"}, {"y"});
  g.initialisers["w"] = random_tensor({4, 4}, 1);
  const ForeignEvaluator same = [](const Node&, std::span<const Tensor* const> in) -> Expected<std::vector<Tensor>> {
    return std::vector<Tensor>{in[0]->clone()};
  };
  const auto floor = noise_floor(g, {{"x", random_tensor({2, 4}, 2)}}, 8, 3, same);
  ASSERT_TRUE(floor.has_value());
  for (const double s : floor->at("y")) EXPECT_GT(s, 0);
  EXPECT_FALSE(noise_floor(g, {{"x", random_tensor({2, 4}, 2)}}, 8, 3).has_value());
}

}  // namespace
}  // namespace opdiff
