// Max and Min: any number of inputs that broadcast, the winner of each place, and gradients where several tie.
#pragma once

#include <algorithm>
#include <optional>

#include "ops/elementwise.h"
#include "ops/extremum.h"
#include "ops/gather.h"

namespace opdiff {

// Max and Min without their names; Choice is Largest or Smallest.
template <class Choice>
struct VariadicExtremum {
  static constexpr Arity kInputs{1, -1};
  static constexpr TypeSet kTypes = kNumericTypes;
  static constexpr bool kIntegers = true;

  static Expected<Types> infer(const Call& call) {
    const DType dtype = call.dtype(0);
    if (is_integer(dtype) && call.opset() < 12)
      return make_error("the inputs have type {}, which the operator takes from opset 12 on (opset {})",
                        dtype_name(dtype), call.opset());
    Shape shape = call.shape(0);
    for (int k = 1; k < call.input_count(); ++k) {
      if (!call.has(k)) return make_error("input {} is missing", k);
      if (call.dtype(k) != dtype)
        return make_error("input {} has type {}, input 0 has {}", k, dtype_name(call.dtype(k)), dtype_name(dtype));
      if (call.opset() < 8 && call.shape(k) != shape)
        return make_error("input {} has shape {}, input 0 has {}: they broadcast from opset 8 on", k,
                          to_string(call.shape(k)), to_string(shape));
      OPDIFF_TRY(shape, broadcast_shapes(shape, call.shape(k)));
    }
    return Types{{dtype, shape}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const Shape shape = *infer(call)->front().shape;
    const auto first = frame.input(0);
    std::vector<typename Frame<T>::Exact> best;
    for (const std::int64_t from : places(call, 0, shape)) best.push_back(first[static_cast<std::size_t>(from)]);
    for (int k = 1; k < call.input_count(); ++k) {
      const auto x = frame.input(k);
      const std::vector<std::int64_t> from = places(call, k, shape);
      for (std::size_t i = 0; i < best.size(); ++i) best[i] = Choice::of(best[i], x[static_cast<std::size_t>(from[i])]);
    }
    const auto y = frame.output(0, shape);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = T(best[i]);
  }

  static std::vector<Convention> conventions(const Call& call) {
    if (!is_float(call.dtype(0))) return {};
    const Shape shape = *infer(call)->front().shape;
    std::vector<Convention> list;
    for (const NanHabit& habit : kNanHabits) {
      std::vector<double> best;
      for (int k = 0; k < call.input_count(); ++k) {
        const std::vector<double> x = call.tensor(k)->to_doubles();
        const std::vector<std::int64_t> from = places(call, k, shape);
        best.resize(from.size());
        for (std::size_t i = 0; i < best.size(); ++i) {
          const double next = x[static_cast<std::size_t>(from[i])];
          best[i] = k == 0 ? next : extremum<Choice>(best[i], next, habit);
        }
      }
      list.push_back({habit.name, {Tensor::from_doubles(call.dtype(0), shape, best)}});
    }
    return list;
  }

  static std::vector<std::string_view> gradient_formulas() { return {"all inputs at once", "input by input"}; }
  static std::vector<std::string_view> gradient_convention_formulas() {
    return {"the last of equal inputs", "an equal share for equal inputs",
            "half for each of two equal inputs, all for both where one is NaN",
            "half for each of two equal inputs, nothing where one is NaN"};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    switch (frame.formula()) {
      case 0: return at_once(frame, Ties::first);
      case 1: return in_pairs(frame, Pairs::first);
      case 2: return at_once(frame, Ties::last);
      case 3: return at_once(frame, Ties::shared);
      case 4: return in_pairs(frame, Pairs::halved);
      default: return in_pairs(frame, Pairs::halved_numbers);
    }
  }

  // Of the definition: the cotangents where input k wins, zeros elsewhere.
  static Reduction gradient_reduction(const GradientCall& gradient, int k, std::int64_t index) {
    const Call& call = gradient.forward();
    const Tensor& dy = *gradient.cotangent(0);
    Reduction r;
    r.extents = repeated_extents(call.shape(k), dy.shape());
    std::vector<std::vector<std::int64_t>> from;
    for (int input = 0; input < call.input_count(); ++input) from.push_back(places(call, input, dy.shape()));
    for (std::size_t i = 0; i < from[0].size(); ++i) {
      if (from[static_cast<std::size_t>(k)][i] != index) continue;
      int winner = 0;
      const auto x = [&](int input) { return call.tensor(input)->at(from[static_cast<std::size_t>(input)][i]); };
      for (int input = 1; input < call.input_count(); ++input)
        if (Choice::beats(x(input), x(winner))) winner = input;
      r.a.push_back(winner == k ? dy.at(static_cast<std::int64_t>(i)) : 0);
    }
    return r;
  }

  static Sample sample_inputs(SampleContext& c, std::string_view op) {
    Rng& rng = c.rng();
    const int opset = is_integer(c.dtype()) ? std::max(c.opset(), 12) : c.opset();
    const Shape shape = c.shape_or_empty(0, 5, 8);
    std::vector<std::optional<Tensor>> inputs;
    const std::int64_t count = rng.chance(0.6) ? 2 : rng.integer(1, 5);
    while (std::ssize(inputs) < count) {
      Shape own = shape;
      if (opset >= 8 && rng.chance(0.6)) {
        for (auto& dimension : own)
          if (rng.chance(0.3)) dimension = 1;
        if (rng.chance(0.3)) own.erase(own.begin(), own.begin() + rng.integer(0, std::ssize(own)));
      }
      const bool repeats = !inputs.empty() && inputs[0]->shape() == own && rng.chance(0.1);  // ties everywhere
      inputs.push_back(repeats ? *inputs[0] : c.elements(own));
    }
    Sample s = c.make(op, std::move(inputs));
    s.opset = opset;
    for (std::size_t k = 1; k < s.initialiser.size(); ++k) s.initialiser[k] = rng.chance(0.2);
    return s;
  }

  static std::vector<Sample> refused_inputs(std::string_view op) {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3}), i = Tensor::zeros(DType::i32, {2});
    return {refused_sample(op, {}, {}, "inputs"),
            refused_sample(op, {x, Tensor::zeros(DType::f32, {2})}, {}, "broadcast"),
            refused_sample(op, {x, Tensor::zeros(DType::f32, {3})}, {}, "opset 8", 7),
            refused_sample(op, {x, Tensor::zeros(DType::f64, {2, 3})}, {}, "type"),
            refused_sample(op, {x, std::nullopt}, {}, "missing"),
            refused_sample(op, {x, x}, {{"axis", std::int64_t{1}}}, "axis"),
            refused_sample(op, {i, i}, {}, "opset 12", 11),
            refused_sample(op, {Tensor::zeros(DType::boolean, {2})}, {}, "type")};
  }

 private:
  enum class Ties { first, last, shared };
  enum class Pairs { first, halved, halved_numbers };  // halved_numbers: nothing where one is NaN

  // Which element of input k broadcasts to each place of `shape`.
  static std::vector<std::int64_t> places(const Call& call, int k, const Shape& shape) {
    return gather(shape, broadcast_strides(call.shape(k), shape), 0);
  }

  template <class T>
  static void at_once(GradientFrame<T>& frame, Ties rule) {
    const Call& call = frame.call();
    const Shape shape = *infer(call)->front().shape;
    const auto count = static_cast<std::size_t>(call.input_count());
    const auto dy = frame.cotangent();
    std::vector<std::vector<std::int64_t>> from;
    std::vector<std::optional<OperandGradient<T>>> gradients(count);
    for (std::size_t k = 0; k < count; ++k) {
      const int input = static_cast<int>(k);
      from.push_back(places(call, input, shape));
      if (frame.wants(input)) gradients[k].emplace(frame.gradient(input), call.shape(input) != shape);
    }
    std::vector<std::size_t> winners;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      const auto x = [&](std::size_t k) {
        return frame.input(static_cast<int>(k))[static_cast<std::size_t>(from[k][i])];
      };
      winners.assign(1, 0);
      for (std::size_t k = 1; k < count; ++k) {
        if (Choice::beats(x(k), x(winners[0]))) winners.clear();
        if (winners.empty() || ties(x(k), x(winners[0]))) winners.push_back(k);
      }
      if (rule == Ties::first) winners.resize(1);
      if (rule == Ties::last) winners.assign(1, winners.back());
      const T cotangent(dy[i]);
      const T term = winners.size() == 1 ? cotangent : cotangent / T(static_cast<double>(winners.size()));
      for (const std::size_t k : winners)
        if (gradients[k]) gradients[k]->add(static_cast<std::size_t>(from[k][i]), term);
    }
    for (auto& gradient : gradients)
      if (gradient) gradient->finish();
  }

  // As y = f(f(f(x0, x1), x2), ...) is differentiated.
  template <class T>
  static void in_pairs(GradientFrame<T>& frame, Pairs rule) {
    const Call& call = frame.call();
    using Exact = typename GradientFrame<T>::Exact;
    std::vector<Shape> shapes{call.shape(0)};
    const auto first = frame.input(0), dy = frame.cotangent();
    std::vector<std::vector<Exact>> best{{first.begin(), first.end()}};
    for (int k = 1; k < call.input_count(); ++k) {
      const auto x = frame.input(k);
      const Shape shape = *broadcast_shapes(shapes.back(), call.shape(k));
      std::vector<Exact> next(static_cast<std::size_t>(element_count(shape)));
      for_each_pair(shapes.back(), call.shape(k), shape, [&](std::size_t i, std::size_t left, std::size_t right) {
        next[i] = Choice::of(best.back()[left], x[right]);
      });
      shapes.push_back(shape);
      best.push_back(std::move(next));
    }
    std::vector<T> flowing;
    for (const Exact& cotangent : dy) flowing.push_back(T(cotangent));
    for (int k = call.input_count() - 1; k > 0; --k) {
      const auto at = static_cast<std::size_t>(k);
      const std::vector<Exact>& before = best[at - 1];
      const auto x = frame.input(k);
      std::vector<T> rest(before.size()), unwanted(frame.wants(k) ? 0 : x.size());
      OperandGradient<T> to_rest(rest, shapes[at - 1] != shapes[at]);
      OperandGradient<T> to_input(frame.wants(k) ? frame.gradient(k) : std::span<T>(unwanted),
                                  call.shape(k) != shapes[at]);
      for_each_pair(shapes[at - 1], call.shape(k), shapes[at], [&](std::size_t i, std::size_t left, std::size_t right) {
        const Exact &a = before[left], &b = x[right];
        const bool has_nan = a != a || b != b;
        if (rule == Pairs::halved_numbers && has_nan) return;
        if (rule == Pairs::halved && has_nan) {
          to_rest.add(left, flowing[i]);
          to_input.add(right, flowing[i]);
        } else if (rule != Pairs::first && ties(a, b)) {
          to_rest.add(left, flowing[i] * T(0.5));
          to_input.add(right, flowing[i] * T(0.5));
        } else if (Choice::beats(b, a)) {
          to_input.add(right, flowing[i]);
        } else {
          to_rest.add(left, flowing[i]);
        }
      });
      to_rest.finish();
      to_input.finish();
      flowing = std::move(rest);
    }
    if (frame.wants(0)) std::copy(flowing.begin(), flowing.end(), frame.gradient(0).begin());
  }
};

}  // namespace opdiff
