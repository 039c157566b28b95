// Each rung of the ladder is reached by an honest emulation of it and by nothing less.
#include <gtest/gtest.h>

#include "judge/emulate.h"
#include "ops/winograd.h"

namespace opdiff {
namespace {

Case gemm(DType dtype = DType::f32, std::int64_t m = 16, std::int64_t k = 128, std::int64_t n = 16,
          std::uint64_t seed = 1) {
  return make_case("Gemm", {random_tensor(dtype, {m, k}, seed), random_tensor(dtype, {k, n}, seed + 1)});
}
Case conv(DType dtype = DType::f32, std::int64_t channels = 16, std::int64_t rows = 8, std::int64_t side = 16,
          std::uint64_t seed = 1) {
  return make_case(
      "Conv",
      {random_tensor(dtype, {1, channels, side, side}, seed),
       random_tensor(dtype, {rows, channels, 3, 3}, seed + 1, 1 / std::sqrt(9.0 * static_cast<double>(channels))),
       random_tensor(dtype, {rows}, seed + 2)},
      {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}});
}
Case batch_norm(DType dtype = DType::f32, double mean = 0) {
  return make_case("BatchNormalization",
                   {random_tensor(dtype, {2, 4, 8, 8}, 1, 1, mean), random_tensor(dtype, {4}, 2),
                    random_tensor(dtype, {4}, 3), constant_tensor(dtype, {4}, mean), constant_tensor(dtype, {4}, 1.3)});
}
std::vector<Case> six(DType dtype) {
  return {conv(dtype),
          gemm(dtype),
          batch_norm(dtype),
          make_case("Softmax", {random_tensor(dtype, {8, 40}, 5, 3)}),
          make_case("Sigmoid", {random_tensor(dtype, {100}, 6, 4)}),
          make_case("Relu", {random_tensor(dtype, {100}, 7)})};
}

TEST(Exact, IsTheCorrectlyRoundedResult) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const Case& c : six(dtype)) {
      const Verdict v = c.judge(c.right());
      EXPECT_TRUE(on(v, Rung::exact)) << c.node.op << " " << dtype_name(dtype);
      EXPECT_EQ(v.counts[0], v.elements);
      EXPECT_FALSE(v.unproven);
    }
}

TEST(RoundingRung, TakesEveryFormulaProfileAndOrder) {
  using Kind = SumOrder::Kind;
  int above_exact = 0;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const Case& c : six(dtype))
      for (int formula = 0; formula < static_cast<int>(c.op().formulas.size()); ++formula)
        for (const Profile& profile : {inner_f32(dtype), inner_storage(dtype)})
          for (const SumOrder& order : {SumOrder{Kind::sequential, 1, false, 0}, SumOrder{Kind::sequential, 1, true, 0},
                                        SumOrder{Kind::pairwise, 1, false, 0}, SumOrder{Kind::lanes, 8, true, 0},
                                        SumOrder{Kind::shuffled, 1, false, 3}}) {
            const Verdict v = c.judge(c.worked(order, profile, formula));
            EXPECT_LE(v.rung, Rung::rounding) << on(v, Rung::rounding).message() << " " << c.node.op << " "
                                              << dtype_name(dtype) << " formula " << formula << " " << profile.name;
            above_exact += v.rung == Rung::rounding;
          }
  EXPECT_GT(above_exact, 50);
}

TEST(RoundingRung, NamesTheFormula) {
  // x is next to the mean: the folded scale and shift cancels, far beyond what normalising first may err.
  const Case c = batch_norm(DType::f32, 1000);
  const Verdict v = c.judge(c.worked(SumOrder(), inner_f32(DType::f32), 1));
  EXPECT_TRUE(on(v, Rung::rounding, "folded"));
  EXPECT_LE(v.excess, 1);
  const EnclosedTensor first = c.enclosed(inner_f32(DType::f32), 0);
  const Tensor y = c.worked(SumOrder(), inner_f32(DType::f32), 1);
  int outside = 0;
  for (std::int64_t i = 0; i < y.size(); ++i)
    outside +=
        std::fabs(y.at(i) - first.centre[static_cast<std::size_t>(i)]) > first.radius[static_cast<std::size_t>(i)];
  EXPECT_GT(outside, 0);
  EXPECT_TRUE(on(c.judge(c.worked(SumOrder(), inner_f32(DType::f32), 0)), Rung::rounding, "normalise"));
  // Twice as far off as the folded formula may be is no rounding.
  const EnclosedTensor both = c.enclosed(inner_f32(DType::f32), 1);
  EXPECT_EQ(c.judge(changed(y, [&](std::int64_t i, double x) { return i == 5 ? x + 3 * both.radius[5] : x; })).rung,
            Rung::defect);
}

TEST(RoundingRung, NamesInnerStorage) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Case c = batch_norm(dtype, 3);
    const Verdict v = c.judge(c.worked(SumOrder(), inner_storage(dtype), 1));
    EXPECT_TRUE(on(v, Rung::rounding));
    EXPECT_EQ(v.profile, "inner-storage");
    EXPECT_EQ(c.judge(c.worked(SumOrder(), inner_f32(dtype), 0)).profile == "inner-storage", false);
  }
}

TEST(RoundingRung, TakesAProductStoredBeforeItsBias) {
  // A 16-bit product is stored, then a bias that nearly cancels it is added: two kernels, each honest.
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Format& format = format_of(dtype);
    Case c = make_case("Gemm", {random_tensor(dtype, {8, 64}, 1), random_tensor(dtype, {64, 8}, 2),
                                constant_tensor(dtype, {8, 8}, 0)});
    const EnclosedTensor product = c.enclosed(inner_f32(dtype));
    std::vector<double> minus, y;
    for (const double p : product.centre) minus.push_back(-round_to(p * (1 + 0.03), format));
    c.inputs[2] = from(dtype, {8, 8}, minus);
    for (std::size_t i = 0; i < minus.size(); ++i)
      y.push_back(round_to(round_to(product.centre[i], format) + minus[i], format));
    const Verdict v = c.judge(from(dtype, {8, 8}, y));
    EXPECT_TRUE(on(v, Rung::rounding)) << dtype_name(dtype);
    EXPECT_EQ(v.profile, "inner-storage");
  }
}

// ---- Algorithms ----

// Winograd's algorithm in f32 at every step, for padding 1.
Tensor winograd_conv(const Case& c, int m) {
  const WinogradTransforms w = winograd_transforms(m, 3);
  const auto sandwich = [](const std::vector<double>& t, int rows, int columns, const std::vector<float>& x) {
    std::vector<float> half(static_cast<std::size_t>(rows * columns)), y(static_cast<std::size_t>(rows * rows));
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j)
        for (int k = 0; k < columns; ++k)
          half[static_cast<std::size_t>(i * columns + j)] +=
              static_cast<float>(t[static_cast<std::size_t>(i * columns + k)]) *
              x[static_cast<std::size_t>(k * columns + j)];
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < rows; ++j)
        for (int k = 0; k < columns; ++k)
          y[static_cast<std::size_t>(i * rows + j)] += half[static_cast<std::size_t>(i * columns + k)] *
                                                       static_cast<float>(t[static_cast<std::size_t>(j * columns + k)]);
    return y;
  };
  const Shape& xs = c.inputs[0].shape();
  const std::int64_t channels = xs[1], side = xs[2], rows = c.inputs[1].shape()[0];
  const auto x = c.inputs[0].as<float>(), k = c.inputs[1].as<float>(), bias = c.inputs[2].as<float>();
  Tensor out = Tensor::zeros(DType::f32, {1, rows, side, side});
  const auto y = out.mutable_as<float>();
  const auto nn = static_cast<std::size_t>(w.n * w.n);
  for (std::int64_t ty = 0; ty < side; ty += m)
    for (std::int64_t tx = 0; tx < side; tx += m) {
      std::vector<std::vector<float>> data;
      for (std::int64_t ch = 0; ch < channels; ++ch) {
        std::vector<float> tile(nn);
        for (int i = 0; i < w.n; ++i)
          for (int j = 0; j < w.n; ++j) {
            const std::int64_t r = ty + i - 1, q = tx + j - 1;
            if (r >= 0 && r < side && q >= 0 && q < side)
              tile[static_cast<std::size_t>(i * w.n + j)] = x[static_cast<std::size_t>((ch * side + r) * side + q)];
          }
        data.push_back(sandwich(w.bt, w.n, w.n, tile));
      }
      for (std::int64_t f = 0; f < rows; ++f) {
        std::vector<float> sum(nn);
        for (std::int64_t ch = 0; ch < channels; ++ch) {
          const std::vector<float> g =
              sandwich(w.g, w.n, 3, {k.begin() + (f * channels + ch) * 9, k.begin() + (f * channels + ch + 1) * 9});
          for (std::size_t i = 0; i < nn; ++i) sum[i] += g[i] * data[static_cast<std::size_t>(ch)][i];
        }
        const std::vector<float> tile = sandwich(w.at, m, w.n, sum);
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < m; ++j)
            if (ty + i < side && tx + j < side)
              y[static_cast<std::size_t>((f * side + ty + i) * side + tx + j)] =
                  tile[static_cast<std::size_t>(i * m + j)] + bias[static_cast<std::size_t>(f)];
      }
    }
  return out;
}

TEST(Algorithm, WinogradIsNamed) {
  for (const std::int64_t channels : {4, 32}) {
    const Case c = conv(DType::f32, channels, 8, 24);
    EXPECT_LE(c.judge(winograd_conv(c, 2)).rung, Rung::algorithm)
        << on(c.judge(winograd_conv(c, 2)), Rung::algorithm).message();
    EXPECT_TRUE(on(c.judge(winograd_conv(c, 4)), Rung::algorithm, "winograd")) << channels;
    EXPECT_TRUE(on(c.judge(winograd_conv(c, 6)), Rung::algorithm, "winograd F(6,3)")) << channels;
    const Verdict v = c.judge(winograd_conv(c, 6));
    EXPECT_FALSE(v.unproven);
    EXPECT_FALSE(v.warn);
  }
}

// Where the deviation of the direct sum is far below that of the tile (one or three channels of F(2,3), or a large
// bias), a few elements stand out while most look direct: the emulated algorithm errs in the same ones.
TEST(Algorithm, WinogradOfManyShapesIsNamed) {
  int named = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed)
    for (const std::int64_t channels : {1, 3, 20})
      for (const std::int64_t side : {7, 18})
        for (const int m : {2, 4, 6}) {
          const Case c = conv(DType::f32, channels, 5, side, 10 * seed);
          const Verdict v = c.judge(winograd_conv(c, m));
          EXPECT_LE(v.rung, Rung::algorithm) << on(v, Rung::algorithm).message() << " F(" << m << ",3) channels "
                                             << channels << " side " << side << " seed " << seed;
          named += v.rung == Rung::algorithm;
        }
  EXPECT_GT(named, 40);
}

TEST(Algorithm, WinogradExcusesNoElementWhereItErrsNoMore) {
  // One wrong element of 12 deviations among honest ones, at random places of small convolutions.
  int named = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Case c = conv(DType::f32, seed % 3 == 0 ? 1 : 12, 5, 9, 10 * seed);
    const EnclosedTensor e = c.enclosed(inner_f32(DType::f32)), other = c.enclosed(inner_f32(DType::f32), 1);
    const auto wrong = static_cast<std::int64_t>(Rng(seed, "place").integer(0, 5 * 81 - 1));
    const Verdict v = c.judge(changed(c.worked(SumOrder(), inner_f32(DType::f32)), [&](std::int64_t i, double y) {
      const auto k = static_cast<std::size_t>(i);
      return i == wrong ? e.centre[k] + 12 * std::max(e.deviation[k], other.deviation[k]) : y;
    }));
    EXPECT_GE(v.rung, Rung::algorithm) << seed;
    named += v.rung == Rung::algorithm;
  }
  EXPECT_LE(named, 3);  // one in twenty, as for every planted fault (tests/ops/laws_test.cpp)
}

TEST(Algorithm, WinogradExcusesNoFewElements) {
  // Errors as large as Winograd's in three elements of an honest direct result.
  const Case c = conv();
  const Tensor honest = c.worked(SumOrder(), inner_f32(DType::f32));
  const EnclosedTensor e = c.enclosed(inner_f32(DType::f32));
  const Verdict v = c.judge(changed(honest, [&](std::int64_t i, double y) {
    return i % 700 == 3 ? y + 14 * e.deviation[static_cast<std::size_t>(i)] : y;
  }));
  EXPECT_GE(v.rung, Rung::unlikely) << on(v, Rung::unlikely).message();
}

TEST(Algorithm, IsNotForOtherKernels) {
  // The same error on a 5 x 5 kernel is no Winograd of ours.
  Case c =
      make_case("Conv", {random_tensor(DType::f32, {1, 8, 20, 20}, 1), random_tensor(DType::f32, {4, 8, 5, 5}, 2)});
  const EnclosedTensor e = c.enclosed(inner_f32(DType::f32));
  Rng rng(3);
  const Tensor right = c.right();
  const Verdict v = c.judge(changed(right, [&](std::int64_t i, double y) {
    return y + 4.5 * e.deviation[static_cast<std::size_t>(i)] * rng.normal();
  }));
  EXPECT_GE(v.rung, Rung::unlikely) << on(v, Rung::unlikely).message();
}

TEST(Algorithm, SequentialSumOfConstantsIsAnOrder) {
  const Case c = make_case("ReduceMean", {constant_tensor(DType::f32, {3, 56, 56}, 0.1)},
                           {{"axes", std::vector<std::int64_t>{1, 2}}});
  const Verdict v = c.judge(c.worked(SumOrder(), inner_f32(DType::f32)));
  EXPECT_TRUE(on(v, Rung::algorithm, "order of summation"));
  EXPECT_TRUE(v.warn) << "far above pairwise summation";
  // Half as much again beyond twice the error of every order is none.
  const Tensor right = c.right(), got = c.worked(SumOrder(), inner_f32(DType::f32));
  const Verdict far =
      c.judge(changed(got, [&](std::int64_t i, double y) { return right.at(i) + 4 * (y - right.at(i)); }));
  EXPECT_GE(far.rung, Rung::unlikely) << on(far, Rung::unlikely).message();
}

// A tensor whose exponentials in a row are equal but for one: their rounding errors repeat.
Case softmax_of_ties(const std::string& op) {
  std::vector<double> x;
  for (int row = 0; row < 24; ++row)
    for (int k = 0; k < 700; ++k) x.push_back(k == 0 ? 3.0 + 0.01 * row : 0);
  return make_case(op, {from(DType::f32, {24, 700}, x)});
}

TEST(Algorithm, OrderOfASumInsideTheOperator) {
  for (const char* op : {"Softmax", "LogSoftmax"}) {
    const Case c = softmax_of_ties(op);
    const Tensor right = c.right(), got = c.worked(SumOrder(), inner_f32(DType::f32));
    EXPECT_TRUE(on(c.judge(got), Rung::algorithm, "order of summation"));
    // Beyond twice what any order errs.
    const Verdict far =
        c.judge(changed(got, [&](std::int64_t i, double y) { return right.at(i) + 4 * (y - right.at(i)); }));
    EXPECT_GE(far.rung, Rung::approximation) << on(far, Rung::unlikely).message();
  }
}

TEST(Algorithm, OrderBesideSumsThatOverflow) {
  // The first two terms of row 0 cancel but for their last bit: in index order the partial sums are small, in another
  // one is 1.035. Row 1 overflows in any order, though its mean does not.
  const float last = 0x1.1f6d2cp-5f, most = std::numeric_limits<float>::max();
  const std::vector<double> terms{1 + 0x1p-23, -1, 0x1p-126, 0, last, 0.5, -most, -1, 0, -most};
  const Case c = make_case("ReduceMean", {from(DType::f32, {2, 5}, terms)},
                           {{"axes", std::vector<std::int64_t>{1}}, {"keepdims", std::int64_t{0}}});
  const double honest = (((1 + 0x1p-23f) + last) - 1) / 5;
  const auto judge = [&](double y) { return c.judge(from(DType::f32, {2}, {y, -HUGE_VAL})); };
  EXPECT_TRUE(on(judge(honest), Rung::algorithm, "order of summation"));
  const double right = c.right().at(0);
  EXPECT_TRUE(on(judge(right + 4 * (honest - right)), Rung::unlikely));
}

// oneDNN's convolutions: sixteen channels of every tap are summed in registers, then added to the sum in memory. Each
// channel's taps cancel, so that the partial sums of index order are small and those of this one are not.
TEST(Algorithm, SlicesThatAreSumsOfTheirOwnAreAnOrder) {
  constexpr int kImages = 40, kChannels = 32, kTaps = 9, kBlock = 16;
  const Tensor noise = random_tensor(DType::f32, {kImages, kChannels, 3, 3}, 4);
  const Tensor x = changed(noise, [&](std::int64_t i, double v) {
    const std::int64_t tap = i % kTaps;
    return tap == 8 ? 1e-3 * v : (tap % 2 == 0 ? 1 : -1) * (1.5 + 0.2 * noise.at(i / kTaps * kTaps) + 1e-4 * v);
  });
  const Tensor w = random_tensor(DType::f32, {1, kChannels, 3, 3}, 5, 1e-4, 1);
  const Case c = make_case("Conv", {x, w});
  std::vector<double> y;
  for (int n = 0; n < kImages; ++n) {
    float total = 0;
    for (int first = 0; first < kChannels; first += kBlock) {
      float part = 0;
      for (int tap = 0; tap < kTaps; ++tap)
        for (int channel = first; channel < first + kBlock; ++channel)
          part = std::fma(static_cast<float>(x.at((n * kChannels + channel) * kTaps + tap)),
                          static_cast<float>(w.at(channel * kTaps + tap)), part);
      total = first == 0 ? part : total + part;
    }
    y.push_back(total);
  }
  const Verdict v = c.judge(from(DType::f32, {kImages, 1, 1, 1}, y));
  EXPECT_TRUE(on(v, Rung::algorithm, "order of summation: channel blocks of 16, slice by slice, fused"));
}

TEST(Algorithm, OrderOfSumsThatCancelInIndexOrder) {
  // 1 - 1 + t: nothing but the quotient is rounded in index order; t is lost in any order that adds it to 1 first.
  const Case c = make_case("ReduceMean", {from(DType::f32, {1, 3}, {1, -1, 0x1.5p-26})},
                           {{"axes", std::vector<std::int64_t>{1}}, {"keepdims", std::int64_t{0}}});
  const Verdict v = c.judge(from(DType::f32, {1}, {0}));
  EXPECT_LE(v.rung, Rung::algorithm) << on(v, Rung::algorithm).message();
}

TEST(Algorithm, NoOrderExplainsWhatIsNotSummed) {
  // Three deviations everywhere: an order of summation in Softmax of ordinary data errs by one at most, in
  // BatchNormalization nothing is summed.
  for (const Case& c : {make_case("Softmax", {random_tensor(DType::f32, {32, 40}, 5, 3)}), batch_norm()}) {
    const EnclosedTensor e = c.enclosed(inner_f32(DType::f32));
    const Verdict v = c.judge(changed(c.right(), [&](std::int64_t i, double y) {
      return y + 3.5 * e.deviation[static_cast<std::size_t>(i)] * (i % 3 ? 1 : -1);
    }));
    EXPECT_GE(v.rung, Rung::approximation) << c.node.op << on(v, Rung::unlikely).message();
  }
}

TEST(Algorithm, OrderOfSumsThatOverflowExplainsNothing) {
  // The terms are so large that some orders overflow; honest results err by 1e30 at most.
  std::vector<double> a, b;
  Rng rng(4);
  for (int k = 0; k < 64; ++k) {
    a.push_back((k % 2 ? -1 : 1) * 1e38 * rng.uniform(0.5, 1));
    b.push_back(1);
  }
  const Case c = make_case("Gemm", {from(DType::f32, {1, 64}, a), from(DType::f32, {64, 1}, b)});
  const EnclosedTensor e = c.enclosed(inner_f32(DType::f32));
  const double r = std::min(e.radius[0] * 0.9, 60 * e.deviation[0]);
  const Verdict v = c.judge(from(DType::f32, {1, 1}, {e.centre[0] + r}));
  EXPECT_GE(v.rung, Rung::unlikely) << on(v, Rung::unlikely).message();
}

// ---- Approximation ----

TEST(Approximation, NamesTheUlps) {
  std::vector<double> x;
  for (int k = 0; k < 200; ++k) x.push_back(-6 + 0.06 * k);
  const Case c = make_case("Sigmoid", {from(DType::f32, {200}, x)});
  const Tensor right = c.right();
  const auto off = [&](double ulps) {
    return c.judge(changed(right, [&](std::int64_t, double y) { return y + ulps * ulp(y, kF32); }));
  };
  EXPECT_TRUE(on(off(100), Rung::approximation, "ulp"));
  EXPECT_FALSE(on(off(100), Rung::approximation, "within 4096 ulp"));
  EXPECT_TRUE(on(off(3000), Rung::approximation, "ulp"));
  EXPECT_TRUE(on(off(20000), Rung::defect));
}

TEST(Approximation, NamesTheMeasuredFloor) {
  // onnxruntime's sigmoid: 1.49e-7 for 2.76e-8 at -17.4.
  const Case c = make_case("Sigmoid", {from(DType::f32, {4}, {-17.4, 1, 2, 3})});
  const Tensor right = c.right();
  const auto tail = [&](double value) {
    return c.judge(changed(right, [&](std::int64_t i, double y) { return i == 0 ? value : y; }));
  };
  EXPECT_TRUE(on(tail(1.49e-7), Rung::approximation, "absolute"));
  EXPECT_TRUE(on(tail(4e-7), Rung::defect));
  EXPECT_TRUE(on(tail(-1.6e-7), Rung::defect));
}

TEST(Approximation, IsNotForProducts) {
  const Case c = gemm();
  const Verdict v = c.judge(changed(c.right(), [](std::int64_t, double y) { return y * (1 + 0x1p-13); }));
  EXPECT_GE(v.rung, Rung::unlikely) << on(v, Rung::unlikely).message();
}

// ---- Flush to zero ----

TEST(FlushToZero, IsNamed) {
  const Case c = make_case("Gemm", {from(DType::f32, {2, 1}, {1e-20f, 1}), from(DType::f32, {1, 2}, {3e-20f, 2})});
  const Tensor right = c.right();
  EXPECT_TRUE(
      on(c.judge(changed(right, [](std::int64_t i, double y) { return i == 0 ? 0 : y; })), Rung::flush_to_zero));
  EXPECT_TRUE(on(c.judge(changed(right, [](std::int64_t i, double y) { return i == 3 ? 0 : y; })), Rung::defect));
}

TEST(FlushToZero, IsNamedInAConversion) {
  // The f32 numbers are subnormal; the largest rounds up to bf16's smallest normal number.
  const double tiny = 0x1p-126;
  const Case c = make_case("Cast", {from(DType::f32, {3}, {tiny * (1 - 0x1p-23), -tiny / 3, 1})},
                           {{"to", static_cast<std::int64_t>(16)}});
  EXPECT_TRUE(on(c.judge(from(DType::bf16, {3}, {0, -0.0, 1})), Rung::flush_to_zero));
  EXPECT_TRUE(on(c.judge(from(DType::bf16, {3}, {0, 0, 0})), Rung::defect));
  const Case normal = make_case("Cast", {from(DType::f32, {1}, {tiny})}, {{"to", static_cast<std::int64_t>(16)}});
  EXPECT_TRUE(on(normal.judge(from(DType::bf16, {1}, {0})), Rung::defect));
}

TEST(FlushToZero, ExcusesNoGarbageAfterADivisionByAFlushedNumber) {
  const Case c = make_case("Div", {from(DType::f32, {2}, {1e-10, 3}), from(DType::f32, {2}, {1e-40, 2})});
  const Tensor right = c.right();
  EXPECT_TRUE(on(c.judge(from(DType::f32, {2}, {HUGE_VAL, 1.5})), Rung::flush_to_zero)) << "x / 0";
  EXPECT_TRUE(on(c.judge(from(DType::f32, {2}, {12345, 1.5})), Rung::defect));
  EXPECT_TRUE(on(c.judge(from(DType::f32, {2}, {right.at(0), HUGE_VAL})), Rung::defect));
}

// ---- Precision ----

TEST(Precision, NamesTheFormatOfTheOperands) {
  const Case c = gemm(DType::f32, 24, 200, 24);
  const auto judged = [&](const std::function<double(double)>& operand) {
    return c.judge(emulated_gemm(c.inputs[0], c.inputs[1], operand, rounder(kF32)));
  };
  EXPECT_LE(judged(same).rung, Rung::rounding);
  EXPECT_TRUE(on(judged(rounder(kTF32)), Rung::precision, "tf32 operands"));
  EXPECT_EQ(judged(rounder(kTF32)).explanation, "tf32 operands");
  EXPECT_TRUE(on(judged(rounder(kTF32, Rounding::toward_zero)), Rung::precision, "tf32 operands, truncated"));
  EXPECT_EQ(judged(rounder(kTF32, Rounding::nearest_away)).rung, Rung::precision);
  EXPECT_TRUE(on(judged(rounder(kBF16)), Rung::precision, "bf16 operands"));
  // f16 has tf32's digits: the same numbers while in range, f16's alone where they are subnormal.
  EXPECT_EQ(judged(rounder(kF16)).rung, Rung::precision);
  Case small = c;
  small.inputs[0] = changed(c.inputs[0], [](std::int64_t, double x) { return x * 1e-5; });
  EXPECT_TRUE(on(small.judge(emulated_gemm(small.inputs[0], small.inputs[1], rounder(kF16), rounder(kF32))),
                 Rung::precision, "f16 operands"));
  // bf16 multiplies and a factor of 1.0005: hidden from any bf16 radius.
  const auto scaled = [&](double factor) {
    return c.judge(changed(emulated_gemm(c.inputs[0], c.inputs[1], rounder(kBF16), rounder(kF32)),
                           [&](std::int64_t, double y) { return y * factor; }));
  };
  EXPECT_GE(scaled(1.0005).rung, Rung::unlikely) << on(scaled(1.0005), Rung::defect).message();
  EXPECT_GE(scaled(1.00002).rung, Rung::unlikely) << on(scaled(1.00002), Rung::defect).message();
}

TEST(Precision, NamesTheOperandsOfAConvolution) {
  const Case c = conv();
  Case narrow = c;
  for (const std::size_t k : {0, 1})
    narrow.inputs[k] = changed(c.inputs[k], [](std::int64_t, double x) { return round_to(x, kBF16); });
  EXPECT_TRUE(on(c.judge(narrow.worked({SumOrder::Kind::lanes, 8, true, 0}, inner_f32(DType::f32))), Rung::precision,
                 "bf16 operands"));
}

TEST(Precision, OfAGradientIsThatOfItsCotangentToo) {
  Case c = make_case("MatMul", {random_tensor(DType::f32, {8, 30}, 1), random_tensor(DType::f32, {30, 12}, 2),
                                random_tensor(DType::f32, {8, 12}, 3)});
  c.node.domain = kGradientDomain;
  c.node.outputs = {"da", "db"};
  const auto rounded = [&](std::vector<std::size_t> operands) {
    Case narrow = c;
    for (const std::size_t k : operands)
      narrow.inputs[k] = changed(c.inputs[k], [](std::int64_t, double x) { return round_to(x, kBF16); });
    return c.judge(narrow.worked({SumOrder::Kind::lanes, 8, true, 0}, inner_f32(DType::f32)));
  };
  EXPECT_TRUE(on(rounded({0, 1, 2}), Rung::precision, "bf16 operands"));
  EXPECT_EQ(rounded({1}).rung, Rung::defect);  // no hardware narrows one operand of a product
}

TEST(Precision, NamesTheFormatOfTheAccumulation) {
  for (const std::int64_t k : {20, 100, 300}) {
    const Case c = gemm(DType::f32, 16, k, 16);
    EXPECT_TRUE(on(c.judge(emulated_gemm(c.inputs[0], c.inputs[1], rounder(kF16), rounder(kF16))), Rung::precision,
                   "f16 accumulation"))
        << k;
    const Verdict v = c.judge(emulated_gemm(c.inputs[0], c.inputs[1], rounder(kBF16), rounder(kBF16)));
    EXPECT_TRUE(on(v, Rung::precision, "bf16 accumulation")) << k;
    EXPECT_FALSE(v.unproven) << "n u >= 1: the deviation judges";
  }
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Case c = gemm(dtype, 16, 300, 16);
    EXPECT_TRUE(on(c.judge(emulated_gemm(c.inputs[0], c.inputs[1], same, rounder(format_of(dtype)))), Rung::precision,
                   "accumulation"));
  }
}

TEST(Precision, ExcusesNoGarbageThatANarrowFormatHolds) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t k : {100, 300, 5000}) {
      const Case c = gemm(dtype, 8, k, 8);
      EXPECT_TRUE(on(c.judge(Tensor::zeros(dtype, {8, 8})), Rung::defect)) << dtype_name(dtype) << " " << k;
      EXPECT_TRUE(on(c.judge(constant_tensor(dtype, {8, 8}, 64)), Rung::defect)) << dtype_name(dtype) << " " << k;
    }
}

TEST(Precision, ExcusesNoSingleWrongInteger) {
  Rng rng(5);
  std::vector<double> a(8 * 64), b(64 * 8);
  for (double& v : a) v = static_cast<double>(rng.integer(-4, 4));
  for (double& v : b) v = static_cast<double>(rng.integer(-4, 4));
  const Case c = make_case("Gemm", {from(DType::f32, {8, 64}, a), from(DType::f32, {64, 8}, b)});
  EXPECT_TRUE(
      on(c.judge(changed(c.right(), [](std::int64_t i, double y) { return i == 11 ? y + 1 : y; })), Rung::defect));
}

// ---- Convention, unlikely, defect ----

TEST(ConventionRung, OfNaNInRelu) {
  const Case c = make_case("Relu", {from(DType::f32, {3}, {std::nan(""), -1, 2})});
  EXPECT_TRUE(on(c.judge(from(DType::f32, {3}, {std::nan(""), 0, 2})), Rung::exact));
  EXPECT_TRUE(on(c.judge(from(DType::f32, {3}, {0, 0, 2})), Rung::convention, "NaN becomes 0"));
  EXPECT_TRUE(on(c.judge(from(DType::f32, {3}, {0, 0, 2.0000002})), Rung::defect));
  EXPECT_TRUE(on(c.judge(from(DType::f32, {3}, {7, 0, 2})), Rung::defect));
  EXPECT_TRUE(on(c.judge(from(DType::f32, {3}, {0, std::nan(""), 2})), Rung::defect));
}

TEST(Unlikely, IsADriftOfThreeDeviations) {
  for (const Case& c :
       {gemm(DType::f32, 64, 300, 64), make_case("Conv", {random_tensor(DType::f32, {1, 8, 40, 40}, 1),
                                                          random_tensor(DType::f32, {8, 8, 5, 5}, 2)})}) {
    const Tensor honest = c.worked({SumOrder::Kind::lanes, 8, false, 0}, inner_f32(DType::f32));
    const EnclosedTensor e = c.enclosed(inner_f32(DType::f32));
    const Verdict v = c.judge(
        changed(honest, [&](std::int64_t i, double y) { return y + 3 * e.deviation[static_cast<std::size_t>(i)]; }));
    EXPECT_TRUE(on(v, Rung::unlikely, "odds")) << c.node.op;
    EXPECT_LT(v.odds, 1e-9);
    EXPECT_LE(v.excess, 1) << "possible";
    EXPECT_GT(v.z_mean, 2);
  }
}

TEST(Unlikely, IsOneBadRowAmongTenThousand) {
  const Case c = gemm(DType::f32, 10000, 40, 32);
  const Tensor honest = c.worked({SumOrder::Kind::lanes, 4, false, 0}, inner_f32(DType::f32));
  EXPECT_LE(c.judge(honest).rung, Rung::rounding);
  const EnclosedTensor e = c.enclosed(inner_f32(DType::f32));
  const Verdict v = c.judge(changed(honest, [&](std::int64_t i, double y) {
    return i / 32 == 7777 ? y + 4 * e.deviation[static_cast<std::size_t>(i)] : y;
  }));
  EXPECT_TRUE(on(v, Rung::unlikely, "odds"));
}

TEST(Unlikely, IsOneElementTenDeviationsOff) {
  const Case c = gemm(DType::f32, 16, 1000, 16);
  const Tensor right = c.right();
  const EnclosedTensor e = c.enclosed(inner_f32(DType::f32));
  const Verdict v =
      c.judge(changed(right, [&](std::int64_t i, double y) { return i == 33 ? y + 10 * e.deviation[33] : y; }));
  EXPECT_TRUE(on(v, Rung::unlikely));
  EXPECT_EQ(v.worst.index, 33);
  EXPECT_EQ(v.worst.coordinates, (Shape{2, 1}));
}

TEST(Defect, IsANumberThatNoArithmeticGives) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const Case& c : six(dtype)) {
      const Tensor right = c.right();
      for (const double wrong : {std::nan(""), HUGE_VAL, -HUGE_VAL, 30000.0}) {
        const Verdict v = c.judge(changed(right, [&](std::int64_t i, double y) { return i == 1 ? wrong : y; }));
        EXPECT_TRUE(on(v, Rung::defect)) << c.node.op << " " << dtype_name(dtype) << " " << wrong;
        EXPECT_EQ(v.worst.index, 1);
        EXPECT_EQ(v.counts[static_cast<int>(Rung::defect)], 1);
        if (!std::isfinite(wrong)) {
          EXPECT_NE(v.note.find("non-finite"), std::string::npos);
        }
      }
    }
}

TEST(RoundingRung, TakesNonFiniteValuesOfEveryFormula) {
  // Variance 0 and epsilon 0: x / 0.
  const Case c = make_case("BatchNormalization",
                           {from(DType::f32, {1, 1, 4}, {1, 2, 3, 2}), from(DType::f32, {1}, {1}),
                            from(DType::f32, {1}, {0.5}), from(DType::f32, {1}, {2}), from(DType::f32, {1}, {0})},
                           {{"epsilon", 0.0f}});
  const double inf = HUGE_VAL, nan = std::nan("");
  EXPECT_TRUE(on(c.judge(from(DType::f32, {1, 1, 4}, {-inf, nan, inf, nan})), Rung::exact));
  // Folded: x inf - mean inf.
  EXPECT_TRUE(on(c.judge(from(DType::f32, {1, 1, 4}, {nan, nan, nan, nan})), Rung::rounding, "folded"));
  const Verdict number = c.judge(from(DType::f32, {1, 1, 4}, {-inf, 0.5, inf, nan}));
  EXPECT_TRUE(on(number, Rung::defect));
  EXPECT_NE(number.note.find("another non-finite value is right"), std::string::npos) << number.note;
  EXPECT_TRUE(on(c.judge(from(DType::f32, {1, 1, 4}, {inf, nan, inf, nan})), Rung::defect)) << "wrong sign";
}

TEST(Defect, IsAWrongShapeOrType) {
  const Case c = gemm();
  EXPECT_TRUE(on(c.judge(c.right().reshaped({8, 32})), Rung::defect));
  EXPECT_NE(c.judge(c.right().reshaped({8, 32})).note.find("[8,32]"), std::string::npos);
  EXPECT_TRUE(on(c.judge(Tensor::from_doubles(DType::f64, {16, 16}, c.right().to_doubles())), Rung::defect));
}

TEST(Defect, IsAMissingTerm) {
  const Case c = gemm(DType::f32, 16, 64, 16);
  Case less = c;
  less.inputs[0] = changed(c.inputs[0], [](std::int64_t i, double x) { return i % 64 == 63 ? 0 : x; });
  EXPECT_TRUE(on(c.judge(less.right()), Rung::defect));
  const Case d = conv();
  Case without = d;
  without.inputs[2] = Tensor::zeros(DType::f32, d.inputs[2].shape());
  EXPECT_TRUE(on(d.judge(without.right()), Rung::defect));
}

TEST(NonFinite, IsAcceptedWhereAnOverflowMayGiveIt) {
  const double big = 3e38;
  // The second column is ordinary, so that no narrower operands explain the first.
  const Case c = make_case("Gemm", {from(DType::f32, {1, 3}, {big, big, -big}),
                                    from(DType::f32, {3, 2}, {1, 1.1e-37, 1, 1.3e-37, 1, 1.7e-37})});
  const auto first = [](const Case& x, double y) { return x.judge(from(DType::f32, {1, 2}, {y, x.right().at(1)})); };
  EXPECT_TRUE(on(c.judge(c.right()), Rung::exact));
  EXPECT_LE(first(c, HUGE_VAL).rung, Rung::rounding);
  EXPECT_TRUE(on(first(c, -HUGE_VAL), Rung::defect));
  EXPECT_TRUE(on(first(c, std::nan("")), Rung::defect));
  const Case d = make_case("Gemm", {from(DType::f32, {1, 4}, {big, big, -big, -big}),
                                    from(DType::f32, {4, 2}, {1, 1.1e-37, 1, 1.3e-37, 1, 1.7e-37, 1, 1.9e-37})});
  for (const double y : {HUGE_VAL, -HUGE_VAL, std::nan(""), 0.0}) EXPECT_LE(first(d, y).rung, Rung::rounding) << y;
  EXPECT_TRUE(on(first(d, 1e36), Rung::defect));
  const Case nan = make_case("Gemm", {from(DType::f32, {1, 2}, {std::nan(""), 1}), from(DType::f32, {2, 1}, {1, 1})});
  EXPECT_TRUE(on(nan.judge(from(DType::f32, {1, 1}, {std::nan("")})), Rung::exact));
  EXPECT_TRUE(on(nan.judge(from(DType::f32, {1, 1}, {3})), Rung::defect));
}

TEST(Empty, TensorsAndScalarsAreJudged) {
  const Case none = make_case("Relu", {Tensor::zeros(DType::f32, {0, 3})});
  EXPECT_TRUE(on(none.judge(Tensor::zeros(DType::f32, {0, 3})), Rung::exact));
  EXPECT_EQ(none.judge(Tensor::zeros(DType::f32, {0, 3})).elements, 0);
  const Case rows = make_case("Gemm", {Tensor::zeros(DType::f32, {0, 3}), Tensor::zeros(DType::f32, {3, 2})});
  EXPECT_TRUE(on(rows.judge(Tensor::zeros(DType::f32, {0, 2})), Rung::exact));
  const Case terms = make_case("Gemm", {Tensor::zeros(DType::f32, {2, 0}), Tensor::zeros(DType::f32, {0, 2})});
  EXPECT_TRUE(on(terms.judge(Tensor::zeros(DType::f32, {2, 2})), Rung::exact));
  EXPECT_TRUE(on(terms.judge(constant_tensor(DType::f32, {2, 2}, 1e-45)), Rung::defect));
  const Case scalar = make_case("Sigmoid", {from(DType::f32, {}, {0.3})});
  EXPECT_TRUE(on(scalar.judge(scalar.right()), Rung::exact));
  EXPECT_TRUE(on(scalar.judge(from(DType::f32, {}, {0.9})), Rung::defect));
}

TEST(Unproven, IsAnOperatorWithoutReference) {
  Case c = make_case("Frobnicate", {Tensor::zeros(DType::f32, {3})});
  const Verdict v = c.judge(Tensor::zeros(DType::f32, {3}));
  EXPECT_TRUE(v.unproven);
  EXPECT_EQ(v.unproven_elements, 3);
  EXPECT_NE(v.note.find("Frobnicate"), std::string::npos);
  EXPECT_FALSE(v.failed());
}

TEST(SecondBackend, GetsTheSameVerdictFromKeptYardsticks) {
  const Case c = gemm();
  const auto p = c.pointers();
  NodeJudge judge(c.node, c.opset, p);
  const Tensor honest = c.worked(SumOrder(), inner_f32(DType::f32)),
               narrow = emulated_gemm(c.inputs[0], c.inputs[1], rounder(kBF16), rounder(kF32));
  for (int round = 0; round < 2; ++round)
    for (const Tensor* got : {&honest, &narrow}) {
      const Verdict kept = judge.judge(std::span(&got, 1))[0], fresh = c.judge(*got);
      EXPECT_EQ(kept.rung, fresh.rung);
      EXPECT_EQ(kept.explanation, fresh.explanation);
      EXPECT_EQ(kept.z_rms, fresh.z_rms);
      EXPECT_EQ(kept.counts, fresh.counts);
    }
}

}  // namespace
}  // namespace opdiff
