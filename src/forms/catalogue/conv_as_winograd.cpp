#include <array>

#include "forms/convolution.h"

namespace opdiff::forms {
namespace {

using Planes = std::array<std::string, 4>;

// One axis of the input transform: B^T d.
Planes input_transform(SideBuilder& side, const Planes& d) {
  return {side.node("Sub", {d[0], d[2]}), side.node("Add", {d[1], d[2]}), side.node("Sub", {d[2], d[1]}),
          side.node("Sub", {d[1], d[3]})};
}

// One axis of the output transform: A^T m.
std::array<std::string, 2> output_transform(SideBuilder& side, const Planes& m) {
  return {side.sum({m[0], m[1], m[2]}), side.node("Sub", {side.node("Sub", {m[1], m[2]}), m[3]})};
}

constexpr double kG[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};

// G w G^T of each kernel, [16, o, c].
std::vector<double> transformed(const Tensor& weights) {
  const std::vector<double> w = weights.to_doubles();
  const std::size_t pairs = w.size() / 9;
  std::vector<double> u(16 * pairs);
  for (std::size_t pair = 0; pair < pairs; ++pair)
    for (std::size_t a = 0; a < 4; ++a)
      for (std::size_t b = 0; b < 4; ++b)
        for (std::size_t i = 0; i < 3; ++i)
          for (std::size_t j = 0; j < 3; ++j)
            u[(4 * a + b) * pairs + pair] += kG[a][i] * kG[b][j] * w[9 * pair + 3 * i + j];
  return u;
}

// The same as nodes.
std::string transform(SideBuilder& side, const DrawnConvolution& c, DType dtype) {
  std::vector<double> g;
  for (const auto& row : kG) g.insert(g.end(), std::begin(row), std::end(row));
  const std::string left = side.constant("g", Tensor::from_doubles(dtype, {4, 3}, g));
  const std::string right = side.transpose(left, {1, 0});
  const std::string u = side.node("MatMul", {side.node("MatMul", {left, c.weights}), right});  // [o, c, 4, 4]
  return side.transpose(side.reshape(u, {c.o, c.c, 16}), {2, 0, 1});
}

// The convolution of transformed kernels `u` [16, o, c].
void winograd(SideBuilder& side, const DrawnConvolution& c, const std::string& u) {
  const std::int64_t rows = (c.out_h() + 1) / 2, columns = (c.out_w() + 1) / 2;  // of tiles
  const std::string x =
      side.pad(c.x, {0, 0, c.pad, c.pad, 0, 0, 2 * rows + 2 - c.h - c.pad, 2 * columns + 2 - c.w - c.pad});
  // Element (i, j) of every tile: rows 2 r + i and columns 2 s + j, without steps, which some backends do not have.
  const std::string pairs = side.reshape(x, {c.n, c.c, rows + 1, 2, columns + 1, 2});
  std::array<Planes, 4> d;
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::string lines = side.slice(side.slice(pairs, 3, i % 2, i % 2 + 1), 2, i / 2, i / 2 + rows);
    for (std::int64_t j = 0; j < 4; ++j) {
      const std::string plane = side.slice(side.slice(lines, 5, j % 2, j % 2 + 1), 4, j / 2, j / 2 + columns);
      d[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] = side.reshape(plane, {c.n, c.c, rows, columns});
    }
  }
  for (std::size_t j = 0; j < 4; ++j) {
    const Planes column = input_transform(side, {d[0][j], d[1][j], d[2][j], d[3][j]});
    for (std::size_t i = 0; i < 4; ++i) d[i][j] = column[i];
  }
  std::vector<std::string> v;
  for (const Planes& row : d)
    for (const std::string& plane : input_transform(side, row))
      v.push_back(side.reshape(plane, {1, c.n, c.c, rows * columns}));

  const std::string m =  // [16, n, o, tiles]
      side.node("MatMul", {side.reshape(u, {16, 1, c.o, c.c}), side.concat(v, 0)});
  std::array<Planes, 2> halves;  // rows transformed
  for (std::size_t j = 0; j < 4; ++j) {
    Planes column;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto at = static_cast<std::int64_t>(4 * i + j);
      column[i] = side.reshape(side.slice(m, 0, at, at + 1), {c.n, c.o, rows, 1, columns, 1});
    }
    const auto transformed_column = output_transform(side, column);
    for (std::size_t i = 0; i < 2; ++i) halves[i][j] = transformed_column[i];
  }
  std::vector<std::string> lines;
  for (const Planes& half : halves) {
    const auto pair = output_transform(side, half);
    lines.push_back(side.concat({pair[0], pair[1]}, 5));
  }
  std::string y = side.reshape(side.concat(lines, 3), {c.n, c.o, 2 * rows, 2 * columns});
  if (2 * rows > c.out_h()) y = side.slice(y, 2, 0, c.out_h());
  if (2 * columns > c.out_w()) y = side.slice(y, 3, 0, c.out_w());
  side.output(y);
}

void build(FormBuilder& form) {
  const DrawnConvolution c(form);
  SideBuilder conv = form.side("Conv");
  conv.output(c.node(conv));

  SideBuilder beforehand = form.side("Winograd, kernels transformed beforehand");
  winograd(beforehand, c, beforehand.folded("u", {16, c.o, c.c}, transformed(form.tensor(c.weights))));

  SideBuilder whole = form.side("Winograd");
  winograd(whole, c, transform(whole, c, form.dtype()));
}

}  // namespace

const Form& conv_as_winograd() {
  static const Form form = {
      .name = "conv-as-winograd",
      .title = "Conv of a 3x3 kernel = Winograd's F(2x2, 3x3)",
      .mathematics =
          "Of each tile d of 4x4 inputs, y = A^T [(G w G^T) . (B^T d B)] A gives 2x2 outputs with 16 products a "
          "channel pair instead of 36 (Lavin and Gray, 2016). B^T = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1], A^T = [1 "
          "1 1 0; 0 1 -1 -1], G = [1 0 0; .5 .5 .5; .5 -.5 .5; 0 0 1]. The transforms are sums of slices; tiles "
          "overlap by two. cuDNN, oneDNN and others choose it by themselves; its error is larger than that of the "
          "direct sum.",
      .parameters = convolution_parameters({.c = 32, .o = 64, .extent = 28}),
      .conditions = {{"a kernel of 3x3", [](const Parameters& p) { return p.at("kernel") == 3; }},
                     {"strides of 1", [](const Parameters& p) { return p.at("stride") == 1; }},
                     {"dilations of 1", [](const Parameters& p) { return p.at("dilation") == 1; }},
                     kWindowFits},
      .regions = {{"whole tiles", {{"kernel", 3}, {"stride", 1}, {"dilation", 1}, {"h", 6}, {"w", 8}, {"pad", 1}}},
                  {"tiles cut off", {{"kernel", 3}, {"stride", 1}, {"dilation", 1}, {"h", 7}, {"w", 5}}},
                  {"no padding", {{"kernel", 3}, {"stride", 1}, {"dilation", 1}, {"pad", 0}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
