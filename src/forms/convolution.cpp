#include "forms/convolution.h"

namespace opdiff {
namespace {

std::int64_t value_or(const Parameters& parameters, std::string_view name, std::int64_t fallback) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? fallback : found->second;
}

}  // namespace

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

bool window_fits(const Parameters& p) {
  const std::int64_t reach = value_or(p, "dilation", 1) * (p.at("kernel") - 1) + 1;
  return p.at("h") + 2 * value_or(p, "pad", 0) >= reach && p.at("w") + 2 * value_or(p, "pad", 0) >= reach;
}

std::vector<std::string> window_elements(SideBuilder& side, const std::string& x, const WindowGeometry& g) {
  const std::string padded = g.pad == 0 ? x : side.pad(x, {0, 0, g.pad, g.pad, 0, 0, g.pad, g.pad});
  std::vector<std::string> elements;
  for (std::int64_t i = 0; i < g.kernel; ++i) {
    const std::int64_t top = i * g.dilation;
    const std::string rows = side.slice(padded, 2, top, top + (g.out_h() - 1) * g.stride + 1, g.stride);
    for (std::int64_t j = 0; j < g.kernel; ++j) {
      const std::int64_t left = j * g.dilation;
      elements.push_back(side.slice(rows, 3, left, left + (g.out_w() - 1) * g.stride + 1, g.stride));
    }
  }
  return elements;
}

std::string unfold(SideBuilder& side, const std::string& x, const WindowGeometry& g) {
  std::vector<std::string> rows;
  for (const std::string& element : window_elements(side, x, g))
    rows.push_back(side.reshape(element, {g.n, g.c, 1, g.out_h() * g.out_w()}));
  return side.concat(rows, 2);
}

}  // namespace opdiff
