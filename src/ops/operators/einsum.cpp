#include <algorithm>
#include <numeric>
#include <sstream>

#include "ops/contraction.h"
#include "ops/op.h"

namespace opdiff::operators {
namespace {

using Indices = std::vector<int>;

Expected<Subscripts> subscripts(const Call& call) {
  std::vector<Shape> shapes;
  for (int k = 0; k < call.input_count(); ++k) shapes.push_back(call.shape(k));
  return read_subscripts(call.text("equation", ""), shapes);
}

// What is multiplied to make a tensor: the axes and shape of each factor, and those of the tensor itself.
struct Problem {
  std::vector<Indices> axes;
  std::vector<Shape> shapes;
  std::vector<const Tensor*> tensors;  // where they are known
  Indices target_axes;
  Shape target_shape;
  Shape extents;

  void add(const Indices& factor_axes, const Shape& shape, const Tensor* tensor) {
    axes.push_back(factor_axes);
    shapes.push_back(shape);
    tensors.push_back(tensor);
  }
  Indexing factor(std::size_t f) const { return indexing_of(axes[f], shapes[f]); }
  Indexing target() const { return indexing_of(target_axes, target_shape); }
};

Problem forward_problem(const Call& call) {
  const Subscripts s = *subscripts(call);
  Problem p;
  for (int k = 0; k < call.input_count(); ++k)
    p.add(s.operands[static_cast<std::size_t>(k)], call.shape(k), call.tensor(k));
  p.target_axes = s.output;
  p.target_shape = s.output_shape();
  p.extents = s.extents;
  return p;
}

// The gradient of operand `which`: the cotangent times the other operands, summed over what the operand does not have.
Problem gradient_problem(const GradientCall& gradient, int which) {
  const Call& call = gradient.forward();
  const Subscripts s = *subscripts(call);
  Problem p;
  p.add(s.output, s.output_shape(), gradient.cotangent(0));
  for (int k = 0; k < call.input_count(); ++k)
    if (k != which) p.add(s.operands[static_cast<std::size_t>(k)], call.shape(k), call.tensor(k));
  p.target_axes = s.operands[static_cast<std::size_t>(which)];
  p.target_shape = call.shape(which);
  p.extents = s.extents;
  return p;
}

template <class T>
void solve(const Problem& p, const std::vector<std::span<const typename Frame<T>::Exact>>& values, int formula,
           std::span<T> out) {
  std::vector<Factor<T>> factors;
  for (std::size_t f = 0; f < values.size(); ++f) factors.push_back({p.factor(f), values[f], {}});
  const Factor<T> result =
      contract(std::move(factors), p.target().indices, p.extents, static_cast<ContractionOrder>(formula));
  store(result, p.target_axes, p.target_shape, p.extents, out);
}

// Elements that share a rounded intermediate result err together. Each product of two factors, where there are more,
// and each factor that is summed alone may be one: an axis tells apart groups if all of them depend on it.
std::vector<int> independent_axes(const Problem& p) {
  const Indexing target = p.target();
  std::vector<Indices> shared;
  const std::size_t factors = p.axes.size();
  for (std::size_t f = 0; f < factors; ++f) {
    const Indices own = p.factor(f).indices;
    const auto is_alone = [&](int index) {
      if (target.has(index)) return false;
      for (std::size_t g = 0; g < factors; ++g)
        if (g != f && p.factor(g).has(index)) return false;
      return true;
    };
    if (factors > 1 && std::any_of(own.begin(), own.end(), is_alone)) shared.push_back(own);
    for (std::size_t g = f + 1; g < factors && factors > 2; ++g) {
      Indices both = own;
      const Indices other = p.factor(g).indices;
      both.insert(both.end(), other.begin(), other.end());
      shared.push_back(std::move(both));
    }
  }
  std::vector<int> result;
  for (std::size_t d = 0; d < p.target_axes.size(); ++d)
    if (std::all_of(shared.begin(), shared.end(), [&](const Indices& indices) {
          return std::find(indices.begin(), indices.end(), p.target_axes[d]) != indices.end();
        }))
      result.push_back(static_cast<int>(d));
  return result;
}

// The products of one element of the target; of three and more factors all but the last are multiplied beforehand.
Reduction terms(const Problem& p, std::int64_t element) {
  const Shape at = unravel(element, p.target_shape);
  Shape start(p.extents.size(), 0);
  for (std::size_t d = 0; d < at.size(); ++d) {
    std::int64_t& index = start[static_cast<std::size_t>(p.target_axes[d])];
    if (p.target_shape[d] == 1) continue;
    for (std::size_t other = 0; other < d; ++other)
      if (p.target_axes[other] == p.target_axes[d] && at[other] != at[d]) return {{1}, {0}, {}};  // beside a diagonal
    index = at[d];
  }
  const Indexing target = p.target();
  Reduction r;
  Indices summed;
  for (std::size_t f = 0; f < p.axes.size(); ++f)
    for (const int index : p.factor(f).indices)
      if (!target.has(index) && std::find(summed.begin(), summed.end(), index) == summed.end()) summed.push_back(index);
  for (const int index : summed) r.extents.push_back(p.extents[static_cast<std::size_t>(index)]);
  for (std::size_t f = 0; f < p.axes.size(); ++f) {
    const Indexing factor = p.factor(f);
    std::int64_t first = 0;
    for (std::size_t i = 0; i < factor.indices.size(); ++i)
      first += start[static_cast<std::size_t>(factor.indices[i])] * factor.strides[i];
    const auto steps = places(factor, summed, p.extents);
    if (f == 0) r.a.assign(steps.size(), 1);
    if (f > 0 && f + 1 == p.axes.size()) r.b.assign(steps.size(), 1);
    std::vector<double>& side = r.b.empty() ? r.a : r.b;
    for (std::size_t i = 0; i < steps.size(); ++i) side[i] *= p.tensors[f]->at(first + steps[i]);
  }
  return r;
}

// An equation, drawn letter by letter; '.' alone is the ellipsis.
struct Draft {
  std::vector<std::string> terms;
  std::string result;
  bool is_explicit = false;

  static Draft usual(Rng& rng) {
    std::vector<std::string> equations;
    std::istringstream list(
        "ij,jk->ik ij,kj->ik nd,ed->ne bij,bjk->bik bhqd,bhkd->bhqk bhqk,bhkd->bhqd .ij,.jk->.ik .d,dk i,i-> ij,ij "
        "i,j->ij i,ij->j ii ii->i ij->ji ijk->ki ij-> bd,de,be->b ij,jk,kl->il ik,jkl,il->ij");
    for (std::string equation; list >> equation;) equations.push_back(equation);
    const std::string equation = rng.pick(equations);
    Draft draft;
    const std::size_t arrow = equation.find("->");
    draft.is_explicit = arrow != std::string::npos;
    if (draft.is_explicit) draft.result = equation.substr(arrow + 2);
    std::istringstream left(equation.substr(0, arrow));
    for (std::string term; std::getline(left, term, ',');) draft.terms.push_back(term);
    return draft;
  }

  static Draft random(Rng& rng) {
    const auto insert = [&](std::string& term, char c) {
      term.insert(static_cast<std::size_t>(rng.integer(0, std::ssize(term))), 1, c);
    };
    Draft draft;
    const std::int64_t operands = rng.chance(0.2) ? 1 : rng.chance(0.75) ? 2 : 3;
    std::string letters;
    for (std::int64_t n = rng.integer(operands == 1 ? 1 : 2, 5); std::ssize(letters) < n;)
      if (const char c = rng.pick(std::string("ABIJKZabcijkxyz")); letters.find(c) == std::string::npos) letters += c;
    const bool ellipsis = rng.chance(0.25);
    std::string used;
    for (std::int64_t k = 0; k < operands; ++k) {
      std::string term;
      for (const char c : letters)
        if (rng.chance(0.55)) insert(term, c);
      if (term.empty() && (operands == 1 || rng.chance(0.9))) term = rng.pick(letters);  // a scalar now and then
      if (!term.empty() && term.size() < 4 && rng.chance(0.12)) insert(term, rng.pick(term));
      used += term;
      if (ellipsis && (k == 0 || rng.chance(0.8))) insert(term, '.');
      draft.terms.push_back(term);
    }
    draft.is_explicit = rng.chance(0.75);
    if (!draft.is_explicit) return draft;
    for (const char c : letters)
      if (used.find(c) != std::string::npos && rng.chance(0.55)) insert(draft.result, c);
    if (ellipsis) insert(draft.result, '.');
    return draft;
  }

  std::string equation(Rng& rng) const {
    const bool spaces = rng.chance(0.2);
    std::string text;
    const auto put = [&](std::string_view piece) {
      if (spaces && rng.chance(0.5)) text += ' ';
      text += piece;
    };
    const auto put_term = [&](const std::string& term) {
      for (const char& c : term) put(c == '.' ? "..." : std::string_view(&c, 1));
    };
    for (std::size_t k = 0; k < terms.size(); ++k) {
      if (k > 0) put(",");
      put_term(terms[k]);
    }
    if (!is_explicit) return text;
    put("->");
    put_term(result);
    return text;
  }
};

struct Einsum {
  static constexpr std::string_view kName = "Einsum";
  static constexpr std::string_view kDocumentation =
      R"(Y[output] = sum over all other indices of the product of the inputs, by an equation such as "bij,bjk->bik"

Each term of the equation names the axes of one input by letters; a letter that is twice in a term runs along the diagonal. Without "->" the
result has the letters that stand there once, in the order of their codes (A to Z, then a to z), behind the axes of the ellipsis. "..." stands
for the same number of axes wherever it is, of any number. An axis of one element is repeated along an index that is longer elsewhere. Spaces
do not count. Integers wrap around; an empty sum is 0.

Three and more inputs are multiplied pair by pair, in any order, each result rounded to the working format; an index that only one of a
pair has is summed before. One long sum over all indices (numpy's) is as right. Frameworks differ in that order. numpy and torch let the
ellipsis stand for fewer axes in some terms, and torch lets the result leave it out: ONNX does not. ONNX lists bfloat16 from opset 28 on;
exporters write it before, and it is taken here from opset 12 on.)";
  static constexpr std::string_view kGradientDocumentation =
      "dX[k] = the sum of the cotangent times all other inputs over the indices that X[k] does not have: an Einsum, "
      "too. "
      "Along an index that nobody else has it is repeated, beside a diagonal it is 0; an axis that was repeated is "
      "added "
      "up.";
  static constexpr Arity kInputs{1, -1};
  static constexpr TypeSet kTypes = kNumericTypes;
  static constexpr bool kIntegers = true;

  static std::vector<AttributeSpec> attributes() {
    return {{"equation", AttributeKind::text, "the terms of the inputs, and of the result behind \"->\"; required"}};
  }
  static std::vector<std::string_view> formulas() { return {kContractionOrders.begin(), kContractionOrders.end()}; }
  static std::vector<std::string_view> gradient_formulas() { return formulas(); }
  // Any number of inputs; 32 is the most that numpy takes.
  static std::vector<int> product_inputs() {
    std::vector<int> inputs(32);
    std::iota(inputs.begin(), inputs.end(), 0);
    return inputs;
  }

  static Expected<Types> infer(const Call& call) {
    if (call.opset() < 12) return make_error("the operator exists from opset 12 on (opset {})", call.opset());
    if (!call.has_attribute("equation")) return make_error("attribute 'equation' is missing");
    for (int k = 1; k < call.input_count(); ++k) {
      if (!call.has(k)) return make_error("input {} is missing", k);
      if (call.dtype(k) != call.dtype(0))
        return make_error("input {} has type {}, input 0 has {}", k, dtype_name(call.dtype(k)),
                          dtype_name(call.dtype(0)));
    }
    OPDIFF_TRY(const Subscripts s, subscripts(call));
    return Types{{call.dtype(0), s.output_shape()}};
  }

  template <class T>
  static void forward(Frame<T>& frame) {
    const Problem p = forward_problem(frame.call());
    std::vector<std::span<const typename Frame<T>::Exact>> values;
    for (int k = 0; k < frame.call().input_count(); ++k) values.push_back(frame.input(k));
    solve<T>(p, values, frame.formula(), frame.output(0, p.target_shape));
  }

  template <class T>
  static void gradient(GradientFrame<T>& frame) {
    for (int which = 0; which < frame.call().input_count(); ++which) {
      if (!frame.wants(which)) continue;
      const Problem p = gradient_problem(frame.gradient_call(), which);
      std::vector<std::span<const typename Frame<T>::Exact>> values{frame.cotangent()};
      for (int k = 0; k < frame.call().input_count(); ++k)
        if (k != which) values.push_back(frame.input(k));
      solve<T>(p, values, frame.formula(), frame.gradient(which));
    }
  }

  static std::vector<int> group_axes(const Call& call, int) { return independent_axes(forward_problem(call)); }
  static std::vector<int> gradient_group_axes(const GradientCall& gradient, int which) {
    return independent_axes(gradient_problem(gradient, which));
  }
  static Reduction reduction(const Call& call, int, std::int64_t index) { return terms(forward_problem(call), index); }
  static Reduction gradient_reduction(const GradientCall& gradient, int which, std::int64_t index) {
    return terms(gradient_problem(gradient, which), index);
  }

  static Sample sample(SampleContext& c) {
    constexpr std::int64_t kProducts = 60000;  // every scalar and every formula is tried on them; no axis is empty
    Rng& rng = c.rng();
    const Draft draft = rng.chance(0.35) ? Draft::usual(rng) : Draft::random(rng);
    const std::string ellipsis = std::string("01").substr(0, static_cast<std::size_t>(rng.integer(0, 2)));
    std::vector<std::string> terms = draft.terms;
    std::string indices;
    for (std::string& term : terms) {
      if (const std::size_t dot = term.find('.'); dot != std::string::npos) term.replace(dot, 1, ellipsis);
      for (const char index : term)
        if (indices.find(index) == std::string::npos) indices += index;
    }
    std::map<char, std::int64_t> extents;
    for (const char index : indices) extents[index] = c.extent(1, indices.size() < 3 ? 40 : 12);
    if (!indices.empty() && rng.chance(0.08)) extents[rng.pick(indices)] = rng.integer(1000, 20000);
    const auto size_of = [&](const std::string& term) {
      std::int64_t n = 1;
      for (const char index : term) n *= extents[index];
      return n;
    };
    const auto is_too_large = [&](const std::string& term) { return size_of(term) > kProducts; };  // a long diagonal
    const auto goes_first = [](const auto& extent) {  // a long index stays long while another can go
      return std::pair(extent.second > 1 && extent.second < 1000, extent.second);
    };
    while (is_too_large(indices) || std::any_of(terms.begin(), terms.end(), is_too_large)) {
      const auto largest = std::max_element(
          extents.begin(), extents.end(), [&](const auto& a, const auto& b) { return goes_first(a) < goes_first(b); });
      largest->second = (largest->second + 1) / 2;
    }
    std::vector<std::optional<Tensor>> inputs;
    for (const std::string& term : terms) {
      std::map<char, std::int64_t> own = extents;
      for (auto& [index, extent] : own)
        if (terms.size() > 1 && rng.chance(0.08)) extent = 1;  // repeated along a longer index
      Shape shape;
      for (const char index : term) shape.push_back(own[index]);
      const bool plain = !is_float(c.dtype()) || inputs.empty() || rng.chance(0.5);
      inputs.emplace_back(plain ? c.tensor(shape) : c.weights(shape, shape.empty() ? 1 : shape.back()));
    }
    Sample s = c.make(kName, std::move(inputs));
    s.opset = std::max(s.opset, 12);
    s.node.attributes["equation"] = draft.equation(rng);
    for (std::size_t k = 1; k < s.initialiser.size(); ++k) s.initialiser[k] = rng.chance(0.3);
    return s;
  }

  static std::vector<Sample> refused() {
    const auto zeros = [](Shape shape, DType dtype = DType::f32) { return Tensor::zeros(dtype, std::move(shape)); };
    const auto refuse = [&](std::string equation, std::vector<Shape> shapes, std::string why, int opset = 17) {
      std::vector<std::optional<Tensor>> inputs;
      for (Shape& shape : shapes) inputs.emplace_back(zeros(std::move(shape)));
      return refused_sample(kName, std::move(inputs), {{"equation", std::move(equation)}}, std::move(why), opset);
    };
    return {refuse("ij,jk->ik", {{2, 3}, {4, 5}}, "'ij,jk->ik': index 'j' runs to 4"),
            refuse("ij->ik", {{2, 3}}, "'k' of the result is in no operand"),
            refuse("ij->ii", {{2, 3}}, "twice in the result"),
            refuse("ij,jk->ik", {{2, 3}}, "2 terms, 1 operands"),
            refuse("ij->ji", {{2, 3}, {3, 2}}, "1 terms, 2 operands"),
            refuse("ij->ji", {{2, 3, 4}}, "2 indices"),
            refuse("ii->i", {{2, 3}}, "repeated"),
            refuse("ii->i", {{1, 3}}, "repeated"),
            refuse("i1->i", {{2, 3}}, "'1' is neither"),
            refuse("i..->i", {{2, 3}}, "'.' is neither"),
            refuse("i-j", {{2, 3}}, "'-' is neither"),
            refuse("ij->i->j", {{2, 3}}, "'-' is neither"),
            refuse("...i...->i", {{2, 3}}, "two ellipses"),
            refuse("...i,...i->...i", {{2, 3}, {3}}, "ellipsis stands for 0"),
            refuse("...i->i", {{2, 3}}, "leaves out the ellipsis"),
            refuse("...ijk->...", {{2, 3}}, "3 indices"),
            refuse("...i,...i->...", {{2, 3}, {4, 3}}, "axis 0 of the ellipsis"),
            refuse("ij->ji", {{2, 3}}, "opset 12", 11),
            refused_sample(kName, {zeros({2})}, {}, "equation"),
            refused_sample(kName, {zeros({2})}, {{"equation", std::int64_t{1}}}, "equation"),
            refused_sample(kName, {zeros({2}), zeros({2}, DType::f64)}, {{"equation", std::string("i,i->")}}, "type"),
            refused_sample(kName, {zeros({2}, DType::boolean)}, {{"equation", std::string("i->")}}, "type"),
            refused_sample(kName, {}, {{"equation", std::string("->")}}, "inputs")};
  }
};

}  // namespace

const MetaOperator& einsum() {
  static const MetaOperator op = describe<Einsum>();
  return op;
}

}  // namespace opdiff::operators
