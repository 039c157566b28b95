#include <cmath>

#include "forms/builder.h"

namespace opdiff::forms {
namespace {

std::string attention(SideBuilder& side, const std::string& q, const std::string& k, const std::string& v,
                      const std::string& scale) {
  std::string scores = side.node("MatMul", {q, side.transpose(k, {0, 2, 1})});
  if (!scale.empty()) scores = side.node("Mul", {scores, scale});
  return side.node("MatMul", {side.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}}), v});
}

void build(FormBuilder& form) {
  const std::int64_t b = form["b"], t = form["t"], e = form["e"], d = form["d"];
  const std::string x = form.input("x", {b, t, e});
  const std::string of_q = form.weight("query_weights", {e, d}, e), of_k = form.weight("key_weights", {e, d}, e),
                    of_v = form.weight("value_weights", {e, d}, e);
  const double scale = 1 / std::sqrt(static_cast<double>(d));

  const auto side_of = [&](SideBuilder& side, const std::string& query_weights, const std::string& factor) {
    const std::string q = side.node("MatMul", {x, query_weights}), k = side.node("MatMul", {x, of_k}),
                      v = side.node("MatMul", {x, of_v});
    side.output(attention(side, q, k, v, factor));
  };
  SideBuilder chain = form.side("scores scaled");
  side_of(chain, of_q, chain.number(scale));

  SideBuilder folded = form.side("query weights scaled");
  std::vector<double> scaled = form.tensor(of_q).to_doubles();
  for (double& weight : scaled) weight *= scale;
  side_of(folded, folded.folded("folded_query_weights", {e, d}, scaled), "");
}

}  // namespace

const Form& attention_scale_in_weights() {
  static const Form form = {
      .name = "attention-scale-in-weights",
      .kind = FormKind::fusion,
      .title = "self-attention with the scale folded into the query's weights",
      .mathematics =
          "softmax((x Wq) (x Wk)^T / sqrt(D)) (x Wv): the scale goes into Wq beforehand, where it costs nothing. The "
          "folded weights are rounded once more.",
      .parameters = {{"b", "batch", 1, 2, 2},
                     {"t", "length", 1, 6, 128},
                     {"e", "extent of x", 1, 8, 128},
                     {"d", "extent of the head", 1, 8, 64}},
      .conditions = {},
      .regions = {{"several positions", {{"t", 5}}}, {"one position", {{"t", 1}}}, {"head of one", {{"d", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
