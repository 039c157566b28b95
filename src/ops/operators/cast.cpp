#include <algorithm>
#include <bit>
#include <cmath>

#include "ops/op.h"

namespace opdiff::operators {
namespace {

// An integer as a double that any narrower format rounds as it would the integer itself: 53 bits, the last one set when
// bits were lost (round to odd; Boldo and Melquiond, 2008).
double rounded_to_odd(std::uint64_t magnitude) {
  const int lost = std::max(static_cast<int>(std::bit_width(magnitude)) - 53, 0);
  const std::uint64_t kept = magnitude >> lost;
  const bool is_exact = kept << lost == magnitude;
  return std::ldexp(static_cast<double>(is_exact ? kept : kept | 1), lost);
}

struct Cast {
  static constexpr std::string_view kName = "Cast";
  static constexpr std::string_view kDocumentation = R"(Y = X in the type `to`

To a floating type: rounded once, to nearest even; beyond the range infinite. Floating to integer: truncated toward zero; NaN and
values out of range are open (hardware saturates, wraps or gives the least integer): counted and not judged. Integer to integer:
modulo 2^bits, two's complement. To bool: whether it is not zero (NaN is true). From bool: 0 or 1. Some frameworks go through float32
from wider types to 16 bits and round twice: a convention. Strings and 8-bit floats are refused; `saturate` (opset 19) concerns those
only.)";
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"to", AttributeKind::integer, "required; a TensorProto.DataType of ours"},
            {"saturate", AttributeKind::integer, "for 8-bit floats only; no effect here", 19}};
  }

  static Expected<Types> infer(const Call& call) {
    if (!call.has_attribute("to")) return make_error("attribute 'to' is missing");
    const std::int64_t code = call.integer("to", 0);
    if (code < 0 || code > 1000 || !dtype_from_onnx_code(static_cast<int>(code)))
      return make_error("attribute 'to' is {}{}, which is not supported", code, code == 8 ? " (string)" : "");
    return Types{{output_dtype(call, 0), call.shape(0)}};
  }

  // Asked before `infer` too, when shapes are not known: any type does for a value that infer refuses.
  static DType output_dtype(const Call& call, int) {
    return dtype_from_onnx_code(static_cast<int>(call.integer("to", 0))).value_or(call.dtype(0));
  }

  static constexpr std::string_view kGradientDocumentation =
      "dX is dY in the type of X, rounded once. Integer and bool results have no gradient.";

  static std::vector<Tensor> gradient_exact(const GradientCall& call) {
    const Tensor& dy = *call.cotangent(0);
    const DType to = call.forward().dtype(0);
    return {to == dy.dtype() ? dy : Tensor::from_doubles(to, dy.shape(), dy.to_doubles())};
  }

  static std::vector<Tensor> exact(const Call& call) {
    const Tensor& x = *call.tensor(0);
    const DType to = output_dtype(call, 0);
    if (to == x.dtype()) return {x};
    const auto n = static_cast<std::size_t>(x.size());
    if (to == DType::boolean || (is_integer(to) && is_float(x.dtype()))) {
      std::vector<std::int64_t> values(n);
      for (std::size_t i = 0; i < n; ++i) {
        const auto k = static_cast<std::int64_t>(i);
        if (to == DType::boolean)
          values[i] = is_float(x.dtype()) ? x.at(k) != 0 : x.int_at(k) != 0;
        else
          values[i] = in_range(x.at(k), to) ? truncated(x.at(k), to) : 0;
      }
      return {Tensor::from_int64s(to, x.shape(), values)};
    }
    if (!is_float(to)) return {Tensor::from_int64s(to, x.shape(), x.to_int64s())};
    std::vector<double> values(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto k = static_cast<std::int64_t>(i);
      if (is_float(x.dtype()))
        values[i] = x.at(k);
      else if (to == DType::f64)
        values[i] = is_unsigned_integer(x.dtype()) ? static_cast<double>(static_cast<std::uint64_t>(x.int_at(k)))
                                                   : static_cast<double>(x.int_at(k));
      else if (const std::int64_t v = x.int_at(k); v < 0 && !is_unsigned_integer(x.dtype()))
        values[i] = -rounded_to_odd(-static_cast<std::uint64_t>(v));
      else
        values[i] = rounded_to_odd(static_cast<std::uint64_t>(v));
    }
    return {Tensor::from_doubles(to, x.shape(), values)};
  }

  static std::vector<bool> unspecified(const Call& call, int) {
    const Tensor& x = *call.tensor(0);
    const DType to = output_dtype(call, 0);
    if (!is_float(x.dtype()) || !is_integer(to)) return {};
    std::vector<bool> open(static_cast<std::size_t>(x.size()));
    for (std::size_t i = 0; i < open.size(); ++i) open[i] = !in_range(x.at(static_cast<std::int64_t>(i)), to);
    return open;
  }

  static std::vector<Convention> conventions(const Call& call) {
    const DType from = call.dtype(0), to = output_dtype(call, 0);
    const bool is_wide = from == DType::f64 || (is_integer(from) && dtype_size(from) >= 4);
    if (!is_wide || (to != DType::f16 && to != DType::bf16)) return {};
    const Tensor& x = *call.tensor(0);
    std::vector<double> values;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const std::int64_t v = x.int_at(is_float(from) ? 0 : i);
      values.push_back(is_float(from)              ? static_cast<float>(x.at(i))
                       : is_unsigned_integer(from) ? static_cast<float>(static_cast<std::uint64_t>(v))
                                                   : static_cast<float>(v));
    }
    return {{"rounded twice, through float32", {Tensor::from_doubles(to, x.shape(), values)}}};
  }

  static Sample sample(SampleContext& c) {
    Rng& rng = c.rng();
    const auto to = static_cast<DType>(rng.integer(0, kDTypeCount - 1));
    const Shape shape = c.shape_or_empty(0, 5);
    Tensor x = c.elements(shape);
    if (is_integer(c.dtype()) && rng.chance(0.6)) {  // integers of every magnitude
      std::vector<std::int64_t> values = x.to_int64s();
      for (std::int64_t& v : values) v = static_cast<std::int64_t>(rng.next()) >> rng.integer(0, 63);
      x = Tensor::from_int64s(c.dtype(), shape, values);
    }
    Sample s = c.make(kName, {x});
    s.node.attributes["to"] = std::int64_t{onnx_code(to)};
    if (to == DType::bf16) s.opset = std::max(s.opset, 13);
    if (s.opset >= 19 && rng.chance(0.3)) s.node.attributes["saturate"] = rng.integer(0, 1);
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2});
    const auto refuse = [&](Attribute to, std::string why) {
      return refused_sample(kName, {x}, {{"to", std::move(to)}}, std::move(why));
    };
    return {refuse(std::int64_t{8}, "string"),
            refuse(std::int64_t{17}, "to"),
            refuse(std::int64_t{0}, "to"),
            refuse(std::int64_t{-1}, "to"),
            refuse(std::int64_t{1} << 40, "to"),
            refuse(std::string("FLOAT"), "to"),
            refused_sample(kName, {x}, {}, "to"),
            refused_sample(kName, {x}, {{"to", std::int64_t{1}}, {"saturate", std::int64_t{1}}}, "saturate", 18)};
  }

 private:
  // Whether x, truncated, is a number of the integer type.
  static bool in_range(double x, DType to) {
    const int bits = static_cast<int>(8 * dtype_size(to));
    const double t = std::trunc(x);  // NaN fails both comparisons
    return is_unsigned_integer(to) ? t >= 0 && t < std::ldexp(1, bits)
                                   : t >= -std::ldexp(1, bits - 1) && t < std::ldexp(1, bits - 1);
  }
  static std::int64_t truncated(double x, DType to) {
    return to == DType::u64 ? static_cast<std::int64_t>(static_cast<std::uint64_t>(x)) : static_cast<std::int64_t>(x);
  }
};

}  // namespace

const MetaOperator& cast() {
  static const MetaOperator op = describe<Cast>();
  return op;
}

}  // namespace opdiff::operators
