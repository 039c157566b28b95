#include "ops/convolution.h"

#include "base/machines.h"

namespace opdiff {

Expected<Shape> convolution_kernel(const Call& call) {
  const Shape& x = call.shape(0);
  const Shape& w = call.shape(1);
  if (call.dtype(0) == DType::bf16 && call.opset() < 22)
    return make_error("X has type bfloat16, which the operator takes from opset 22 on (opset {})", call.opset());
  if (x.size() < 3 || x.size() > 5) return make_error("X has shape {}, expected 3 to 5 dimensions", to_string(x));
  if (w.size() != x.size())
    return make_error("W has shape {}, expected as many dimensions as X {}", to_string(w), to_string(x));
  for (int k = 1; k < call.input_count(); ++k)
    if (call.has(k) && call.dtype(k) != call.dtype(0))
      return make_error("input {} has type {}, X has {}", k, dtype_name(call.dtype(k)), dtype_name(call.dtype(0)));
  if (const std::int64_t group = call.integer("group", 1); group < 1)
    return make_error("attribute 'group' is {}, expected at least 1", group);
  const Shape kernel(w.begin() + 2, w.end());
  if (const Shape declared = call.integers("kernel_shape", kernel); declared != kernel)
    return make_error("attribute 'kernel_shape' is {}, but W has the spatial shape {}", to_string(declared),
                      to_string(kernel));
  return kernel;
}

SparseRows readings(const Convolution& c, const double* y, const std::vector<std::int64_t>& table) {
  const std::int64_t taps = c.taps(), positions = c.positions();
  const auto for_each = [&](const auto& take) {  // take(plane element, column, value), columns ascending
    std::vector<std::int64_t> there;
    for (std::int64_t m = 0; m < c.rows; ++m) {
      const double* values = y + m * positions;
      there.clear();
      for (std::int64_t o = 0; o < positions; ++o)
        if (values[o] != 0) there.push_back(o);
      for (std::int64_t k = 0; k < taps; ++k)
        for (const std::int64_t o : there)
          if (const std::int64_t i = table[static_cast<std::size_t>(k * positions + o)]; i >= 0)
            take(static_cast<std::size_t>(i), m * taps + k, values[o]);
    }
  };
  SparseRows rows;
  rows.starts.assign(static_cast<std::size_t>(c.plane()) + 1, 0);
  for_each([&](std::size_t i, std::int64_t, double) { ++rows.starts[i + 1]; });
  for (std::size_t i = 1; i < rows.starts.size(); ++i) rows.starts[i] += rows.starts[i - 1];
  rows.columns.resize(static_cast<std::size_t>(rows.starts.back()));
  rows.values.resize(rows.columns.size());
  std::vector<std::int64_t> next = rows.starts;
  for_each([&](std::size_t i, std::int64_t column, double value) {
    const auto at = static_cast<std::size_t>(next[i]++);
    rows.columns[at] = column;
    rows.values[at] = value;
  });
  return rows;
}

bool is_sparse(const Convolution& c, const double* y) {
  const std::int64_t count = c.rows * c.positions(), panels = (c.depth + kPanelWidth - 1) / kPanelWidth;
  const auto terms = static_cast<double>(count - std::count(y, y + count, 0.0)) * static_cast<double>(c.taps());
  const double whole = static_cast<double>(c.rows * c.taps()) * static_cast<double>(c.plane());
  // Panels have lanes that hold nothing; a term by itself costs more than one of a whole row.
  return terms * static_cast<double>(panels * kPanelWidth) * 1.5 < whole * static_cast<double>(c.depth);
}

bool is_mostly_zero(const Convolution& c, const double* y) {
  const std::int64_t count = c.rows * c.positions(), some = count - std::count(y, y + count, 0.0);
  return some * 3 < count;
}

namespace {

OPDIFF_FOR_EACH_MACHINE void add_multiple(double factor, const double* values, std::int64_t count, double* sums) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += factor * values[i];
}

// Calls take(o) for the outputs that are not zero in every channel.
template <class Take>
void for_each_output(const Convolution& c, const double* y, const Take& take) {
  const std::int64_t positions = c.positions();
  for (std::int64_t o = 0; o < positions; ++o) {
    bool some = false;
    for (std::int64_t m = 0; m < c.rows && !some; ++m) some = y[m * positions + o] != 0;
    if (some) take(o);
  }
}

}  // namespace

void add_transposed(const Convolution& c, const double* y, const double* w, const std::vector<std::int64_t>& table,
                    double* x) {
  const std::int64_t taps = c.taps(), positions = c.positions(), plane = c.plane(), depth = c.depth * taps;
  std::vector<double> patch(static_cast<std::size_t>(depth));
  for_each_output(c, y, [&](std::int64_t o) {
    std::fill(patch.begin(), patch.end(), 0.0);
    for (std::int64_t m = 0; m < c.rows; ++m)
      if (const double value = y[m * positions + o]; value != 0)
        add_multiple(value, w + m * depth, depth, patch.data());
    for (std::int64_t k = 0; k < taps; ++k) {
      const std::int64_t i = table[static_cast<std::size_t>(k * positions + o)];
      for (std::int64_t d = 0; i >= 0 && d < c.depth; ++d)
        x[d * plane + i] += patch[static_cast<std::size_t>(d * taps + k)];
    }
  });
}

void add_weights(const Convolution& c, const double* y, const double* x, const std::vector<std::int64_t>& table,
                 double* w) {
  const std::int64_t taps = c.taps(), positions = c.positions(), plane = c.plane(), depth = c.depth * taps;
  std::vector<double> patch(static_cast<std::size_t>(depth));
  for_each_output(c, y, [&](std::int64_t o) {
    for (std::int64_t k = 0; k < taps; ++k) {
      const std::int64_t i = table[static_cast<std::size_t>(k * positions + o)];
      for (std::int64_t d = 0; d < c.depth; ++d)
        patch[static_cast<std::size_t>(d * taps + k)] = i < 0 ? 0 : x[d * plane + i];
    }
    for (std::int64_t m = 0; m < c.rows; ++m)
      if (const double value = y[m * positions + o]; value != 0)
        add_multiple(value, patch.data(), depth, w + m * depth);
  });
}

Reduction convolve_terms(const Convolution& c, const Tensor& x, const Tensor& w, std::int64_t index) {
  const std::int64_t taps = c.taps(), channel = index / c.positions();
  const std::int64_t m = channel % (c.group * c.rows), first = channel / c.rows * c.depth;
  Reduction r;
  r.extents = {c.depth};
  r.extents.insert(r.extents.end(), c.window.kernel.begin(), c.window.kernel.end());
  for (std::int64_t d = 0; d < c.depth; ++d)
    for (std::int64_t k = 0; k < taps; ++k) {
      const std::int64_t i = tap_at(c.window, index % c.positions(), k).input;
      r.a.push_back(i < 0 ? 0 : x.at((first + d) * c.plane() + i));
      r.b.push_back(w.at((m * c.depth + d) * taps + k));
    }
  return r;
}

Reduction convolve_transposed_terms(const Convolution& c, const Tensor& y, const Tensor& w, std::int64_t index) {
  const std::int64_t taps = c.taps(), plane = c.plane(), channel = index / plane;
  const std::int64_t first = channel / c.depth * c.rows, d = channel % c.depth;
  const std::int64_t kernels = channel % (c.group * c.depth) / c.depth * c.rows;
  std::vector<std::int64_t> reader(static_cast<std::size_t>(taps));
  for (std::int64_t k = 0; k < taps; ++k) reader[static_cast<std::size_t>(k)] = reader_at(c.window, index % plane, k);
  Reduction r;
  r.extents = {c.rows};
  r.extents.insert(r.extents.end(), c.window.kernel.begin(), c.window.kernel.end());
  for (std::int64_t m = 0; m < c.rows; ++m)
    for (std::int64_t k = 0; k < taps; ++k) {
      const std::int64_t o = reader[static_cast<std::size_t>(k)];
      r.a.push_back(o < 0 ? 0 : y.at((first + m) * c.positions() + o));
      r.b.push_back(w.at(((kernels + m) * c.depth + d) * taps + k));
    }
  return r;
}

Reduction convolve_weights_terms(const Convolution& c, const Tensor& y, const Tensor& x, std::int64_t index) {
  const std::int64_t taps = c.taps(), m = index / taps / c.depth;
  const std::int64_t d = m / c.rows * c.depth + index / taps % c.depth;
  Reduction r;
  r.extents = {c.batch};
  r.extents.insert(r.extents.end(), c.window.output.begin(), c.window.output.end());
  const std::int64_t positions = c.positions(), plane = c.plane();
  std::vector<std::int64_t> read(static_cast<std::size_t>(positions));
  for (std::int64_t o = 0; o < positions; ++o)
    read[static_cast<std::size_t>(o)] = tap_at(c.window, o, index % taps).input;
  for (std::int64_t n = 0; n < c.batch; ++n)
    for (std::int64_t o = 0; o < positions; ++o) {
      const std::int64_t i = read[static_cast<std::size_t>(o)];
      r.a.push_back(y.at((n * c.group * c.rows + m) * positions + o));
      r.b.push_back(i < 0 ? 0 : x.at((n * c.group * c.depth + d) * plane + i));
    }
  return r;
}

Reduction channel_terms(const Tensor& values, std::int64_t channel) {
  const Shape& shape = values.shape();
  Reduction r;
  r.extents = {shape[0]};
  r.extents.insert(r.extents.end(), shape.begin() + 2, shape.end());
  const std::int64_t plane = element_count(r.extents) / std::max<std::int64_t>(shape[0], 1);
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t i = 0; i < plane; ++i) r.a.push_back(values.at((n * shape[1] + channel) * plane + i));
  return r;
}

}  // namespace opdiff
