// Validation and binding: order, and a message that names the culprit for every kind of broken graph.
#include "graph/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/text.h"
#include "sample_graphs.h"

namespace opdiff {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_graphs::node;
using testing_graphs::small_net;

std::string message(Graph graph) {
  const auto result = validate(graph);
  return result ? "(valid)" : result.error().message;
}

TEST(Validate, ReordersOnlyWhatIsOutOfOrder) {
  Graph graph = small_net();
  EXPECT_TRUE(validate(graph));
  testing_graphs::expect_same(graph, small_net());
  std::reverse(graph.nodes.begin(), graph.nodes.end());
  EXPECT_TRUE(validate(graph));
  testing_graphs::expect_same(graph, small_net());
}

TEST(Validate, Messages) {
  Graph graph = small_net();
  graph.nodes[0].inputs[0] = "f";
  EXPECT_EQ(message(graph),
            "the graph has a cycle: node 'c' (Conv) -> node 'r' (Relu) -> node 'f' (Flatten) -> node 'c' (Conv)");
  graph = small_net();
  graph.nodes[1].inputs[0] = "r";
  EXPECT_EQ(message(graph), "the graph has a cycle: node 'r' (Relu) -> node 'r' (Relu)");
  graph = small_net();
  graph.nodes[1].inputs[0] = "nothing";
  EXPECT_EQ(message(graph),
            "node 'r' (Relu): input 'nothing' is made by no node and is neither an input nor an initialiser");
  graph = small_net();
  graph.nodes[1].outputs[0] = "c";
  EXPECT_THAT(message(graph), AllOf(HasSubstr("'c' is made twice"), HasSubstr("(Conv)"), HasSubstr("(Relu)")));
  graph = small_net();
  graph.nodes[1].outputs[0] = "w";
  EXPECT_THAT(message(graph), AllOf(HasSubstr("'w' is made twice"), HasSubstr("initialisers")));
  graph = small_net();
  graph.outputs.push_back(graph.outputs[0]);
  EXPECT_EQ(message(graph), "graph output 'y' is declared twice");
  graph.outputs[1].name = "z";
  EXPECT_THAT(message(graph), HasSubstr("graph output 'z' is made by no node"));
  graph.outputs.clear();
  EXPECT_EQ(message(graph), "the graph has no outputs");
  graph = small_net();
  graph.nodes[1].id = "c";
  EXPECT_EQ(message(graph), "two nodes have the id 'c'");
  EXPECT_EQ(message(testing_graphs::every_kind_of_attribute()), "(valid)");
}

TEST(Validate, SubgraphsSeeTheOuterScope) {
  Graph body;
  body.nodes = {node("Relu", {"inner"}, {"t"}), node("Mul", {"r", "w"}, {"inner"})};
  body.outputs = {{"t", DType::f32, std::nullopt}};
  Graph graph = small_net();
  graph.nodes.insert(graph.nodes.begin(), node("If", {"x"}, {"i"}, {{"then_branch", std::make_shared<Graph>(body)}}));
  EXPECT_TRUE(validate(graph));
  EXPECT_EQ(graph.nodes[2].id, "i");  // after r, which its subgraph uses
  body.nodes[1].inputs[0] = "unknown";
  graph.nodes[2].attributes["then_branch"] = std::make_shared<Graph>(body);
  EXPECT_THAT(message(graph), AllOf(HasSubstr("node 'i' (If): attribute 'then_branch'"),
                                    HasSubstr("node 'inner' (Mul): input 'unknown'")));
}

Tensor zeros(Shape shape, DType dtype = DType::f32) { return Tensor::zeros(dtype, std::move(shape)); }

TEST(Bind, SymbolsEverywhere) {
  Graph graph = small_net();
  graph.values = {{"c", DType::f32, std::vector<Dimension>{{std::nullopt, "batch"}, {}}}};
  ASSERT_TRUE(bind_dimensions(graph, {}, {{"x", zeros({5, 1, 1, 1})}}));
  EXPECT_EQ(to_text(graph.inputs[0]), "float[5,1,1,1]");
  EXPECT_EQ(to_text(graph.outputs[0]), "float[5,2]");
  EXPECT_EQ(to_text(graph.values[0]), "float[5,?]");
  EXPECT_EQ(input_types(graph)->at("x").shape, (Shape{5, 1, 1, 1}));

  graph = small_net();
  EXPECT_THAT(input_types(graph).error().message, HasSubstr("--dim batch=N"));
  ASSERT_TRUE(bind_dimensions(graph, {{"batch", 3}}, {}, false));
  EXPECT_EQ(to_text(graph.inputs[0]), "float[3,1,1,1]");
}

TEST(Bind, UnknownShapesComeFromTheInput) {
  Graph graph = small_net();
  graph.inputs[0].shape.reset();
  EXPECT_THAT(input_types(graph).error().message, HasSubstr("no known rank"));
  ASSERT_TRUE(bind_dimensions(graph, {}, {{"x", zeros({2, 7})}}));
  EXPECT_EQ(to_text(graph.inputs[0]), "float[2,7]");
}

TEST(Bind, Messages) {
  const auto message = [](const std::map<std::string, std::int64_t>& dims, const TensorMap& inputs) {
    Graph graph = small_net();
    const auto result = bind_dimensions(graph, dims, inputs);
    return result ? "(bound)" : result.error().message;
  };
  const Tensor x = zeros({5, 1, 1, 1});
  EXPECT_EQ(message({}, {}), "missing input 'x' float[batch,1,1,1]");
  EXPECT_EQ(message({}, {{"x", x}, {"z", x}}), "the model has no input 'z'; its inputs are 'x' float[batch,1,1,1]");
  EXPECT_THAT(message({}, {{"x", x}, {"w", x}}), HasSubstr("it is an initialiser"));
  EXPECT_EQ(message({}, {{"x", zeros({5, 1, 2, 1})}}),
            "input 'x' must be float[batch,1,1,1], but float[5,1,2,1] was given");
  EXPECT_EQ(message({}, {{"x", zeros({5, 1})}}), "input 'x' must be float[batch,1,1,1], but float[5,1] was given");
  EXPECT_EQ(message({}, {{"x", zeros({5, 1, 1, 1}, DType::f64)}}),
            "input 'x' must be float[batch,1,1,1], but double[5,1,1,1] was given");
  EXPECT_EQ(message({{"batch", 4}}, {{"x", x}}),
            "dimension 'batch' is 4 by --dim, but 5 by input 'x' (float[5,1,1,1])");
  EXPECT_THAT(message({{"sequence", 4}}, {{"x", x}}), HasSubstr("no dimension 'sequence'"));
  EXPECT_THAT(message({{"batch", -4}}, {{"x", x}}), HasSubstr("cannot be -4"));
}

TEST(Text, OneLineANode) {
  const Graph graph = testing_graphs::every_kind_of_attribute();
  EXPECT_EQ(to_text(graph.nodes[0]), "c: Conv(x, w) -> c  {strides=[1,1]}");
  EXPECT_EQ(to_text(graph.nodes[1]), "r: Relu(c) -> r");
  EXPECT_EQ(to_text(graph.nodes[4]),
            "my custom: com.example.Custom(x, _, w) -> z, _, q  {f=-inf, fs=[0.1,-0], fs0=[], g=graph{4 "
            "nodes}, i=-5, "
            "is=[1,-2,4611686018427387904], is0=[], n=nan, s=\"caf\xc3\xa9\", ss=[\"a\",\"\"], ss0=[], "
            "t=bfloat16[2]{1,2}, t0=double[]{0.1}, te=int64[0,3]{}}");
  const std::string text = to_text(graph);
  EXPECT_THAT(text, HasSubstr("graph small (opset 19, com.example 1, IR version 9)\ninput x: float[batch,1,1,1]\n"));
  EXPECT_THAT(text, HasSubstr("initialiser w: float[2,1,1,1]\n"));
  EXPECT_THAT(text, HasSubstr("output y: float[batch,2]\n"));
}

}  // namespace
}  // namespace opdiff
