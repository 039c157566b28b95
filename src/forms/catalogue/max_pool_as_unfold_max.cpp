#include <limits>
#include <numeric>

#include "forms/pooling.h"

namespace opdiff::forms {
namespace {

// x whose windows hold no two equal elements: each position of a plane has, by its remainders, one of reach^2 numbers.
Tensor without_ties(FormBuilder& form, const WindowGeometry& g) {
  const std::int64_t reach = g.dilation * (g.kernel - 1) + 1;
  std::vector<double> numbers(static_cast<std::size_t>(reach * reach)), values;
  std::iota(numbers.begin(), numbers.end(), -static_cast<double>(reach * reach / 2));
  for (std::int64_t plane = 0; plane < g.n * g.c; ++plane) {
    for (std::size_t k = numbers.size(); k-- > 1;)
      std::swap(numbers[k], numbers[static_cast<std::size_t>(form.rng().integer(0, static_cast<std::int64_t>(k)))]);
    for (std::int64_t i = 0; i < g.h; ++i)
      for (std::int64_t j = 0; j < g.w; ++j)
        values.push_back(numbers[static_cast<std::size_t>(i % reach * reach + j % reach)] / 8);
  }
  return Tensor::from_doubles(form.dtype(), {g.n, g.c, g.h, g.w}, values);
}

// Whether along this axis each window reads an element of the input.
bool windows_read(const Parameters& p, std::string_view axis) {
  const std::int64_t extent = p.find(axis)->second, dilation = p.at("dilation"),
                     reach = dilation * (p.at("kernel") - 1);
  for (std::int64_t start = -p.at("pad"); start + reach < extent + p.at("pad"); start += p.at("stride")) {
    bool reads = false;
    for (std::int64_t at = start; at <= start + reach; at += dilation) reads = reads || (at >= 0 && at < extent);
    if (!reads) return false;
  }
  return true;
}

bool every_window_reads(const Parameters& p) { return windows_read(p, "h") && windows_read(p, "w"); }

void build(FormBuilder& form) {
  const WindowGeometry g(form);
  const std::string x = form.input("x", without_ties(form, g));
  SideBuilder pool = form.side("MaxPool");
  auto attributes = g.pool_attributes();
  attributes["dilations"] = std::vector<std::int64_t>{g.dilation, g.dilation};
  pool.output(pool.node("MaxPool", {x}, attributes));

  SideBuilder largest = form.side("pad + unfold + ReduceMax");
  const std::string least = g.pad == 0 ? "" : largest.number(-std::numeric_limits<double>::infinity());
  const std::string y = largest.reduce("ReduceMax", unfold(largest, x, g, 1, least), {2}, false);
  largest.output(largest.reshape(y, {g.n, g.c, g.out_h(), g.out_w()}));
}

std::vector<ParameterSpec> parameters() {
  std::vector<ParameterSpec> result = pool_parameters();
  result.push_back({"dilation", "dilation", 1, 2, 1});
  return result;
}

}  // namespace

const Form& max_pool_as_unfold_max() {
  static const Form form = {
      .name = "max-pool-as-unfold-max",
      .title = "MaxPool = pad + unfold + ReduceMax",
      .mathematics =
          "The elements of each window side by side, padded by negative infinity, and the largest of them. Windows "
          "have no two equal elements here: at ties the gradient is a convention.",
      .parameters = parameters(),
      .conditions = {kPadsBelowKernel, kWindowFits, {"windows that each read an element", &every_window_reads}},
      .regions = {{"no padding", {{"pad", 0}, {"kernel", 2}}},
                  {"padding", {{"pad", 1}, {"kernel", 3}}},
                  {"dilation 2", {{"dilation", 2}, {"kernel", 2}}},
                  {"windows apart", {{"kernel", 2}, {"stride", 3}}}},
      .build = &build,
      .no_gradient = {},
  };
  return form;
}

}  // namespace opdiff::forms
