#include "ops/pool.h"

namespace opdiff {
namespace {

// Taps k in [0, kernel) with 0 <= start + k * dilation < limit: the first one and how many.
struct Range {
  std::int64_t first, count;
};
Range taps_below(std::int64_t start, std::int64_t dilation, std::int64_t kernel, std::int64_t limit) {
  const std::int64_t first = start >= 0 ? 0 : std::min(kernel, (-start + dilation - 1) / dilation);
  const std::int64_t end = start >= limit ? 0 : std::min(kernel, (limit - 1 - start) / dilation + 1);
  return {first, std::max<std::int64_t>(end - first, 0)};
}

}  // namespace

bool Patch::contains(const std::int64_t (&position)[3]) const {
  for (int d = 0; d < 3; ++d) {
    const std::int64_t off = position[d] - first[d];
    if (off < 0 || off % step[d] != 0 || off / step[d] >= count[d]) return false;
  }
  return true;
}

Patch patch_at(const Window& w, std::int64_t out) {
  Patch patch;
  const std::size_t rank = w.input.size();
  std::int64_t scale = 1;
  for (std::size_t d = rank; d-- > 0;) {
    const std::int64_t start = out % w.output[d] * w.strides[d] - w.pads_begin[d];
    out /= w.output[d];
    const Range inside = taps_below(start, w.dilations[d], w.kernel[d], w.input[d]);
    const std::size_t axis = 3 - rank + d;
    patch.first[axis] = start + inside.first * w.dilations[d];
    patch.step[axis] = w.dilations[d];
    patch.count[axis] = inside.count;
    patch.stride[axis] = scale;
    // start >= -pads_begin: every tap below the end of the padding is in it.
    const std::int64_t end = w.input[d] + w.pads_end[d];
    patch.declared *= start >= end ? 0 : std::min(w.kernel[d], (end - 1 - start) / w.dilations[d] + 1);
    scale *= w.input[d];
  }
  return patch;
}

Patches::Patches(const Window& window) : start_{0} {
  for (std::int64_t o = 0; o < window.output_size(); ++o) {
    patch_at(window, o).visit([&](std::int64_t i) { positions_.push_back(i); });
    start_.push_back(positions_.size());
  }
}

Expected<Window> pool_window(const Call& call) {
  const Shape& x = call.shape(0);
  if (x.size() < 3 || x.size() > 5) return make_error("X has shape {}, expected 3 to 5 dimensions", to_string(x));
  if (!call.has_attribute("kernel_shape")) return make_error("attribute 'kernel_shape' is missing");
  const Shape kernel = call.integers("kernel_shape");
  OPDIFF_TRY(const Window window, make_window(call, Shape(x.begin() + 2, x.end()), kernel, true));
  if (!checked_element_count(kernel))
    return make_error("attribute 'kernel_shape' is {}, a window of more than 2^48 positions", to_string(kernel));
  return window;
}

Shape pool_shape(const Call& call, const Window& window) {
  Shape y{call.shape(0)[0], call.shape(0)[1]};
  y.insert(y.end(), window.output.begin(), window.output.end());
  return y;
}

std::vector<bool> windows_in_padding(const Call& call) {
  const Window window = *pool_window(call);
  const std::int64_t outputs = window.output_size(), planes = call.shape(0)[0] * call.shape(0)[1];
  std::vector<bool> plane(static_cast<std::size_t>(outputs)), all;
  bool any = false;
  for (std::int64_t o = 0; o < outputs; ++o) {
    plane[static_cast<std::size_t>(o)] = patch_at(window, o).size() == 0;
    any = any || plane[static_cast<std::size_t>(o)];
  }
  if (any)
    for (std::int64_t p = 0; p < planes; ++p) all.insert(all.end(), plane.begin(), plane.end());
  return all;
}

Sample pool_sample(SampleContext& c, std::string_view op, int dilations_since, bool counts_padding) {
  Rng& rng = c.rng();
  int opset = c.opset();
  if (c.dtype() == DType::bf16) opset = 22;  // bfloat16 entered the pools with opset 22, int8 and uint8 with 12
  if (!is_float(c.dtype())) opset = std::max(opset, 12);
  const bool dilated = opset >= dilations_since && rng.chance(0.25), ceil_mode = opset >= 10 && rng.chance(0.4);
  const bool is_long = rng.chance(0.06), auto_pad = !is_long && rng.chance(0.2);
  const bool padded = !auto_pad && rng.chance(0.6);
  const auto rank = static_cast<std::size_t>(rng.chance(0.6) ? 2 : rng.integer(1, 3));
  Shape x{c.extent(1, 3), rng.chance(0.3) ? c.extent(1, 20) : c.extent(1, 5)}, kernel, strides, dilations;
  Shape pads(2 * rank, 0);
  for (std::size_t d = 0; d < rank; ++d) {
    if (is_long) {  // one window over the whole plane, up to 20,000 elements
      kernel.push_back(rank == 1 ? rng.integer(1000, 20000) : rank == 2 ? rng.integer(20, 140) : rng.integer(8, 27));
      strides.push_back(1);
      dilations.push_back(1);
      x.push_back(kernel[d]);
      continue;
    }
    kernel.push_back(rng.chance(0.5) ? rng.integer(2, 3) : c.extent(1, 6));
    strides.push_back(rng.chance(0.5) ? rng.integer(1, 2) : c.extent(1, 6));
    dilations.push_back(dilated ? c.extent(1, 3) : 1);
    if (padded) {
      pads[d] = rng.integer(0, kernel[d] - 1);
      pads[rank + d] = rng.chance(0.5) ? pads[d] : rng.integer(0, kernel[d] - 1);
    }
    const std::int64_t reach = (kernel[d] - 1) * dilations[d] + 1;
    const std::int64_t least =
        auto_pad && rng.chance(0.3) ? 1 : std::max<std::int64_t>(reach - pads[d] - pads[rank + d], 1);
    x.push_back(least + c.extent(0, rank == 3 ? 6 : 14));
  }
  if (is_long) x[0] = x[1] = 1;
  Sample s = c.make(op, {Tensor()});
  s.opset = opset;
  const bool same = rng.chance(0.7);
  s.node.attributes["kernel_shape"] = kernel;
  if (rng.chance(0.85)) s.node.attributes["strides"] = strides;
  if (dilated) s.node.attributes["dilations"] = dilations;
  if (auto_pad)
    s.node.attributes["auto_pad"] = std::string(!same ? "VALID" : rng.chance(0.5) ? "SAME_UPPER" : "SAME_LOWER");
  if (padded) s.node.attributes["pads"] = pads;
  if (ceil_mode || (opset >= 10 && rng.chance(0.2))) s.node.attributes["ceil_mode"] = std::int64_t{ceil_mode};
  if (counts_padding && rng.chance(0.5)) s.node.attributes["count_include_pad"] = std::int64_t{rng.chance(0.8)};
  if (auto_pad && !same)  // nothing pads a VALID window: the input must hold it
    for (std::size_t d = 0; d < rank; ++d) x[d + 2] = std::max(x[d + 2], (kernel[d] - 1) * dilations[d] + 1);
  // At most 10^5 additions: binary128 is slow. Fewer planes first, then fewer windows.
  const auto additions = [&] {
    const std::vector<std::optional<TensorType>> types{TensorType{c.dtype(), x}};
    const Window window = *pool_window(Call(s.node, opset, types, {}));
    return x[0] * x[1] * window.output_size() * window.kernel_size();
  };
  while (additions() > 100000 && x[0] * x[1] > 1) (x[0] > 1 ? x[0] : x[1]) /= 2;
  if (additions() > 100000) s.node.attributes["strides"] = kernel;
  s.inputs[0] = c.tensor(x);
  const std::vector<const Tensor*> inputs = s.pointers();
  if (!windows_in_padding(Call(s.node, opset, inputs)).empty()) s.node.attributes.erase("dilations");
  return s;
}

std::vector<Sample> pool_refused(std::string_view op) {
  const Tensor x = Tensor::zeros(DType::f32, {1, 2, 5, 5});
  const Shape kernel{3, 3};
  const auto refuse = [&](std::map<std::string, Attribute> attributes, std::string why, int opset = 19) {
    attributes.emplace("kernel_shape", kernel);
    return refused_sample(op, {x}, std::move(attributes), std::move(why), opset);
  };
  return {refused_sample(op, {x}, {}, "kernel_shape"),
          refuse({{"kernel_shape", Shape{3}}}, "kernel_shape"),
          refuse({{"kernel_shape", Shape{3, 0}}}, "kernel_shape"),
          refuse({{"kernel_shape", Shape{6, 3}}}, "does not fit"),
          refuse({{"strides", Shape{0, 1}}}, "strides"),
          refuse({{"strides", Shape{1, 1, 1}}}, "strides"),
          refuse({{"pads", Shape{1, 1}}}, "pads"),
          refuse({{"pads", Shape{0, -1, 0, 0}}}, "pads"),
          refuse({{"auto_pad", std::string("SAME")}}, "auto_pad"),
          refuse({{"dilations", Shape{1, 0}}}, "dilations"),
          refuse({{"dilations", Shape{5, 5}}}, "does not fit"),
          refuse({{"dilations", Shape{1, 1}}}, "dilations", 9),
          refuse({{"ceil_mode", std::int64_t{1}}}, "ceil_mode", 9),
          refuse({{"ceil_mode", 1.0f}}, "ceil_mode"),
          refuse({{"kernel", kernel}}, "kernel"),
          refused_sample(op, {Tensor::zeros(DType::f32, {2, 5})}, {{"kernel_shape", Shape{}}}, "dimensions"),
          refused_sample(op, {Tensor::zeros(DType::i32, {1, 2, 5, 5})}, {{"kernel_shape", kernel}}, "type"),
          refused_sample(op, {Tensor::zeros(DType::bf16, {1, 2, 5, 5})}, {{"kernel_shape", kernel}}, "bfloat16", 19)};
}

}  // namespace opdiff
