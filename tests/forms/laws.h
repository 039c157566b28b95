// What every form must keep, over generated cases of every region (laws_test.cpp, laws_full_test.cpp).
#pragma once

#include <gtest/gtest.h>

#include "forms/oracle.h"
#include "reference/evaluate.h"

namespace opdiff {

// A case of the region, with gradients or without.
inline Expected<RunnableCase> draw_case(const Form& form, const FormRegion& region, DType dtype, std::uint64_t seed,
                                        bool gradient) {
  Rng rng(seed, form.name);
  OPDIFF_TRY(const Parameters parameters, draw_parameters(form, region, {}, rng));
  OPDIFF_TRY(FormCase drawn, build_case(form, parameters, dtype, seed, gradient));
  drawn.region = region.name;
  return runnable(std::move(drawn), gradient);
}

// What the reference chain makes of one side.
inline TensorMap evaluate_side(const RunnableCase& c, std::size_t side) {
  const auto outputs = evaluate_graph(c.sides[side].graph, inputs_of(c.sides[side].graph, c.inputs));
  EXPECT_TRUE(outputs.has_value()) << c.form->name << ": " << c.sides[side].name << ": " << outputs.error().message;
  return outputs.value_or(TensorMap());
}

inline std::string describe(const RunnableCase& c, std::size_t side) {
  return fmt::format("{} ({}), side '{}', {}, seed {}: {}", c.form->name, c.region, c.sides[side].name,
                     dtype_name(c.dtype), c.seed, to_string(c.parameters));
}

// The sides' values, and gradients of what all sides have, agree as far as rounding goes: between each other in f64,
// and with the oracle's centre in narrower types.
inline void expect_sides_agree(const RunnableCase& c) {
  const auto oracle = make_oracle(c);
  ASSERT_TRUE(oracle.has_value()) << describe(c, 0) << ": " << oracle.error().message;
  const TensorMap first = evaluate_side(c, 0);
  for (std::size_t k = 0; k < c.sides.size(); ++k) {
    if (!c.sides[k].without_gradient.empty()) continue;
    Outcome outcome;
    outcome.outputs = evaluate_side(c, k);
    for (const ValueInfo& output : c.sides[0].graph.outputs)
      if (outcome.outputs.count(output.name)) {
        const Tensor &a = first.at(output.name), &b = outcome.outputs.at(output.name);
        EXPECT_EQ(a.dtype(), b.dtype()) << describe(c, k) << ": " << output.name;
        EXPECT_EQ(a.shape(), b.shape()) << describe(c, k) << ": " << output.name;
      }
    if (c.dtype == DType::f64) {
      const Reading difference = read_difference(outcome.outputs, oracle->floors[k], first, oracle->floors[0]);
      EXPECT_FALSE(difference.wrong) << describe(c, k) << ": " << difference.worst_output << " rms " << difference.rms
                                     << " max " << difference.max;
    } else {
      const Reading reading = read_side(outcome, c.sides[k], oracle->centre, oracle->floors[k]);
      EXPECT_FALSE(reading.wrong) << describe(c, k) << ": " << reading.worst_output << " rms " << reading.rms << " max "
                                  << reading.max;
    }
  }
}

// The same in every region, `cases` seeds each.
inline void expect_law(const Form& form, DType dtype, bool gradient, std::uint64_t cases) {
  if (gradient && !form.no_gradient.empty()) return;
  for (const FormRegion& region : form.regions)
    for (std::uint64_t seed = 0; seed < cases; ++seed) {
      const auto c = draw_case(form, region, dtype, seed, gradient);
      ASSERT_TRUE(c.has_value()) << form.name << ", " << region.name << ", seed " << seed << ": " << c.error().message;
      expect_sides_agree(*c);
    }
}

// A test for each form, named by it.
class EveryForm : public testing::TestWithParam<const Form*> {};
inline std::string test_name(const testing::TestParamInfo<const Form*>& info) {
  std::string name(info.param->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace opdiff
