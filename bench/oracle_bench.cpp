// What the oracle costs: enclosing products against a plain dgemm, and judging convolutions of LeNet's size.
#include <benchmark/benchmark.h>

#include "base/rng.h"
#include "judge/judge.h"
#include "numerics/parallel.h"
#include "numerics/product.h"
#include "ops/evaluate.h"

namespace opdiff {
namespace {

std::vector<double> draw(std::int64_t count, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<double> v(static_cast<std::size_t>(count));
  for (double& x : v) x = static_cast<float>(rng.normal());
  return v;
}

// ns per multiply-add, as a counter.
void per_multiply_add(benchmark::State& state, double multiply_adds) {
  state.counters["ns/madd"] = benchmark::Counter(multiply_adds * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

template <class T>
void products_of(benchmark::State& state) {
  const ProductShape s{state.range(0), state.range(1), state.range(2)};
  const std::vector<double> a = draw(s.m * s.k, 1), b = draw(s.k * s.n, 2);
  std::vector<T> out(static_cast<std::size_t>(s.m * s.n));
  for (auto _ : state) {
    products(s, a.data(), b.data(), nullptr, out.data());
    benchmark::DoNotOptimize(out.data());
  }
  per_multiply_add(state, static_cast<double>(s.m * s.n * s.k));
}
void shapes(benchmark::internal::Benchmark* b) {
  b->Args({6, 784, 25})->Args({16, 100, 150})->Args({64, 3136, 576})->Args({256, 256, 256})->Args({1, 1000, 4096});
}
BENCHMARK(products_of<double>)->Name("products/dgemm")->Apply(shapes);
BENCHMARK(products_of<Enclosure<double>>)->Name("products/enclosure")->Apply(shapes);

// LeNet's two convolutions on 100 digits.
void judge_convolution(benchmark::State& state) {
  set_threads(1);
  const bool first = state.range(0) == 1;
  const Shape x = first ? Shape{100, 1, 32, 32} : Shape{100, 6, 14, 14}, w = first ? Shape{6, 1, 5, 5} : Shape{16, 6, 5, 5};
  const std::int64_t out = first ? 28 * 28 : 10 * 10;
  const std::vector<Tensor> inputs{Tensor::from_doubles(DType::f32, x, draw(element_count(x), 1)), Tensor::from_doubles(DType::f32, w, draw(element_count(w), 2)),
                                   Tensor::from_doubles(DType::f32, {w[0]}, draw(w[0], 3))};
  const std::vector<const Tensor*> pointers{&inputs[0], &inputs[1], &inputs[2]};
  const Node node{"conv", "Conv", "", {"x", "w", "b"}, {"y"}, {}};
  const Tensor got = work(*find_operator("", "Conv"), Call(node, 17, pointers), inner_f32(DType::f32), 0)[0];
  const Tensor* one[] = {&got};
  for (auto _ : state) {
    const std::vector<Verdict> verdicts = judge_node(node, 17, pointers, one);
    if (verdicts[0].rung > Rung::rounding) state.SkipWithError("an honest result was not accepted");
  }
  per_multiply_add(state, static_cast<double>(100 * out * element_count(w)));
}
BENCHMARK(judge_convolution)->Name("judge/lenet_conv")->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace opdiff
