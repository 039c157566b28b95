#include "forms/convolution.h"

#include "forms/kink.h"

namespace opdiff {

std::int64_t value_or(const Parameters& parameters, std::string_view name, std::int64_t fallback) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? fallback : found->second;
}

WindowGeometry::WindowGeometry(const FormBuilder& form)
    : n(value_or(form.parameters(), "n", 1)),
      c(value_or(form.parameters(), "c", 1)),
      h(form["h"]),
      w(form["w"]),
      kernel(form["kernel"]),
      stride(value_or(form.parameters(), "stride", 1)),
      dilation(value_or(form.parameters(), "dilation", 1)),
      pad(value_or(form.parameters(), "pad", 0)) {}

std::map<std::string, Attribute> WindowGeometry::attributes(std::int64_t group) const {
  std::map<std::string, Attribute> result = pool_attributes();
  result["dilations"] = std::vector<std::int64_t>{dilation, dilation};
  result["group"] = group;
  return result;
}

std::map<std::string, Attribute> WindowGeometry::pool_attributes() const {
  return {{"kernel_shape", std::vector<std::int64_t>{kernel, kernel}},
          {"strides", std::vector<std::int64_t>{stride, stride}},
          {"pads", std::vector<std::int64_t>{pad, pad, pad, pad}}};
}

DrawnConvolution::DrawnConvolution(FormBuilder& form)
    : WindowGeometry(form),
      o(form["o"]),
      group(value_or(form.parameters(), "group", 1)),
      x(form.input("x", {n, group * c, h, w})),
      weights(form.weight("weights", {group * o, c, kernel, kernel}, c * kernel * kernel)) {}

std::string DrawnConvolution::node(SideBuilder& side, const std::string& bias, const std::string& other_weights) const {
  std::vector<std::string> inputs{x, other_weights.empty() ? weights : other_weights};
  if (!bias.empty()) inputs.push_back(bias);
  return side.node("Conv", std::move(inputs), attributes(group));
}

std::string DrawnConvolution::node_on_padded(SideBuilder& side, const std::string& padded_x) const {
  auto without_pads = attributes(group);
  without_pads.erase("pads");
  return side.node("Conv", {padded_x, weights}, without_pads);
}

Tensor DrawnConvolution::value(const FormBuilder& form) const {
  return approximately("Conv", {form.tensor(x), form.tensor(weights)}, attributes(group));
}

std::vector<ParameterSpec> convolution_parameters(const ConvolutionSize& timed) {
  return {{"n", "batch", 1, 3, timed.n},
          {"c", "input channels", 1, 5, timed.c},
          {"o", "output channels", 1, 5, timed.o},
          {"h", "height", 3, 9, timed.extent},
          {"w", "width", 3, 9, timed.extent},
          {"kernel", "kernel extent", 1, 3, timed.kernel},
          {"stride", "stride", 1, 3, 1},
          {"dilation", "dilation", 1, 2, 1},
          {"pad", "zeros on each side", 0, 2, timed.kernel / 2}};
}

std::vector<ParameterSpec> pool_parameters() {
  return {{"n", "batch", 1, 3, 1},
          {"c", "channels", 1, 5, 64},
          {"h", "height", 3, 9, 56},
          {"w", "width", 3, 9, 56},
          {"kernel", "window extent", 1, 3, 3},
          {"stride", "stride", 1, 3, 2},
          {"pad", "elements on each side", 0, 1, 1}};
}

bool window_fits(const Parameters& p) {
  const std::int64_t reach = value_or(p, "dilation", 1) * (p.at("kernel") - 1) + 1;
  return p.at("h") + 2 * value_or(p, "pad", 0) >= reach && p.at("w") + 2 * value_or(p, "pad", 0) >= reach;
}

std::string padded(SideBuilder& side, const std::string& x, const WindowGeometry& g, const std::string& padding) {
  return g.pad == 0 ? x : side.pad(x, {0, 0, g.pad, g.pad, 0, 0, g.pad, g.pad}, padding);
}

std::vector<std::string> window_elements(SideBuilder& side, const std::string& x, const WindowGeometry& g,
                                         const std::string& padding) {
  const std::string source = padded(side, x, g, padding);
  std::vector<std::string> elements;
  for (std::int64_t i = 0; i < g.kernel; ++i) {
    const std::int64_t top = i * g.dilation;
    const std::string rows = side.slice(source, 2, top, top + (g.out_h() - 1) * g.stride + 1, g.stride);
    for (std::int64_t j = 0; j < g.kernel; ++j) {
      const std::int64_t left = j * g.dilation;
      elements.push_back(side.slice(rows, 3, left, left + (g.out_w() - 1) * g.stride + 1, g.stride));
    }
  }
  return elements;
}

std::string unfold(SideBuilder& side, const std::string& x, const WindowGeometry& g, std::int64_t group,
                   const std::string& padding) {
  std::vector<std::string> rows;
  for (const std::string& element : window_elements(side, x, g, padding))
    rows.push_back(side.reshape(element, {g.n, group * g.c, 1, g.out_h() * g.out_w()}));
  return side.concat(rows, 2);
}

std::string spread(SideBuilder& side, const std::string& x, const Shape& shape, std::int64_t step) {
  if (step == 1) return x;
  const std::int64_t a = shape[0], b = shape[1], h = shape[2], w = shape[3], gap = step - 1;
  std::string y = side.reshape(x, {a, b, h, 1, w, 1});
  y = side.pad(y, {0, 0, 0, 0, 0, 0, 0, 0, 0, gap, 0, gap});
  y = side.reshape(y, {a, b, h * step, w * step});
  // Nothing after the last.
  return side.slice(side.slice(y, 2, 0, h * step - gap), 3, 0, w * step - gap);
}

}  // namespace opdiff
