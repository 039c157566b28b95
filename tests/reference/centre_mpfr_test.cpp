// Centres against MPFR: rho bounds |c - R| for whole formulas in double (f32 and narrower under test) and binary128
// (f64).
#include <gtest/gtest.h>

#include "base/rng.h"
#include "mp.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

using mp::Number;
using Numbers = std::vector<Number>;

Tensor draw(DType dtype, Shape shape, std::uint64_t seed, double scale, double mean = 0) {
  Rng rng(seed, "centre");
  std::vector<double> v(static_cast<std::size_t>(element_count(shape)));
  for (double& x : v) x = mean + scale * rng.normal();
  return Tensor::from_doubles(dtype, std::move(shape), v);
}

// `exact` gives R from the inputs as stored; every formula and profile is looked at. Returns how near rho comes, at
// most.
double check(const std::string& op, const std::vector<Tensor>& inputs, std::map<std::string, Attribute> attributes,
             const std::function<Numbers(const std::vector<Numbers>&)>& exact) {
  Node node{"n", op, "", {}, {"y"}, std::move(attributes)};
  std::vector<const Tensor*> pointers;
  std::vector<Numbers> x;
  for (const Tensor& t : inputs) {
    node.inputs.push_back("x" + std::to_string(x.size()));
    pointers.push_back(&t);
    Numbers v;
    for (const double d : t.to_doubles()) v.push_back(Number(d));
    x.push_back(v);
  }
  const Numbers right = exact(x);
  const MetaOperator& meta = *find_operator("", op);
  const DType dtype = inputs[0].dtype();
  double nearest = 0;
  for (int formula = 0; formula < static_cast<int>(meta.formulas.size()); ++formula)
    for (const Profile& profile : {inner_f32(dtype), inner_storage(dtype)}) {
      const EnclosedTensor e = enclose(meta, Call(node, 17, pointers), profile, formula)[0];
      for (std::size_t i = 0; i < right.size(); ++i) {
        Number c(e.centre[i]);
        if (!e.low.empty()) c += Number(e.low[i]);
        const Number off = abs(c - right[i]);
        // low is a double: what is left of a binary128 below it is 2^-106 of the centre.
        const Number allowed = Number(e.rho[i]) + (e.low.empty() ? Number(0) : abs(c) * Number(0x1p-105));
        EXPECT_LE(off, allowed) << op << " formula " << formula << " " << profile.name << " " << dtype_name(dtype)
                                << " element " << i << " centre " << e.centre[i] << " R " << right[i].str(25);
        EXPECT_LE(e.rho[i], e.deviation[i] / 8 + 1e-300)
            << op << " formula " << formula << " " << profile.name << " element " << i << ": evaluate wider";
        EXPECT_LE(e.rho[i], e.radius[i] / 8 + 1e-300) << op;
        if (e.rho[i] > 0) nearest = std::max(nearest, static_cast<double>(off / Number(e.rho[i])));
        if (testing::Test::HasFailure()) return nearest;
      }
    }
  return nearest;
}

class Centre : public testing::TestWithParam<DType> {};

TEST_P(Centre, OfElementwiseFunctions) {
  for (const double scale : {1e-6, 0.3, 3.0, 20.0}) {
    const std::vector<Tensor> x{draw(GetParam(), {200}, 1, scale)};
    const auto each = [&](const std::string& op, const std::function<Number(const Number&)>& f) {
      check(op, x, {}, [&](const auto& in) {
        Numbers y;
        for (const Number& v : in[0]) y.push_back(f(v));
        return y;
      });
    };
    each("Sigmoid", [](const Number& v) { return Number(1 / (1 + exp(Number(-v)))); });
    each("Tanh", [](const Number& v) { return Number(tanh(v)); });
    each("Elu", [](const Number& v) { return v < 0 ? mp::expm1(v) : v; });
  }
}

TEST_P(Centre, OfSoftmaxes) {
  for (const double scale : {0.1, 3.0, 30.0}) {
    const std::vector<Tensor> x{draw(GetParam(), {4, 60}, 2, scale, 5)};
    const auto row = [](const std::vector<Numbers>& in, bool logarithm) {
      Numbers y;
      for (std::size_t r = 0; r < 4; ++r) {
        Number total = 0, largest = in[0][r * 60];
        for (std::size_t k = 0; k < 60; ++k) largest = std::max(largest, in[0][r * 60 + k]);
        for (std::size_t k = 0; k < 60; ++k) total += exp(Number(in[0][r * 60 + k] - largest));
        for (std::size_t k = 0; k < 60; ++k) {
          const Number off = in[0][r * 60 + k] - largest;
          y.push_back(logarithm ? Number(off - log(total)) : Number(exp(off) / total));
        }
      }
      return y;
    };
    check("Softmax", x, {}, [&](const auto& in) { return row(in, false); });
    check("LogSoftmax", x, {}, [&](const auto& in) { return row(in, true); });
  }
}

TEST_P(Centre, OfBatchNormalizationNextToTheMean) {
  for (const double mean : {0.0, 100.0, 1000.0}) {
    const DType t = GetParam();
    const std::vector<Tensor> x{draw(t, {2, 3, 20}, 3, 1, mean), draw(t, {3}, 4, 1), draw(t, {3}, 5, 1),
                                draw(t, {3}, 6, 0.1, mean), draw(t, {3}, 7, 0.1, 2)};
    check("BatchNormalization", x, {}, [&](const auto& in) {
      Numbers y;
      const Number epsilon(static_cast<double>(1e-5f));
      for (std::size_t i = 0; i < 120; ++i) {
        const std::size_t c = i / 20 % 3;
        y.push_back(Number((in[0][i] - in[3][c]) / sqrt(Number(in[4][c] + epsilon)) * in[1][c] + in[2][c]));
      }
      return y;
    });
  }
}

TEST_P(Centre, OfProductsAndMeans) {
  for (const std::int64_t k : {1, 30, 400}) {
    const std::vector<Tensor> x{draw(GetParam(), {3, k}, 8, 1), draw(GetParam(), {k, 4}, 9, 1, 0.2)};
    check("MatMul", x, {}, [&](const auto& in) {
      Numbers y(12);
      for (std::size_t i = 0; i < 12; ++i)
        for (std::size_t l = 0; l < static_cast<std::size_t>(k); ++l)
          y[i] += in[0][i / 4 * static_cast<std::size_t>(k) + l] * in[1][l * 4 + i % 4];
      return y;
    });
    check("ReduceMean", {draw(GetParam(), {2, k}, 10, 1)},
          {{"axes", std::vector<std::int64_t>{1}}, {"keepdims", std::int64_t{0}}}, [&](const auto& in) {
            Numbers y(2);
            for (std::size_t i = 0; i < in[0].size(); ++i) y[i / static_cast<std::size_t>(k)] += in[0][i];
            for (Number& v : y) v /= static_cast<double>(k);
            return y;
          });
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Centre, testing::Values(DType::f32, DType::f64, DType::f16, DType::bf16));

}  // namespace
}  // namespace opdiff
