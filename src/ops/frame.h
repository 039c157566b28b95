// What a formula is written against: inputs as exact scalars, outputs as arrays of the scalar it is instantiated for.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <type_traits>
#include <vector>

#include "numerics/dual.h"
#include "numerics/enclosure.h"
#include "numerics/parallel.h"
#include "numerics/product.h"
#include "numerics/sum.h"
#include "ops/call.h"

namespace opdiff {

// Inputs of an isolated operator are exact numbers; which type holds them exactly.
template <class T>
struct ExactType {
  using type = T;
};
template <class V>
struct ExactType<Enclosure<V>> {
  using type = V;
};
template <>
struct ExactType<Working> {
  using type = double;
};

template <class T>
class Frame {
 public:
  using Exact = typename ExactType<T>::type;

  Frame(const Call& call, int formula) : call_(call), formula_(formula) {}

  const Call& call() const { return call_; }
  // Which of the operator's admissible formulas to follow; 0 is the definition.
  int formula() const { return formula_; }

  // Input k, flat, row-major.
  std::span<const Exact> input(int k) {
    auto [entry, fresh] = inputs_.try_emplace(k);
    if (fresh) entry->second = load(*call_.tensor(k));
    return entry->second;
  }
  // Inputs that are no plain numbers (dual numbers with their directions); before the formula runs.
  void set_input(int k, std::vector<Exact> values) { inputs_[k] = std::move(values); }
  // A floating attribute: an implementation may round it to its inner format before it computes with it.
  static T parameter(double value) { return T(value) * T(1); }
  // Allocates output k.
  std::span<T> output(int k, const Shape& shape) {
    outputs_.resize(std::max(outputs_.size(), static_cast<std::size_t>(k) + 1));
    outputs_[static_cast<std::size_t>(k)].resize(static_cast<std::size_t>(element_count(shape)));
    return outputs_[static_cast<std::size_t>(k)];
  }
  std::vector<std::vector<T>>& outputs() { return outputs_; }

  // Output k made piece by piece: fill(i, piece) fills the i-th of `count` equal pieces, zero before, on any thread.
  template <class Fill>
  void output_pieces(int k, const Shape& shape, std::int64_t count, const Fill& fill) {
    const std::int64_t size = count > 0 ? element_count(shape) / count : 0;
    if (k != streamed_) {
      const std::span<T> y = output(k, shape);
      return parallel_for(count, [&](std::int64_t i) { fill(i, y.subspan(at(i * size), at(size))); });
    }
    outputs_.resize(std::max(outputs_.size(), at(k) + 1));
    parallel_for(count, [&](std::int64_t i) {
      std::vector<T> piece(at(size));
      fill(i, std::span<T>(piece));
      take_(i * size, piece);
    });
  }
  // Before the formula runs: if it makes output k piece by piece, take(first element, piece) gets the pieces, in any
  // order and on any thread, and the output itself stays empty. A large one is never written to memory then.
  using Take = std::function<void(std::int64_t first, std::span<const T> piece)>;
  void stream(int k, Take take) {
    streamed_ = k;
    take_ = std::move(take);
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static std::vector<Exact> load(const Tensor& tensor) {
    if constexpr (std::is_same_v<Exact, double>) {
      return tensor.to_doubles();
    } else if constexpr (std::is_same_v<Exact, std::int64_t>) {
      return tensor.to_int64s();
    } else if constexpr (std::is_same_v<Exact, std::uint64_t>) {
      const std::vector<std::int64_t> values = tensor.to_int64s();
      return {values.begin(), values.end()};
    } else {
      std::vector<Exact> values(static_cast<std::size_t>(tensor.size()));
      for (std::int64_t i = 0; i < tensor.size(); ++i)
        values[static_cast<std::size_t>(i)] = is_float(tensor.dtype()) ? Exact(tensor.at(i)) : Exact(tensor.int_at(i));
      return values;
    }
  }

  const Call& call_;
  int formula_;
  std::map<int, std::vector<Exact>> inputs_;
  std::vector<std::vector<T>> outputs_;
  int streamed_ = -1;
  Take take_;
};

}  // namespace opdiff
