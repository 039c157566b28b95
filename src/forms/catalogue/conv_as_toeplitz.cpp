#include "forms/convolution.h"

namespace opdiff::forms {
namespace {

constexpr std::int64_t kLargest = 1 << 23;

std::int64_t out_extent(const Parameters& p, std::string_view axis) {
  return (p.find(axis)->second + 2 * p.at("pad") - p.at("dilation") * (p.at("kernel") - 1) - 1) / p.at("stride") + 1;
}

bool matrix_is_small(const Parameters& p) {
  const double rows = static_cast<double>(p.at("c") * p.at("h") * p.at("w"));
  const double columns = static_cast<double>(p.at("o") * out_extent(p, "h") * out_extent(p, "w"));
  return rows * columns <= static_cast<double>(kLargest);
}

// [c h w, o out_h out_w]: in the column of y[o,i,j] the weights that its window's elements have.
Tensor toeplitz(const DrawnConvolution& c, const Tensor& w) {
  const std::int64_t rows = c.c * c.h * c.w, columns = c.o * c.out_h() * c.out_w();
  const std::vector<double> weights = w.to_doubles();
  std::vector<double> matrix(static_cast<std::size_t>(rows * columns));
  for (std::int64_t k = 0; k < static_cast<std::int64_t>(weights.size()); ++k) {
    const Shape at = unravel(k, w.shape());
    for (std::int64_t i = 0; i < c.out_h(); ++i)
      for (std::int64_t j = 0; j < c.out_w(); ++j) {
        const std::int64_t row = i * c.stride + at[2] * c.dilation - c.pad;
        const std::int64_t column = j * c.stride + at[3] * c.dilation - c.pad;
        if (row < 0 || row >= c.h || column < 0 || column >= c.w) continue;
        const std::int64_t source = (at[1] * c.h + row) * c.w + column;
        const std::int64_t target = (at[0] * c.out_h() + i) * c.out_w() + j;
        matrix[static_cast<std::size_t>(source * columns + target)] = weights[static_cast<std::size_t>(k)];
      }
  }
  return Tensor::from_doubles(w.dtype(), {rows, columns}, matrix);
}

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  SideBuilder conv = form.side("Conv");
  conv.output(c.node(conv));

  SideBuilder product = form.side("product with a Toeplitz matrix");
  const std::string matrix = product.constant("toeplitz", toeplitz(c, form.tensor(c.weights)));
  const std::string rows = product.reshape(c.x, {c.n, c.c * c.h * c.w});
  product.output(product.reshape(product.node("MatMul", {rows, matrix}), c.y_shape()));
}

}  // namespace

const Form& conv_as_toeplitz() {
  static const Form form = {
      .name = "conv-as-toeplitz",
      .title = "Conv = product with a dense Toeplitz matrix",
      .mathematics =
          "A convolution is linear in x: its matrix has, in the column of each output element, the weights of the "
          "input elements that its window reads, and zeros. It is dense here; most of the work is products with zero, "
          "which change nothing. The kernel is in the matrix as a constant, so only the gradient of x is compared.",
      .parameters = convolution_parameters({.c = 3, .o = 8, .extent = 12}),
      .conditions = {kWindowFits, {"a matrix of at most 2^23 elements", &matrix_is_small}},
      .regions = {{"stride 1", {{"stride", 1}, {"dilation", 1}}},
                  {"stride 2", {{"stride", 2}}},
                  {"dilation 2", {{"dilation", 2}}},
                  {"1x1", {{"kernel", 1}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
