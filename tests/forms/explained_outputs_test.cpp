// What a single node of a side makes is judged by the ladder, not by the noise floor, which knows no approximations.
#include <gtest/gtest.h>

#include "forms/laws.h"
#include "ops/meta_operator.h"

namespace opdiff {
namespace {

const Form& elu() {
  for (const Form* form : all_forms())
    if (form->name == "elu-by-definition") return *form;
  std::abort();
}

// y as exp(x) - 1 in f32 gives it: an error of half an ulp of 1, whatever the size of x.
Tensor by_subtraction(const RunnableCase& c, const Tensor& right) {
  const Node& node = c.sides[0].graph.nodes[0];
  const double alpha = std::get<float>(node.attributes.at("alpha"));
  const std::vector<double> x = c.inputs.at(node.inputs[0]).to_doubles();
  std::vector<double> y;
  for (const double v : x) {
    const float exponential = std::exp(static_cast<float>(v));
    y.push_back(v < 0 ? static_cast<float>(alpha) * (exponential - 1) : v);
  }
  return Tensor::from_doubles(DType::f32, right.shape(), y);
}

TEST(ExplainedOutputs, OfOneNode) {
  const Form& form = elu();
  std::int64_t wrong = 0;
  for (const FormRegion& region : form.regions)
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const auto c = draw_case(form, region, DType::f32, seed, false);
      ASSERT_TRUE(c.has_value());
      const auto oracle = make_oracle(*c);
      ASSERT_TRUE(oracle.has_value());
      Outcome outcome;
      outcome.outputs = evaluate_side(*c, 0);
      const std::string name = outcome.outputs.begin()->first;
      outcome.outputs[name] = by_subtraction(*c, outcome.outputs[name]);
      wrong += read_side(outcome, c->sides[0], oracle->centre, oracle->floors[0]).wrong;
      const auto explained = explained_outputs(outcome, c->sides[0], *c);
      EXPECT_EQ(explained.count(name), 1u) << describe(*c, 0);
      EXPECT_FALSE(read_side(outcome, c->sides[0], oracle->centre, oracle->floors[0], explained).wrong);

      std::vector<double> spoiled = outcome.outputs[name].to_doubles();
      spoiled[spoiled.size() / 2] += 0.01;
      outcome.outputs[name] = Tensor::from_doubles(DType::f32, outcome.outputs[name].shape(), spoiled);
      EXPECT_TRUE(explained_outputs(outcome, c->sides[0], *c).empty()) << describe(*c, 0);
    }
  EXPECT_GT(wrong, 0);  // by the floor alone
}

TEST(ExplainedOutputs, AnAbsentInputWasMadeByNoNode) {
  const Tensor x = Tensor::from_doubles(DType::f32, {2}, std::vector<double>{-3, 3}),
               most = Tensor::from_doubles(DType::f32, {}, std::vector<double>{1});
  RunnableCase c;
  c.inputs = {{"x", x}, {"most", most}};
  RunnableSide side;
  side.graph.opsets[std::string(kGradientDomain)] = 1;
  for (const auto& [name, tensor] : c.inputs)
    side.graph.inputs.push_back({name, DType::f32, std::vector<Dimension>(tensor.shape().size())});
  side.graph.nodes = {{"product", "Mul", std::string(kGradientDomain), {"x", "x", "x"}, {"", "db"}, {}},
                      {"bound", "Clip", "", {"x", "", "most"}, {"y"}, {}}};
  side.graph.outputs = {{"db"}, {"y"}};
  Outcome outcome;
  outcome.outputs["y"] = Tensor::from_doubles(DType::f32, {2}, std::vector<double>{-3, 1});
  EXPECT_EQ(explained_outputs(outcome, side, c).count("y"), 1u);
}

}  // namespace
}  // namespace opdiff
