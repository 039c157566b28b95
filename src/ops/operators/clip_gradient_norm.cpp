#include <cmath>

#include "ops/loss.h"

namespace opdiff::operators {
namespace {

struct ClipGradientNorm {
  static constexpr std::string_view kName = "ClipGradientNorm";
  static constexpr std::string_view kDomain = kTrainingDomain;
  static constexpr bool kUpdates = true;
  static constexpr std::string_view kDocumentation =
      R"(Y_k = G_k min(1, max_norm / (total + epsilon)) with total = sqrt(sum of the squares of all elements of all G_k)

Any number of gradients of one type in; the clipped gradients and, last, the total norm out. Source: torch.nn.utils.clip_grad_norm_
(epsilon 1e-6); TensorFlow's clip_by_global_norm has epsilon 0. The norm is taken of all elements, or of the norms of the tensors.)";
  static constexpr Arity kInputs{1, -1};
  static constexpr Arity kOutputs{1, -1};

  static std::vector<AttributeSpec> attributes() {
    return {{"max_norm", AttributeKind::real, "largest total norm that is left alone, above 0; default 1"},
            {"epsilon", AttributeKind::real, "added to the norm before it divides, at least 0; default 1e-6"}};
  }
  static std::vector<std::string_view> formulas() { return {"one sum of squares", "norm of the tensors' norms"}; }

  static Expected<Types> infer(const Call& call) {
    if (const double norm = call.real("max_norm", 1); !(norm > 0) || !std::isfinite(norm))
      return make_error("attribute 'max_norm' is {}, expected a number above 0", norm);
    if (const double epsilon = call.real("epsilon", 1e-6); !(epsilon >= 0) || !std::isfinite(epsilon))
      return make_error("attribute 'epsilon' is {}, expected at least 0", epsilon);
    Types types;
    for (int k = 0; k < call.input_count(); ++k) {
      if (!call.has(k)) return make_error("gradient {} is missing", k);
      if (call.dtype(k) != call.dtype(0))
        return make_error("gradient {} has type {}, gradient 0 has {}", k, dtype_name(call.dtype(k)),
                          dtype_name(call.dtype(0)));
      types.push_back({call.dtype(0), call.shape(k)});
    }
    types.push_back({call.dtype(0), Shape{}});
    if (call.node().outputs.size() > types.size())
      return make_error("{} outputs named, {} gradients and their norm exist", call.node().outputs.size(),
                        call.input_count());
    return types;
  }

  static DType output_dtype(const Call& call, int) { return call.dtype(0); }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Call& call = frame.call();
    const int count = call.input_count();
    Sum<T> all;
    for (int k = 0; k < count; ++k) {
      Sum<T> own;
      for (const auto& g : frame.input(k)) (frame.formula() == 0 ? all : own).add(T(g) * T(g));
      if (frame.formula() == 0) continue;
      const T norm = sqrt(own.result());
      all.add(norm * norm);
    }
    const T total = sqrt(all.result());
    const T factor = at_most_one(frame.parameter(call.real("max_norm", 1)) /
                                 (total + frame.parameter(call.real("epsilon", static_cast<double>(1e-6f)))));
    const T shared = share(factor, 0);
    for (int k = 0; k <= count; ++k) frame.output(k, k < count ? call.shape(k) : Shape{});
    for (int k = 0; k < count; ++k) {
      const auto g = frame.input(k);
      const auto y = frame.output(k, call.shape(k));
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = T(g[i]) * shared;
    }
    frame.output(count, {})[0] = total;
  }

  // The factor errs for all elements at once.
  static std::vector<int> group_axes(const Call&, int) { return {}; }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const std::int64_t count = rng.integer(1, 4);
    std::vector<std::optional<Tensor>> inputs;
    double squares = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      inputs.emplace_back(c.tensor(c.shape(0, 3, rng.chance(0.2) ? 30 : 8)));
      for (const double g : inputs.back()->to_doubles()) squares += g * g;
    }
    Sample s = training_sample(c.make(kName, std::move(inputs), static_cast<int>(count) + 1));
    const double norm = std::sqrt(squares) * std::pow(10.0, rng.uniform(-1.5, 0.5));
    s.node.attributes["max_norm"] = static_cast<float>(norm > 1e-30 && norm < 1e30 && rng.chance(0.8) ? norm : 1.0);
    if (rng.chance(0.2)) s.node.attributes["epsilon"] = rng.chance(0.5) && squares > 0 ? 0.0f : 1e-4f;
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    return training_samples({refused_sample(kName, {x}, {{"max_norm", 0.0f}}, "max_norm"),
                             refused_sample(kName, {x}, {{"epsilon", -1.0f}}, "epsilon"),
                             refused_sample(kName, {x, Tensor::zeros(DType::f64, {2})}, {}, "type"),
                             refused_sample(kName, {x, std::nullopt, x}, {}, "missing"),
                             refused_sample(kName, {Tensor::zeros(DType::i32, {2})}, {}, "type")});
  }

 private:
  // min(1, x). Where rounding cannot make x smaller than 1 the result is 1 and nothing else.
  template <class T>
  static T at_most_one(const T& x) {
    if constexpr (requires { x.overflow; })
      if (static_cast<double>(x.v) - x.e > 1 && !(x.overflow & kNaN)) return T(1);
    return minimum(x, T(1));
  }
};

}  // namespace

const MetaOperator& clip_gradient_norm() {
  static const MetaOperator op = describe<ClipGradientNorm>();
  return op;
}

}  // namespace opdiff::operators
