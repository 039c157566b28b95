#include <algorithm>
#include <numeric>

#include "ops/gather.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

struct Transpose {
  static constexpr std::string_view kName = "Transpose";
  static constexpr std::string_view kDocumentation = R"(Y[i(perm[0]), ..., i(perm[n])] = X[i0, ..., in]

Dimension k of Y is dimension perm[k] of X; by default the dimensions are reversed.)";
  static constexpr TypeSet kTypes = kAllTypes;

  static std::vector<AttributeSpec> attributes() {
    return {{"perm", AttributeKind::integers, "a permutation of 0 ... rank - 1; default: reversed"}};
  }

  static Expected<Types> infer(const Call& call) {
    const std::vector<std::int64_t> perm = permutation(call);
    std::vector<std::int64_t> sorted = perm;
    std::sort(sorted.begin(), sorted.end());
    bool fits = std::ssize(perm) == call.rank(0);
    for (std::size_t k = 0; k < sorted.size(); ++k) fits = fits && sorted[k] == static_cast<std::int64_t>(k);
    if (!fits)
      return make_error("attribute 'perm' is {}, no permutation of the {} dimensions of X {}", to_string(perm),
                        call.rank(0), to_string(call.shape(0)));
    return Types{{call.dtype(0), permuted(call.shape(0), perm)}};
  }

  static Movement movement(const Call& call) {
    const std::vector<std::int64_t> perm = permutation(call);
    const Shape shape = permuted(call.shape(0), perm);
    return {shape, gather(shape, permuted(strides_of(call.shape(0)), perm), 0), {}, {}};
  }

  static Sample sample(SampleContext& c) {
    const Shape shape = c.shape_or_empty(0, 5, 7);
    Sample s = c.make(kName, {c.elements(shape)});
    Shape perm(shape.size());
    std::iota(perm.begin(), perm.end(), std::int64_t{0});
    for (std::size_t k = perm.size(); k-- > 1;)
      std::swap(perm[k], perm[static_cast<std::size_t>(c.rng().integer(0, static_cast<std::int64_t>(k)))]);
    if (!perm.empty() && c.rng().chance(0.8)) s.node.attributes["perm"] = perm;
    return s;
  }

  static std::vector<Sample> refused() {
    const Tensor x = Tensor::zeros(DType::f32, {2, 3});
    return {refused_sample(kName, {x}, {{"perm", Shape{0}}}, "perm"),
            refused_sample(kName, {x}, {{"perm", Shape{0, 0}}}, "perm"),
            refused_sample(kName, {x}, {{"perm", Shape{1, 2}}}, "perm"),
            refused_sample(kName, {x}, {{"perm", Shape{-1, 0}}}, "perm"),
            refused_sample(kName, {x}, {{"perm", std::int64_t{0}}}, "perm")};
  }

 private:
  static std::vector<std::int64_t> permutation(const Call& call) {
    if (call.has_attribute("perm")) return call.integers("perm");
    std::vector<std::int64_t> reversed(call.shape(0).size());
    std::iota(reversed.rbegin(), reversed.rend(), std::int64_t{0});
    return reversed;
  }
  static Shape permuted(const Shape& shape, const std::vector<std::int64_t>& perm) {
    Shape result;
    for (const std::int64_t axis : perm) result.push_back(shape[static_cast<std::size_t>(axis)]);
    return result;
  }
};

}  // namespace

const MetaOperator& transpose() {
  static const MetaOperator op = describe<Transpose>();
  return op;
}

}  // namespace opdiff::operators
