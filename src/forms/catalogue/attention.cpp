#include <cmath>

#include "forms/builder.h"

namespace opdiff::forms {
namespace {

const std::vector<std::int64_t> kSwapHeads = {0, 2, 1, 3};  // [B, T, H, D] -> [B, H, T, D]

struct Attention {
  std::string q, k, v;
  bool heads_inside;  // q, k, v are [B, T, H, D], as a projection leaves them

  std::string query(SideBuilder& side) const { return heads_inside ? side.transpose(q, kSwapHeads) : q; }
  // [B, H, D, T], in one step.
  std::string transposed_key(SideBuilder& side) const {
    return heads_inside ? side.transpose(k, {0, 2, 3, 1}) : side.transpose(k, {0, 1, 3, 2});
  }
  std::string weighted(SideBuilder& side, const std::string& scores) const {
    const std::string values = heads_inside ? side.transpose(v, kSwapHeads) : v;
    return side.node("MatMul", {side.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}}), values});
  }
};

void build(FormBuilder& form) {
  const std::int64_t b = form["b"], h = form["h"], t = form["t"], s = form["s"], d = form["d"];
  const bool inside = form["heads_inside"] == 1;
  const auto shape = [&](std::int64_t length) { return inside ? Shape{b, length, h, d} : Shape{b, h, length, d}; };
  const Attention a{form.input("q", shape(t)), form.input("k", shape(s)), form.input("v", shape(s)), inside};
  const double scale = 1 / std::sqrt(static_cast<double>(d));

  SideBuilder chain = form.side("scores scaled");
  const std::string scores = chain.node("MatMul", {a.query(chain), a.transposed_key(chain)});
  chain.output(a.weighted(chain, chain.node("Mul", {scores, chain.number(scale)})));

  SideBuilder query = form.side("query scaled");
  const std::string scaled = query.node("Mul", {a.query(query), query.number(scale)});
  query.output(a.weighted(query, query.node("MatMul", {scaled, a.transposed_key(query)})));
}

}  // namespace

const Form& attention() {
  static const Form form = {
      .name = "attention",
      .kind = FormKind::fusion,
      .title = "MatMul + scale + Softmax + MatMul: scaled-dot-product attention",
      .mathematics =
          "softmax(Q K^T / sqrt(D)) V of each head; the scale may go to the queries. Compilers make one kernel of the "
          "chain, which never holds the scores. torch.compile takes a key that goes from [B, T, H, D] to [B, H, D, T] "
          "in one step for one that was transposed twice (pytorch/pytorch#195320); where the length is the number of "
          "heads the shapes fit and the values are wrong.",
      .parameters = {{"b", "batch", 1, 2, 1},
                     {"h", "heads", 1, 4, 8},
                     {"t", "length of the queries", 1, 6, 128},
                     {"s", "length of the keys", 1, 6, 128},
                     {"d", "extent of a head", 1, 8, 64},
                     {"heads_inside", "1: q, k, v are [b, length, h, d]", 0, 1, 0}},
      .conditions = {},
      .regions = {{"heads outside", {{"heads_inside", 0}, {"t", 5}, {"s", 5}}},
                  {"heads inside", {{"heads_inside", 1}}},
                  {"key permuted in one step, as many heads as keys",
                   {{"heads_inside", 1}, {"h", 4}, {"t", 4}, {"s", 4}, {"d", 8}}},
                  {"one key", {{"s", 1}}},
                  {"one query", {{"t", 1}, {"s", 6}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
