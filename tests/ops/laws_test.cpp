// Laws that every meta-operator obeys, over the whole table: nothing here names an operator.
#include <gtest/gtest.h>

#include <cmath>

#include "judge/attack.h"
#include "judge/judge.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

constexpr int kCases = 44;  // a multiple of the number of distributions

class Laws : public testing::TestWithParam<const MetaOperator*> {
 protected:
  const MetaOperator& op() const { return *GetParam(); }
  std::vector<DType> types() const {
    std::vector<DType> result;
    for (int k = 0; k < kDTypeCount; ++k)
      if (op().types & type_bit(static_cast<DType>(k))) result.push_back(static_cast<DType>(k));
    return result;
  }
};

TEST_P(Laws, SamplesDependOnTheSeedAlone) {
  for (std::uint64_t index = 0; index < kCases; ++index) {
    const Sample a = make_sample(op(), types()[0], 7, index), b = make_sample(op(), types()[0], 7, index);
    ASSERT_EQ(a.inputs.size(), b.inputs.size());
    for (std::size_t k = 0; k < a.inputs.size(); ++k) {
      ASSERT_EQ(a.inputs[k].has_value(), b.inputs[k].has_value());
      if (a.inputs[k]) {
        EXPECT_TRUE(a.inputs[k]->bit_equal(*b.inputs[k]));
      }
    }
  }
}

TEST_P(Laws, ShapeRuleAgreesWithForward) {
  for (const DType dtype : types())
    for (std::uint64_t index = 0; index < kCases; ++index) {
      const Sample sample = make_sample(op(), dtype, 1, index);
      const std::vector<const Tensor*> inputs = sample.pointers();
      const Call call(sample.node, sample.opset, inputs);
      const auto types = infer_call(op(), call);
      ASSERT_TRUE(types.has_value()) << types.error().message << " case " << index << " " << dtype_name(dtype)
                                     << " opset " << sample.opset;
      const std::vector<Tensor> outputs = values(op(), call);
      ASSERT_EQ(outputs.size(), types->size());
      for (std::size_t k = 0; k < outputs.size(); ++k) {
        EXPECT_EQ(outputs[k].dtype(), (*types)[k].dtype);
        EXPECT_EQ(outputs[k].shape(), *(*types)[k].shape);
      }
    }
}

TEST_P(Laws, HonestArithmeticOfEveryOrderPasses) {
  for (const DType dtype : float_types(op())) {
    const HonestAttack attack = attack_from_below(op(), dtype, 1, dtype == DType::f64 ? 22 : kCases);
    EXPECT_EQ(attack.alarms, 0);
    for (const std::string& alarm : attack.first_alarms) ADD_FAILURE() << alarm;
  }
}

TEST_P(Laws, HonestArithmeticOfConventionsPasses) {
  for (const DType dtype : float_types(op()))
    for (std::uint64_t index = 0; index < kCases; ++index) {
      const Sample sample = make_sample(op(), dtype, 1, index);
      const std::vector<const Tensor*> inputs = sample.pointers();
      const Call call(sample.node, sample.opset, inputs);
      for (std::size_t f = 0; f < op().convention_formulas.size(); ++f)
        for (const Profile& profile : {inner_f32(dtype), inner_storage(dtype)}) {
          const std::vector<Tensor> got = work(op(), call, profile, static_cast<int>(op().formulas.size() + f));
          std::vector<const Tensor*> outputs;
          for (std::size_t k = 0; k < sample.node.outputs.size(); ++k)
            outputs.push_back(call.wants(k) ? &got[k] : nullptr);
          for (const Verdict& v : judge_node(sample.node, sample.opset, inputs, outputs))
            EXPECT_LE(v.rung, Rung::convention) << dtype_name(dtype) << " case " << index << ": "
                                                << op().convention_formulas[f] << ", " << profile.name;
        }
    }
}

TEST_P(Laws, PlantedFaultsAreCaught) {
  std::int64_t planted = 0, named = 0;
  for (const DType dtype : float_types(op())) {
    const FaultAttack attack = attack_from_above(op(), dtype, 1, dtype == DType::f64 ? 11 : 22);
    for (const Caught* caught : {&attack.whole, &attack.element, &attack.row, &attack.gross}) {
      planted += caught->planted;
      EXPECT_EQ(caught->caught, caught->planted);
      named += caught->named;
    }
    for (const std::string& missed : attack.first_missed) ADD_FAILURE() << missed;
  }
  if (!float_types(op()).empty()) {
    EXPECT_GT(planted, 0);
  }
  EXPECT_LE(named * 20, planted) << "algorithms by name must not swallow faults";
}

TEST_P(Laws, WrongUseIsRefusedByName) {
  ASSERT_NE(op().refused, nullptr) << "an operator names uses that it refuses";
  for (const Sample& sample : op().refused()) {
    const std::vector<const Tensor*> inputs = sample.pointers();
    const auto types = infer_call(op(), Call(sample.node, sample.opset, inputs));
    ASSERT_FALSE(types.has_value()) << "accepted, although: " << sample.note;
    EXPECT_EQ(types.error().message.find(display_name(op())), 0u) << types.error().message;
    EXPECT_NE(types.error().message.find(sample.note), std::string::npos)
        << types.error().message << " should mention " << sample.note;
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, Laws, testing::ValuesIn(all_operators().begin(), all_operators().end()),
                         [](const auto& info) { return std::string(info.param->name); });
INSTANTIATE_TEST_SUITE_P(Gradients, Laws, testing::ValuesIn(all_gradients().begin(), all_gradients().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace opdiff
