// Laws of all forms: their sides agree in exact arithmetic, a fault in one side is found, conditions refuse.
#include "laws.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "forms/batch.h"
#include "forms/folding.h"

namespace opdiff {
namespace {

// Floating tensors of one side alone can be changed: its copy of an input or an initialiser.
struct Fault {
  std::string what;
  TensorMap outputs;
};

std::vector<std::string> floating_sources(const RunnableCase& c, std::size_t side) {
  std::vector<std::string> names;
  for (const ValueInfo& input : c.sides[side].graph.inputs)
    if (is_float(input.dtype)) names.push_back(input.name);
  for (const auto& [name, tensor] : c.sides[side].graph.initialisers)
    if (is_float(tensor.dtype())) names.push_back(name);
  return names;
}

// The coarsest unit roundoff among the side's outputs.
double unit_roundoff(const RunnableCase& c, std::size_t side) {
  double u = 0;
  for (const ValueInfo& output : c.sides[side].graph.outputs) u = std::max(u, format_of(output.dtype).unit_roundoff());
  return u;
}

// One element of one tensor off by a thousandth, or by what shows in outputs of a narrower type.
Fault plant_in_element(const RunnableCase& c, std::size_t side, Rng& rng) {
  Graph graph = c.sides[side].graph;
  TensorMap inputs = inputs_of(graph, c.inputs);
  const std::string name = rng.pick(floating_sources(c, side));
  Tensor& tensor = inputs.count(name) ? inputs.at(name) : graph.initialisers.at(name);
  std::vector<double> values = tensor.to_doubles();
  const std::int64_t at = rng.integer(0, tensor.size() - 1);
  double& value = values[static_cast<std::size_t>(at)];
  value += std::max(1e-3 * (value == 0 ? 1 : std::fabs(value)),
                    32 * unit_roundoff(c, side) * std::max(1.0, std::fabs(value)));
  tensor = Tensor::from_doubles(tensor.dtype(), tensor.shape(), values);
  const auto outputs = evaluate_graph(graph, inputs);
  return {fmt::format("element {} of '{}'", at, name), outputs.value_or(TensorMap())};
}

// One node computes something else. Empty: this side has none whose neighbour fits.
std::optional<Fault> plant_in_node(const RunnableCase& c, std::size_t side, Rng& rng) {
  static const std::map<std::string, std::string> neighbours = {
      {"Add", "Sub"},       {"Sub", "Add"},       {"Mul", "Div"},
      {"Max", "Min"},       {"Min", "Max"},       {"ReduceMax", "ReduceMean"},
      {"Exp", "Tanh"},      {"Relu", "Identity"}, {"Softmax", "LogSoftmax"},
      {"Sqrt", "Identity"}, {"Log", "Identity"}};
  Graph graph = c.sides[side].graph;
  std::vector<Node*> changeable;
  for (Node& node : graph.nodes)
    if (neighbours.count(node.op)) changeable.push_back(&node);
  if (changeable.empty()) return std::nullopt;
  Node& node = *rng.pick(changeable);
  const std::string before = node.op;
  node.op = neighbours.at(node.op);
  const auto outputs = evaluate_graph(graph, inputs_of(graph, c.inputs));
  return Fault{fmt::format("{} of '{}' as {}", before, node.id, node.op), outputs.value_or(TensorMap())};
}

bool same_outputs(const TensorMap& a, const TensorMap& b) {
  return a.size() == b.size() && std::all_of(a.begin(), a.end(), [&](const auto& entry) {
           const auto found = b.find(entry.first);
           return found != b.end() && found->second.shape() == entry.second.shape();
         });
}

TEST_P(EveryForm, SidesAgreeInExactArithmetic) { expect_law(*GetParam(), DType::f64, false, 4); }
TEST_P(EveryForm, GradientsAgreeInExactArithmetic) { expect_law(*GetParam(), DType::f64, true, 2); }
TEST_P(EveryForm, HonestRoundingIsNoAlarm) { expect_law(*GetParam(), DType::f32, false, 4); }

TEST_P(EveryForm, AFaultInOneSideIsFound) {
  const Form& form = *GetParam();
  for (const FormRegion& region : form.regions) {
    int planted = 0;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const auto c = draw_case(form, region, DType::f64, seed, false);
      ASSERT_TRUE(c.has_value()) << form.name << ": " << c.error().message;
      const auto oracle = make_oracle(*c);
      ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
      const TensorMap first = evaluate_side(*c, 0);
      for (std::size_t k = 0; k < c->sides.size(); ++k) {
        Rng rng(seed, "fault", k);
        const TensorMap healthy = evaluate_side(*c, k);
        std::vector<Fault> faults{plant_in_element(*c, k, rng)};
        if (auto fault = plant_in_node(*c, k, rng)) faults.push_back(std::move(*fault));
        for (const Fault& fault : faults) {
          // What nobody reads, or what cancels (Softmax does not see a shift).
          const Reading effect = read_difference(fault.outputs, oracle->floors[k], healthy, oracle->floors[k]);
          if (same_outputs(fault.outputs, healthy) && effect.max < 12) continue;
          ++planted;
          const Reading reading = read_difference(fault.outputs, oracle->floors[k], first, oracle->floors[0]);
          EXPECT_TRUE(reading.wrong) << describe(*c, k) << ": " << fault.what << ": max " << reading.max;
        }
      }
    }
    EXPECT_GT(planted, 0) << form.name << ", " << region.name;
  }
}

// Parameters that meet the conditions before this one, and not this one.
std::optional<Parameters> breaking(const Form& form, std::size_t condition, Rng& rng) {
  for (int attempt = 0; attempt < 100000; ++attempt) {
    Parameters parameters;
    for (const ParameterSpec& p : form.parameters)
      parameters[std::string(p.name)] =
          rng.chance(0.02) ? 3000
                           : rng.integer(std::min<std::int64_t>(p.low, 1), std::max<std::int64_t>(p.high, 6) + 4);
    bool others = true;
    for (std::size_t k = 0; k < condition && others; ++k) others = form.conditions[k].holds(parameters);
    if (others && !form.conditions[condition].holds(parameters)) return parameters;
  }
  return std::nullopt;
}

TEST_P(EveryForm, ABrokenConditionIsNamed) {
  const Form& form = *GetParam();
  for (std::size_t k = 0; k < form.conditions.size(); ++k) {
    Rng rng(k, form.name);
    const auto parameters = breaking(form, k, rng);
    ASSERT_TRUE(parameters.has_value()) << form.name << ": nothing breaks: " << form.conditions[k].text;
    const auto refused = build_case(form, *parameters, DType::f32, 0, false);
    ASSERT_FALSE(refused.has_value()) << form.name << ": " << to_string(*parameters);
    const std::string expected = fmt::format("{} needs {}; given", form.name, form.conditions[k].text);
    EXPECT_EQ(refused.error().message.find(expected), 0u) << refused.error().message;
  }
}

TEST_P(EveryForm, ParametersAndRegionsAreInOrder) {
  const Form& form = *GetParam();
  EXPECT_FALSE(form.title.empty() || form.mathematics.empty());
  EXPECT_GE(form.regions.size(), 2u);
  std::set<std::string_view> names;
  for (const ParameterSpec& p : form.parameters) {
    EXPECT_TRUE(names.insert(p.name).second) << p.name;
    EXPECT_LE(p.low, p.high) << p.name;
    EXPECT_FALSE(p.documentation.empty()) << p.name;
  }
  std::set<std::string_view> regions;
  for (const FormRegion& region : form.regions) {
    EXPECT_TRUE(regions.insert(region.name).second) << region.name;
    for (const auto& [name, value] : region.fixed) EXPECT_TRUE(names.count(name)) << region.name << ": " << name;
  }
  const auto timed = check_parameters(form, timed_parameters(form, {}));
  EXPECT_TRUE(timed.has_value()) << timed.error().message;
  Parameters unknown = timed_parameters(form, {});
  unknown["frobnication"] = 1;
  EXPECT_FALSE(check_parameters(form, unknown).has_value());
}

// Every dtype that the operators have builds.
TEST_P(EveryForm, IsBuiltInEveryType) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const bool gradient : {false, true}) {
      if (gradient && !GetParam()->no_gradient.empty()) continue;
      const auto c = draw_case(*GetParam(), GetParam()->regions[0], dtype, 1, gradient);
      EXPECT_TRUE(c.has_value()) << dtype_name(dtype) << ": " << c.error().message;
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, EveryForm, testing::ValuesIn(all_forms().begin(), all_forms().end()), test_name);

TEST(Forms, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (const Form* form : all_forms()) {
    EXPECT_TRUE(names.insert(form->name).second) << form->name;
    EXPECT_EQ(find_form(form->name), form);
  }
  EXPECT_EQ(find_form("frobnication"), nullptr);
}

// The well-known mistake: the batch normalised by the running statistics while training.
void build_with_running_statistics(FormBuilder& form) {
  const Images images(form);
  const std::string x = form.input("x", images.shape());
  const Normalisation norm(form, images.c);

  SideBuilder node = form.side("BatchNormalization with training_mode");
  node.output(node.nodes("BatchNormalization", {x, "scale", "bias", "mean", "variance"}, 3,
                         {{"epsilon", Normalisation::kEpsilon}, {"training_mode", std::int64_t{1}}})[0]);
  SideBuilder wrong = form.side("formula with running statistics");
  wrong.output(norm.formula(wrong, x));
}

TEST(Forms, RunningStatisticsInTrainingAreWrong) {
  static const Form form = {.name = "bn-training-by-running-statistics",
                            .parameters = image_parameters(),
                            .conditions = {{"two elements of each channel at least",
                                            [](const Parameters& p) { return p.at("n") * p.at("h") * p.at("w") > 1; }}},
                            .regions = image_regions(),
                            .build = &build_with_running_statistics};
  for (const bool gradient : {false, true})
    for (const FormRegion& region : form.regions)
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        const auto c = draw_case(form, region, DType::f64, seed, gradient);
        ASSERT_TRUE(c.has_value()) << c.error().message;
        const auto oracle = make_oracle(*c);
        ASSERT_TRUE(oracle.has_value()) << oracle.error().message;
        const Reading reading =
            read_difference(evaluate_side(*c, 1), oracle->floors[1], evaluate_side(*c, 0), oracle->floors[0]);
        EXPECT_TRUE(reading.wrong) << describe(*c, 1);
        EXPECT_GT(reading.max, 1000) << describe(*c, 1);
      }
}

}  // namespace
}  // namespace opdiff
