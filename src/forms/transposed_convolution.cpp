#include "forms/transposed_convolution.h"

namespace opdiff {
namespace {

std::int64_t added(const Parameters& p) { return p.at("dilation") * (p.at("kernel") - 1); }

bool pads_are_small(const Parameters& p) { return p.at("pad") <= added(p); }

bool output_has_elements(const Parameters& p) {
  const std::int64_t shortest = std::min(p.at("h"), p.at("w"));
  return (shortest - 1) * p.at("stride") - 2 * p.at("pad") + added(p) + p.at("output_padding") + 1 > 0;
}

bool output_padding_is_small(const Parameters& p) { return p.at("output_padding") < p.at("stride"); }

}  // namespace

DrawnTransposedConvolution::DrawnTransposedConvolution(FormBuilder& form)
    : WindowGeometry(form),
      o(form["o"]),
      group(form["group"]),
      output_padding(form["output_padding"]),
      x(form.input("x", {n, group * c, h, w})),
      weights(form.weight("weights", {group * c, o, kernel, kernel}, c * kernel * kernel)) {}

std::string DrawnTransposedConvolution::node(SideBuilder& side) const {
  auto all = attributes(group);
  all["output_padding"] = std::vector<std::int64_t>{output_padding, output_padding};
  return side.node("ConvTranspose", {x, weights}, all);
}

std::vector<ParameterSpec> transposed_convolution_parameters() {
  std::vector<ParameterSpec> result = convolution_parameters({.c = 64, .o = 32, .extent = 28});
  result.push_back({"group", "groups; c and o are channels of one group", 1, 2, 1});
  result.push_back({"output_padding", "added at the end", 0, 1, 0});
  return result;
}

std::vector<Condition> transposed_convolution_conditions() {
  return {{"pads of at most dilation (kernel - 1)", &pads_are_small},
          {"an output that has elements", &output_has_elements},
          {"an output_padding below the stride", &output_padding_is_small}};
}

std::vector<FormRegion> transposed_convolution_regions() {
  return {{"stride 2", {{"stride", 2}, {"group", 1}, {"output_padding", 0}}},
          {"stride 1", {{"stride", 1}}},
          {"output padding", {{"stride", 2}, {"output_padding", 1}}},
          {"dilation 2", {{"dilation", 2}, {"kernel", 2}}},
          {"two groups", {{"group", 2}, {"stride", 3}}}};
}

}  // namespace opdiff
