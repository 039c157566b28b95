// Differentiation of whole graphs against derivatives worked out by hand.
#include "reference/differentiate.h"

#include <gtest/gtest.h>

#include "reference/evaluate.h"

namespace opdiff {
namespace {

Tensor vector_of(std::vector<double> values) {
  return Tensor::from_doubles(DType::f32, {static_cast<std::int64_t>(values.size())}, values);
}

Node node(std::string op, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  Node n;
  n.id = op + "_" + outputs[0];
  n.op = std::move(op);
  n.inputs = std::move(inputs);
  n.outputs = std::move(outputs);
  return n;
}

ValueInfo value(const std::string& name, std::int64_t extent) { return {name, DType::f32, {{{extent, ""}}}}; }

// y = relu(w x) + x, with x used twice.
Graph residual() {
  Graph g;
  g.inputs = {value("x", 2)};
  g.initialisers["w"] = vector_of({3, -2});
  g.nodes = {node("Mul", {"w", "x"}, {"p"}), node("Relu", {"p"}, {"r"}), node("Add", {"r", "x"}, {"y"})};
  g.outputs = {value("y", 2)};
  return g;
}

TypeMap types_of(const Graph& g) {
  std::map<std::string, TensorType> inputs;
  for (const ValueInfo& input : g.inputs) inputs[input.name] = {input.dtype, Shape{*(*input.shape)[0].value}};
  return *infer_types(g, inputs);
}

TEST(Differentiate, ATensorUsedTwiceGetsTheSum) {
  const Graph g = residual();
  const auto t = differentiate(g, types_of(g), {{"y", "dy"}}, {"w", "x"});
  ASSERT_TRUE(t.has_value()) << t.error().message;
  const auto outputs = evaluate_graph(t->graph, {{"x", vector_of({5, 7})}, {"dy", vector_of({1, 10})}});
  ASSERT_TRUE(outputs.has_value()) << outputs.error().message;
  // relu'(15) = 1, relu'(-14) = 0
  EXPECT_EQ(outputs->at(t->training.gradients.at("w")).to_doubles(), (std::vector<double>{5, 0}));
  EXPECT_EQ(outputs->at(t->training.gradients.at("x")).to_doubles(), (std::vector<double>{3 + 1, 10}));
  EXPECT_EQ(outputs->at("y").to_doubles(), (std::vector<double>{20, 7}));
  EXPECT_EQ(t->training.gradients.at("w"), "w/gradient");
  EXPECT_EQ(t->training.gradients.at("x"), "x/gradient");
  EXPECT_EQ(t->training.backward.size(), 4u);  // three gradients and one sum
}

TEST(Differentiate, OneTensorAtBothInputs) {
  Graph g;
  g.inputs = {value("x", 2)};
  g.nodes = {node("Mul", {"x", "x"}, {"y"})};
  g.outputs = {value("y", 2)};
  const auto t = differentiate(g, types_of(g), {{"y", "dy"}}, {"x"});
  ASSERT_TRUE(t.has_value()) << t.error().message;
  const auto outputs = evaluate_graph(t->graph, {{"x", vector_of({5, 7})}, {"dy", vector_of({1, 2})}});
  ASSERT_TRUE(outputs.has_value()) << outputs.error().message;
  EXPECT_EQ(outputs->at(t->training.gradients.at("x")).to_doubles(), (std::vector<double>{10, 28}));
}

TEST(Differentiate, OnlyWhatMatters) {
  const Graph g = residual();
  const auto t = differentiate(g, types_of(g), {{"r", "dr"}}, {"w"});
  ASSERT_TRUE(t.has_value()) << t.error().message;
  EXPECT_EQ(t->training.backward, (std::set<std::string>{"Relu_r/gradient", "Mul_p/gradient"}));
  EXPECT_EQ(t->graph.nodes.back().outputs, (std::vector<std::string>{"w/gradient"}));  // none for x
  EXPECT_EQ(differentiable_tensors(g, types_of(g)), (std::vector<std::string>{"w", "x"}));
}

TEST(Differentiate, SaysWhatHasNoGradient) {
  Graph g = residual();
  g.nodes[1].op = "Frobnicate";
  g.values = {value("r", 2)};
  const auto t = differentiate(g, types_of(g), {{"y", "dy"}}, {"w"});
  ASSERT_FALSE(t.has_value());
  EXPECT_NE(t.error().message.find("Frobnicate"), std::string::npos) << t.error().message;

  const Graph h = residual();
  const auto none = differentiate(h, types_of(h), {{"p", "dp"}}, {"r"});
  ASSERT_FALSE(none.has_value());
  EXPECT_NE(none.error().message.find("'r'"), std::string::npos) << none.error().message;
}

}  // namespace
}  // namespace opdiff
