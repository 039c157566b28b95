#include "train/assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/meta_operator.h"

namespace opdiff {
namespace {

using ::testing::HasSubstr;

Graph step() {
  Graph graph;
  const auto add = [&](const std::string& id, const std::string& op, const std::string& domain = "") {
    Node node;
    node.id = id;
    node.op = op;
    node.domain = domain;
    graph.nodes.push_back(node);
  };
  add("conv1", "Conv");
  add("fc1", "Gemm");
  add("fc3", "Gemm");
  add("loss", "NegativeLogLikelihoodLoss");
  add("loss/gradient", "NegativeLogLikelihoodLoss", std::string(kGradientDomain));
  add("fc3/gradient", "Gemm", std::string(kGradientDomain));
  add("fc1/gradient", "Gemm", std::string(kGradientDomain));
  add("conv1/gradient", "Conv", std::string(kGradientDomain));
  add("fc3.weight/update", "Adam", std::string(kTrainingDomain));
  return graph;
}

std::vector<std::string> specs(const std::vector<Binding>& bindings) {
  const Graph graph = step();
  const auto assignment = assign(graph, bindings, "reference");
  EXPECT_TRUE(assignment) << assignment.error().message;
  std::vector<std::string> result;
  for (std::size_t k = 0; k < graph.nodes.size(); ++k) result.push_back(assignment->spec_of(static_cast<int>(k)));
  return result;
}

TEST(Assignment, BackwardGoesWithForward) {
  EXPECT_EQ(specs({{"Conv", "onednn"}, {"Gemm", "torch"}, {"fc3", "reference"}}),
            (std::vector<std::string>{"onednn", "torch", "reference", "reference", "reference", "reference", "torch",
                                      "onednn", "reference"}));
}

TEST(Assignment, UnlessNamed) {
  EXPECT_EQ(specs({{"Conv", "onednn"}, {"Conv/gradient", "torch"}})[7], "torch");
  EXPECT_EQ(specs({{"Conv", "onednn"}, {"*/gradient", "torch"}})[7], "torch");
  EXPECT_EQ(specs({{"*/gradient", "torch"}})[0], "reference");
}

TEST(Assignment, OptimiserAndLoss) {
  const auto bound = specs({{"Adam", "torch"}, {"NegativeLogLikelihoodLoss", "onednn"}});
  EXPECT_EQ(bound[8], "torch");
  EXPECT_EQ(bound[3], "onednn");
  EXPECT_EQ(bound[4], "onednn");
}

TEST(Assignment, IdOutranksOperatorOutranksPattern) {
  for (const auto& order : {std::vector<Binding>{{"fc*", "a"}, {"Gemm", "b"}, {"fc3", "c"}},
                            std::vector<Binding>{{"fc3", "c"}, {"Gemm", "b"}, {"fc*", "a"}}}) {
    const auto bound = specs(order);
    EXPECT_EQ(bound[1], "b");
    EXPECT_EQ(bound[2], "c");
  }
  EXPECT_EQ(specs({{"fc?", "a"}, {"fc[13]", "b"}})[1], "b");  // the last of equals
}

TEST(Assignment, WhatNamesNothingIsRefused) {
  const auto assignment = assign(step(), {{"Convv", "torch"}}, "reference");
  ASSERT_FALSE(assignment);
  EXPECT_THAT(assignment.error().message, HasSubstr("Convv=torch: the training step has no node"));
}

TEST(Assignment, OfTheModelAlone) {
  const Graph whole = step();
  const auto assignment = assign(whole, {{"fc3", "torch"}}, "reference");
  Graph model;
  model.nodes = {whole.nodes[2], whole.nodes[0]};
  EXPECT_EQ(assign_like(model, whole, *assignment).labels, (std::vector<int>{1, 0}));
}

}  // namespace
}  // namespace opdiff
