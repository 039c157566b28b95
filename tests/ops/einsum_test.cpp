#include <gtest/gtest.h>

#include <algorithm>

#include "one_call.h"
#include "ops/gradient.h"

namespace opdiff::testing_ops {
namespace {

Tensor einsum(const std::string& equation, Inputs inputs) {
  return evaluate("Einsum", std::move(inputs), {{"equation", equation}})[0];
}
std::string refusal_of(const std::string& equation, Inputs inputs) {
  return refusal("Einsum", std::move(inputs), {{"equation", equation}});
}

// The equation by its definition: every letter counts up like a wheel of an odometer. Terms have letters only.
struct Loops {
  std::vector<std::string> terms;
  std::string output;
  std::map<char, std::int64_t> extents;

  std::int64_t place(const std::string& term, const Shape& shape, const std::map<char, std::int64_t>& at) const {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < term.size(); ++d) flat = flat * shape[d] + (shape[d] == 1 ? 0 : at.at(term[d]));
    return flat;
  }
  template <class Visit>
  void each(const Visit& visit) const {
    std::map<char, std::int64_t> at;
    for (const auto& [letter, extent] : extents) {
      if (extent == 0) return;
      at[letter] = 0;
    }
    for (bool more = true; more;) {
      visit(at);
      more = false;
      for (auto& [letter, index] : at) {
        if (++index < extents.at(letter)) {
          more = true;
          break;
        }
        index = 0;
      }
    }
  }
  Shape shape() const {
    Shape result;
    for (const char c : output) result.push_back(extents.at(c));
    return result;
  }
  std::vector<double> value(const std::vector<Tensor>& operands) const {
    std::vector<double> y(static_cast<std::size_t>(element_count(shape())), 0);
    each([&](const auto& at) {
      double product = 1;
      for (std::size_t k = 0; k < terms.size(); ++k)
        product *= operands[k].at(place(terms[k], operands[k].shape(), at));
      y[static_cast<std::size_t>(place(output, shape(), at))] += product;
    });
    return y;
  }
  std::vector<double> gradient(const std::vector<Tensor>& operands, const Tensor& dy, std::size_t which) const {
    std::vector<double> dx(static_cast<std::size_t>(operands[which].size()), 0);
    each([&](const auto& at) {
      double product = dy.at(place(output, shape(), at));
      for (std::size_t k = 0; k < terms.size(); ++k)
        if (k != which) product *= operands[k].at(place(terms[k], operands[k].shape(), at));
      dx[static_cast<std::size_t>(place(terms[which], operands[which].shape(), at))] += product;
    });
    return dx;
  }
};

TEST(Einsum, ByHand) {
  const Tensor a = tensor({2, 3}, {1, 2, 3, 4, 5, 6}), v = tensor({3}, {1, 0, -1});
  const Tensor b = tensor({3, 2}, {7, 8, 9, 10, 11, 12}), square = tensor({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(einsum("ij,jk->ik", {a, b}).bit_equal(tensor({2, 2}, {58, 64, 139, 154})));
  EXPECT_TRUE(einsum("ij,jk->ki", {a, b}).bit_equal(tensor({2, 2}, {58, 139, 64, 154})));
  EXPECT_TRUE(einsum("ij->ji", {a}).bit_equal(tensor({3, 2}, {1, 4, 2, 5, 3, 6})));
  EXPECT_TRUE(einsum("ij->", {a}).bit_equal(tensor({}, {21})));
  EXPECT_TRUE(einsum("ij->j", {a}).bit_equal(tensor({3}, {5, 7, 9})));
  EXPECT_TRUE(einsum("ii->i", {square}).bit_equal(tensor({2}, {1, 4})));
  EXPECT_TRUE(einsum("ii", {square}).bit_equal(tensor({}, {5})));
  EXPECT_TRUE(einsum("i,j->ij", {tensor({2}, {1, 10}), v}).bit_equal(tensor({2, 3}, {1, 0, -1, 10, 0, -10})));
  EXPECT_TRUE(einsum("i,i->", {v, v}).bit_equal(tensor({}, {2})));
  EXPECT_TRUE(einsum(",i->i", {tensor({}, {3}), v}).bit_equal(tensor({3}, {3, 0, -3})));
  EXPECT_TRUE(einsum("ij,j,i->", {a, v, tensor({2}, {1, 2})}).bit_equal(tensor({}, {-6})));
  // An index of one operand alone, beside others.
  EXPECT_TRUE(einsum("ij,kl->jl", {a, square}).bit_equal(tensor({3, 2}, {20, 30, 28, 42, 36, 54})));
}

TEST(Einsum, ImplicitResultsAreInTheOrderOfTheLettersCodes) {
  const Tensor a = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(einsum("ba", {a}).bit_equal(einsum("ba->ab", {a})));
  EXPECT_TRUE(einsum("aB", {a}).bit_equal(einsum("aB->Ba", {a})));  // capitals first, as in numpy
  EXPECT_TRUE(einsum("Zz", {a}).bit_equal(a));
  EXPECT_TRUE(einsum("z...", {a}).bit_equal(einsum("zx->xz", {a})));  // the ellipsis before all letters
  EXPECT_TRUE(einsum("jk,ij", {tensor({3, 1}, {1, 0, -1}), a}).bit_equal(tensor({2, 1}, {-2, -2})));
}

TEST(Einsum, EllipsisAndSpaces) {
  const Tensor a = tensor({2, 1, 2}, {1, 2, 3, 4}), b = tensor({3, 2}, {1, 0, 0, 1, 1, 1});
  const Tensor expected = tensor({2, 3}, {1, 2, 3, 3, 4, 7});
  EXPECT_TRUE(einsum("...i,...i->...", {a, tensor({1, 3, 2}, {1, 0, 0, 1, 1, 1})}).bit_equal(expected));
  EXPECT_TRUE(einsum(" ... i , j i -> ... j ", {tensor({2, 2}, {1, 2, 3, 4}), b}).bit_equal(expected));
  EXPECT_TRUE(einsum("...ii->...i", {tensor({1, 2, 2}, {1, 2, 3, 4})}).bit_equal(tensor({1, 2}, {1, 4})));
  EXPECT_TRUE(einsum("...->...", {b}).bit_equal(b));
  EXPECT_TRUE(einsum("i...->i...", {tensor({2}, {1, 2})}).bit_equal(tensor({2}, {1, 2})));  // of no axes
  EXPECT_NE(refusal_of("...i,...i->...i", {a, b}), "");
}

TEST(Einsum, AnAxisOfOneElementIsRepeated) {
  const Tensor row = tensor({1, 3}, {1, 2, 3}), b = tensor({2, 3}, {1, 1, 1, 2, 2, 2});
  EXPECT_TRUE(einsum("ij,ij->ij", {row, b}).bit_equal(tensor({2, 3}, {1, 2, 3, 2, 4, 6})));
  EXPECT_TRUE(einsum("ij,ij->j", {row, b}).bit_equal(tensor({3}, {3, 6, 9})));
  EXPECT_TRUE(
      einsum("ij,jk->ik", {tensor({2, 1}, {1, 2}), tensor({3, 1}, {1, 2, 3})}).bit_equal(tensor({2, 1}, {6, 12})));
  EXPECT_NE(refusal_of("ij,ij->ij", {tensor({2, 2}, {1, 2, 3, 4}), b}), "");
}

TEST(Einsum, NothingToAdd) {
  EXPECT_TRUE(einsum("ij,jk->ik", {tensor({2, 0}, {}), tensor({0, 1}, {})}).bit_equal(tensor({2, 1}, {0, 0})));
  EXPECT_EQ(einsum("ij,jk->ik", {tensor({0, 2}, {}), tensor({2, 1}, {1, 2})}).shape(), (Shape{0, 1}));
  EXPECT_TRUE(einsum("i->", {tensor({0}, {})}).bit_equal(tensor({}, {0})));
  EXPECT_EQ(einsum("i,i->i", {tensor({0}, {}), tensor({1}, {1})}).shape(), (Shape{0}));
}

TEST(Einsum, IntegersWrapAround) {
  EXPECT_EQ(einsum("i,i->", {tensor({2}, {16, 1}, DType::u8), tensor({2}, {16, 3}, DType::u8)}).int_at(0), 3);
  const std::int64_t big = std::int64_t{1} << 62;
  EXPECT_EQ(einsum("i,i->", {integers({big, 1}), integers({4, 5})}).int_at(0), 5);
  EXPECT_EQ(einsum("i->", {integers({big, big})}).int_at(0), std::numeric_limits<std::int64_t>::min());
}

TEST(Einsum, RandomEquationsAgainstLoops) {
  for (std::uint64_t index = 0; index < 600; ++index) {
    Rng rng(5, "Einsum", index);
    const std::string letters = "aBcd";
    Loops loops;
    for (const char c : letters) loops.extents[c] = rng.integer(1, 4);
    std::vector<Tensor> operands;
    Inputs inputs;
    const DType dtype = rng.pick(std::vector<DType>{DType::f32, DType::f64, DType::f32, DType::i32});
    std::map<char, int> count;
    std::string equation;
    for (std::int64_t k = rng.integer(1, 4); k > 0; --k) {
      std::string term;
      for (std::int64_t n = rng.integer(0, 3); n > 0; --n) term += rng.pick(letters);
      Shape shape;
      const char repeated = rng.chance(0.3) ? rng.pick(letters) : ' ';
      for (const char c : term) {
        shape.push_back(c == repeated ? 1 : loops.extents[c]);
        ++count[c];
      }
      operands.push_back(whole_numbers(rng, shape, -3, 3, dtype));
      inputs.emplace_back(operands.back());
      equation += (loops.terms.empty() ? "" : ",") + term;
      loops.terms.push_back(term);
    }
    // An index that every operand repeats runs over one element.
    std::map<char, std::int64_t> longest;
    for (std::size_t k = 0; k < operands.size(); ++k)
      for (std::size_t d = 0; d < loops.terms[k].size(); ++d)
        longest[loops.terms[k][d]] = std::max(longest[loops.terms[k][d]], operands[k].shape()[d]);
    loops.extents = longest;
    if (rng.chance(0.3)) {
      for (const auto& [c, n] : count)
        if (n == 1) loops.output += c;
    } else {
      for (const auto& [c, n] : count)
        if (rng.chance(0.5))
          loops.output.insert(static_cast<std::size_t>(rng.integer(0, std::ssize(loops.output))), 1, c);
      equation += "->" + loops.output;
    }
    const OneCall one("Einsum", inputs, {{"equation", equation}}, 17, 1);
    const std::string where = "case " + std::to_string(index) + " '" + equation + "'";
    const Tensor y = einsum(equation, inputs);
    EXPECT_EQ(y.shape(), loops.shape()) << where;
    EXPECT_EQ(y.to_doubles(), loops.value(operands)) << where;
    if (y.size() == 0 || dtype == DType::i32) continue;

    // Whole numbers: every order is exact, and every formula says so.
    const std::int64_t element = rng.integer(0, y.size() - 1);
    for (std::size_t f = 0; f < one.op().formulas.size(); ++f) {
      const EnclosedTensor e = enclose(one.op(), one.call(), inner_f32(dtype), static_cast<int>(f))[0];
      EXPECT_EQ(e.centre, y.to_doubles()) << where << " " << one.op().formulas[f];
      for (const double r : e.radius) EXPECT_EQ(r, 0) << where << " " << one.op().formulas[f];
    }
    const Reduction r = one.op().reduction(one.call(), 0, element);
    ASSERT_EQ(std::ssize(r.a), element_count(r.extents)) << where;
    double total = 0;
    for (std::size_t i = 0; i < r.a.size(); ++i) total += r.a[i] * (r.b.empty() ? 1 : r.b[i]);
    EXPECT_EQ(total, y.at(element)) << where;

    // The gradients, and their terms.
    Node node = one.node;
    node.domain = std::string(kGradientDomain);
    node.inputs.push_back("dy");
    node.outputs.clear();
    for (std::size_t k = 0; k < operands.size(); ++k) node.outputs.push_back("dx" + std::to_string(k));
    const Tensor dy = whole_numbers(rng, y.shape(), -3, 3, dtype);
    std::vector<const Tensor*> pointers = one.pointers;
    pointers.push_back(&dy);
    const Call call(node, 17, pointers);
    const MetaOperator& gradient = *one.op().gradient;
    ASSERT_TRUE(infer_call(gradient, call)) << where;
    const std::vector<Tensor> dx = values(gradient, call);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      const std::string which = where + " operand " + std::to_string(k);
      EXPECT_EQ(dx[k].to_doubles(), loops.gradient(operands, dy, k)) << which;
      const std::int64_t at = rng.integer(0, dx[k].size() - 1);
      const Reduction terms = gradient.reduction(call, static_cast<int>(k), at);
      double sum = 0;
      for (std::size_t i = 0; i < terms.a.size(); ++i) sum += terms.a[i] * (terms.b.empty() ? 1 : terms.b[i]);
      EXPECT_EQ(sum, dx[k].at(at)) << which;
    }
  }
}

TEST(Einsum, FormulasAgree) {
  for (std::uint64_t index = 0; index < 100; ++index) {
    Rng rng(6, "Einsum", index);
    const auto normal = [&](const Shape& shape) {
      std::vector<double> x(static_cast<std::size_t>(element_count(shape)));
      for (double& v : x) v = rng.normal();
      return tensor(shape, x, index % 2 ? DType::f32 : DType::bf16);
    };
    expect_formulas_agree("Einsum", {normal({3, 4}), normal({4, 5}), normal({5, 6})},
                          {{"equation", std::string("ij,jk,kl->il")}});
    expect_formulas_agree("Einsum", {normal({3, 4}), normal({4, 5})}, {{"equation", std::string("ij,jk->k")}});
    expect_formulas_agree("Einsum", {normal({6}), normal({6}), normal({6}), normal({6})},
                          {{"equation", std::string("i,i,i,i->")}});
  }
}

// bf16 intermediates of equal numbers are rounded alike: the deviation counts with them as one.
TEST(Einsum, EqualIntermediatesErrAlike) {
  constexpr std::int64_t kTerms = 64;
  const Tensor a = tensor({3, kTerms}, std::vector<double>(3 * kTerms, 1.0078125), DType::bf16);
  const Tensor b = tensor({kTerms}, std::vector<double>(kTerms, 1), DType::bf16);
  const OneCall one("Einsum", {a, b}, {{"equation", std::string("ij,j->")}}, 17, 1);
  const EnclosedTensor e = enclose(one.op(), one.call(), inner_storage(DType::bf16), 0)[0];
  // 3.0234375 lies halfway between two numbers of bf16: off by 2^-7 in each of 64 terms.
  EXPECT_GT(e.radius[0], 64 * 0x1p-7);
  EXPECT_GT(e.deviation[0], 64 * 0x1p-8 * 3.0234375 / std::sqrt(3.0) * 0.99);
}

TEST(Einsum, LargeIntermediateResultsAreAvoided) {
  // From the left: 10^12 products of i, j, k, l.
  const Tensor a = Tensor::zeros(DType::f32, {1000, 1000});
  const OneCall one("Einsum", {a, a, a}, {{"equation", std::string("ij,kl,jk->i")}}, 17, 1);
  for (int f = 1; f < 5; ++f)
    EXPECT_EQ(enclose(one.op(), one.call(), inner_f32(DType::f32), f)[0].centre.size(), 1000u);
}

}  // namespace
}  // namespace opdiff::testing_ops
