#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"

namespace opdiff::operators {
namespace {

struct Bounds {
  double low, high;
};

struct Clip {
  static constexpr std::string_view kName = "Clip";
  static constexpr std::string_view kDocumentation = R"(Y = min(max(X, min), max), elementwise

The bounds are attributes until opset 10 and scalar inputs of X's type from 11 on; integers from opset 12. Where min > max, max wins.
An absent bound is the lowest or largest finite number (of f32 until opset 10, of X's type after), so that infinities are clipped;
frameworks that skip the absent bound keep them: a convention. So is a NaN that becomes a bound, or a NaN bound that is not there.)";
  static constexpr Arity kInputs{1, 3};
  static constexpr TypeSet kTypes = kNumericTypes;
  static constexpr bool kIntegers = true;

  static std::vector<AttributeSpec> attributes() {
    return {{"min", AttributeKind::real, "lower bound; default the lowest finite f32", 1, 10},
            {"max", AttributeKind::real, "upper bound; default the largest finite f32", 1, 10}};
  }

  static Expected<Types> infer(const Call& call) {
    static constexpr const char* kNames[] = {"input", "min", "max"};
    for (int k = 1; k < 3; ++k) {
      if (!call.has(k)) continue;
      if (call.opset() < 11)
        return make_error("input {} ('{}') is given, but it is an input from opset 11 on", k, kNames[k]);
      if (call.dtype(k) != call.dtype(0))
        return make_error("'{}' has type {}, the input has {}", kNames[k], dtype_name(call.dtype(k)),
                          dtype_name(call.dtype(0)));
      if (element_count(call.shape(k)) != 1 || call.rank(k) > 1)
        return make_error("'{}' has shape {}, expected a scalar", kNames[k], to_string(call.shape(k)));
    }
    return Types{{call.dtype(0), call.shape(0)}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const bool has_low = call.opset() < 11 || call.has(1), has_high = call.opset() < 11 || call.has(2);
    if constexpr (std::is_integral_v<T>) {
      map_elements(frame, [&](T x) {
        if (has_low) x = maximum(x, frame.input(1)[0]);
        return has_high ? minimum(x, frame.input(2)[0]) : x;
      });
    } else {
      const Bounds absent = absent_bounds(call);
      T low(absent.low), high(absent.high);
      if (call.opset() < 11) {
        low = frame.parameter(call.real("min", absent.low));
        high = frame.parameter(call.real("max", absent.high));
      }
      if (call.has(1)) low = T(frame.input(1)[0]);
      if (call.has(2)) high = T(frame.input(2)[0]);
      map_elements(frame, [&](auto x) { return minimum(maximum(T(x), low), high); });
    }
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX = dY where min <= X <= max, else 0. At a bound 0 is a convention (any slope of [0, 1] is a subgradient); so "
      "is "
      "a NaN that passes the cotangent, and an absent bound that lets infinities pass.";

  static std::vector<int> differentiable() { return {0}; }

  static Bounds bounds_of(const Call& call, const Bounds& absent) {
    const auto bound = [&](const char* name, int k, double otherwise) {
      if (call.has(k)) return call.tensor(k)->at(0);
      return call.has_attribute(name) ? call.real(name, 0) : otherwise;
    };
    return {bound("min", 1, absent.low), bound("max", 2, absent.high)};
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    const Bounds b = bounds_of(frame.call(), absent_bounds(frame.call()));
    map_slopes(frame, [&](const auto& x, const T& dy) { return x >= b.low && x <= b.high ? dy : T(0); });
  }

  static std::vector<Convention> gradient_conventions(const GradientCall& gradient) {
    const Call& call = gradient.forward();
    const Bounds open = bounds_of(call, {-HUGE_VAL, HUGE_VAL});
    const Format& format = format_of(call.dtype(0));
    const Bounds stored{round_to(open.low, format), round_to(open.high, format)};  // attributes are f32
    return {other_slopes(gradient, "slope 0 at a bound",
                         [&](double x, double dy) { return x > stored.low && x < stored.high ? dy : 0; }),
            other_slopes(gradient, "slope 0 at min, 1 at max and beyond an absent bound",
                         [&](double x, double dy) { return x > stored.low && x <= stored.high ? dy : 0; }),
            other_slopes(gradient, "slope 1 at a bound, at NaN and beyond an absent bound",
                         [&](double x, double dy) { return x < stored.low || x > stored.high ? 0 : dy; })};
  }

  static std::vector<Convention> conventions(const Call& call) {
    if (!is_float(call.dtype(0))) return {};
    const Bounds b = bounds_of(call, absent_bounds(call)), open = bounds_of(call, {-HUGE_VAL, HUGE_VAL});
    const auto outputs = [&](const Bounds& bounds, double for_nan) {
      const double low = std::isnan(bounds.low) ? -HUGE_VAL : bounds.low;
      const double high = std::isnan(bounds.high) ? HUGE_VAL : bounds.high;
      std::vector<double> values = call.tensor(0)->to_doubles();
      for (double& v : values) v = std::isnan(v) ? for_nan : std::min(std::max(v, low), high);
      return std::vector<Tensor>{Tensor::from_doubles(call.dtype(0), call.shape(0), values)};
    };
    std::vector<Convention> list{{"an absent bound leaves infinities", outputs(open, NAN)},
                                 {"NaN becomes a bound", outputs(b, std::min(b.low, b.high))},
                                 {"NaN becomes a bound", outputs(b, b.high)}};
    // Both in one tensor; an absent bound that NaN becomes may be infinite, too.
    for (const double nan : {std::min(b.low, b.high), b.high, std::min(open.low, open.high), open.high})
      list.push_back({"an absent bound leaves infinities, NaN becomes a bound", outputs(open, nan)});
    if (std::isnan(b.low) || std::isnan(b.high)) list.push_back({"a NaN bound is no bound", outputs(b, NAN)});
    return list;
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const Tensor x = c.elements(c.shape_or_empty(0, 5));
    const bool is_real = is_float(c.dtype());
    // Bounds from among the values, so that some are clipped; mostly in order.
    const auto draw = [&] { return x.size() == 0 ? 1.0 : x.at(rng.integer(0, x.size() - 1)); };
    double low = draw(), high = draw();
    if (!std::isfinite(low)) low = -1;
    if (!std::isfinite(high)) high = 1;
    if (low > high && rng.chance(0.9)) std::swap(low, high);
    std::vector<std::optional<Tensor>> inputs{x};
    const bool has_low = rng.chance(0.75), has_high = rng.chance(0.75);
    const int opset = is_real ? c.opset() : std::max(c.opset(), 12);
    if (opset >= 11) {
      if (has_low || has_high) inputs.push_back(has_low ? std::optional(scalar(c.dtype(), low)) : std::nullopt);
      if (has_high) inputs.push_back(scalar(c.dtype(), high));
    }
    Sample s = c.make(kName, std::move(inputs));
    s.opset = opset;
    if (opset < 11) {
      if (has_low) s.node.attributes["min"] = static_cast<float>(std::clamp<double>(low, -3e38, 3e38));
      if (has_high) s.node.attributes["max"] = static_cast<float>(std::clamp<double>(high, -3e38, 3e38));
    }
    const bool weights = rng.chance(0.7);
    for (std::size_t k = 1; k < s.inputs.size(); ++k) s.initialiser[k] = weights && s.inputs[k];
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2}), one = Tensor::zeros(DType::f32, {});
    return {refused_sample(kName, {x}, {{"min", 0.0f}}, "min", 11),
            refused_sample(kName, {x, one}, {}, "from opset 11", 10), refused_sample(kName, {x, x}, {}, "scalar"),
            refused_sample(kName, {x, Tensor::zeros(DType::f64, {})}, {}, "type"),
            refused_sample(kName, {Tensor::zeros(DType::boolean, {2})}, {}, "type")};
  }

 private:
  static Bounds absent_bounds(const Call& call) {
    const double largest = (call.opset() < 11 ? kF32 : format_of(call.dtype(0))).max_finite();
    return {-largest, largest};
  }
  static Tensor scalar(DType dtype, double value) { return Tensor::from_doubles(dtype, {}, {&value, 1}); }
};

}  // namespace

const MetaOperator& clip() {
  static const MetaOperator op = describe<Clip>();
  return op;
}

}  // namespace opdiff::operators
