// Transpose, Concat, Slice, Pad, Cast and their gradients: reorders between strided views, or the concat primitive; a
// host copy for the dtypes that oneDNN does not know (shape arithmetic in int64).
#include <algorithm>
#include <cstring>

#include "../node_builder.h"

namespace opdiff::onednn {
namespace {

// y[i, j, ...] = x[offset + i * strides[0] + ...], in elements of x.
void move_strided(NodeBuilder& builder, const Value& x, std::int64_t offset, const Dims& strides, const Shape& shape) {
  if (builder.is_empty(0, x.dtype, shape)) return;
  const dnnl::memory from = builder.dense_memory(x);
  const Value& y = builder.output(0, x.dtype, shape);
  builder.add_host([from, to = y.memory, offset, strides, shape, size = sdk::element_size(x.dtype)] {
    copy_strided(static_cast<const std::byte*>(from.get_data_handle()), offset, strides, shape, size,
                 static_cast<std::byte*>(to.get_data_handle()));
  });
}

void transpose(NodeBuilder& builder) {
  const Value& x = builder.input(0);
  const std::size_t rank = x.shape.size();
  Shape backwards;
  for (std::size_t i = rank; i-- > 0;) backwards.push_back(static_cast<std::int64_t>(i));
  const Shape order = builder.node().integers("perm", backwards);
  Shape sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::reverse(sorted.begin(), sorted.end());
  if (sorted != backwards) {
    throw std::invalid_argument("attribute 'perm' is " + sdk::to_string(order) + "; expected a permutation of " +
                                std::to_string(rank) + " axes");
  }
  Shape shape;
  if (builder.is_gradient()) {
    for (const auto axis : order) shape.push_back(x.shape[static_cast<std::size_t>(axis)]);
    if (builder.gradients_are_empty(shape)) return;
    Dims back(rank);
    const Dims strides = dense_strides(shape);
    for (std::size_t i = 0; i < rank; ++i) back[static_cast<std::size_t>(order[i])] = strides[i];
    const Value& dy = builder.cotangent();
    const Desc seen = rank == 0 ? dense(dy.dtype, {}) : Desc(x.shape, *data_type(dy.dtype), back);
    return builder.add_reorder(builder.dense_view(dy, seen), builder.gradient(0).memory);
  }
  const Dims strides = dense_strides(x.shape);
  Dims permuted;
  for (const auto axis : order) {
    shape.push_back(x.shape[static_cast<std::size_t>(axis)]);
    permuted.push_back(strides[static_cast<std::size_t>(axis)]);
  }
  const auto type = data_type(x.dtype);
  if (!type || rank == 0) return move_strided(builder, x, 0, permuted, shape);
  if (builder.is_empty(0, x.dtype, shape)) return;
  const dnnl::memory from = builder.dense_view(x, Desc(shape, *type, permuted));
  builder.add_reorder(from, builder.output(0, x.dtype, shape).memory);
}

void concat(NodeBuilder& builder) {
  const std::size_t count = builder.input_count();
  if (count == 0) throw std::invalid_argument("it has no inputs");
  const Value& first = builder.input(0);
  if (!builder.node().has("axis")) throw std::invalid_argument("attribute 'axis' is missing");
  const std::size_t axis = normal_axis(builder.node().integer("axis", 0), first.shape.size());
  Shape shape = first.shape;
  std::vector<const Value*> parts;
  shape[axis] = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Value& part = builder.input(i);
    Shape rest = part.shape;
    if (rest.size() == shape.size()) rest[axis] = shape[axis];
    if (rest != shape || part.dtype != first.dtype) {
      throw std::invalid_argument("input " + std::to_string(i) + " of shape " + sdk::to_string(part.shape) +
                                  " and dtype " + part.dtype + " does not fit input 0 of shape " +
                                  sdk::to_string(first.shape) + " and dtype " + first.dtype);
    }
    shape[axis] += part.shape[axis];
    if (sdk::element_count(part.shape) > 0) parts.push_back(&part);
  }
  if (builder.is_gradient()) {
    if (builder.gradients_are_empty(shape)) return;
    const Value& dy = builder.cotangent();
    Dims offsets(shape.size(), 0);
    for (std::size_t i = 0; i < count; ++i) {
      const Shape& part = builder.input(i).shape;
      if (builder.wants_gradient(i)) {
        const Desc seen = dense(dy.dtype, shape).submemory_desc(part, offsets);
        builder.add_reorder(builder.dense_view(dy, seen), builder.gradient(i).memory);
      }
      offsets[axis] += part[axis];
    }
    return;
  }
  if (builder.is_empty(0, first.dtype, shape)) return;
  if (!data_type(first.dtype)) {
    const std::size_t size = sdk::element_size(first.dtype);
    const Value& y = builder.output(0, first.dtype, shape);
    const auto block = [&](const Shape& of) {
      return sdk::element_count(Shape(of.begin() + static_cast<std::ptrdiff_t>(axis), of.end())) * size;
    };
    std::size_t position = 0;
    const std::size_t rows = sdk::element_count(shape) * size / block(shape), row = block(shape);
    for (const Value* part : parts) {
      builder.add_host([from = part->memory, to = y.memory, position, rows, row, bytes = block(part->shape)] {
        for (std::size_t i = 0; i < rows; ++i) {
          std::memcpy(static_cast<std::byte*>(to.get_data_handle()) + i * row + position,
                      static_cast<const std::byte*>(from.get_data_handle()) + i * bytes, bytes);
        }
      });
      position += block(part->shape);
    }
    return;
  }
  std::vector<Desc> layouts;
  std::unordered_map<int, dnnl::memory> arguments;
  for (const Value* part : parts) {
    arguments[DNNL_ARG_MULTIPLE_SRC + static_cast<int>(layouts.size())] = part->memory;
    layouts.push_back(part->memory.get_desc());
  }
  const dnnl::concat::primitive_desc description(engine(), static_cast<int>(axis), layouts);
  arguments[DNNL_ARG_DST] = builder.output(0, first.dtype, shape, description.dst_desc()).memory;
  builder.add(dnnl::concat(description), arguments);
}

// The gradient of input 0: zeros, but `part` of the cotangent (from `from` on) at `to`.
void copy_into_zeros(NodeBuilder& builder, const Shape& part, const Dims& from, const Dims& to) {
  const Value& dy = builder.cotangent();
  const Value& dx = builder.gradient(0);
  const std::size_t bytes = sdk::element_count(dx.shape) * sdk::element_size(dx.dtype);
  builder.add_host([to = dx.memory, bytes] { std::memset(to.get_data_handle(), 0, bytes); });
  if (sdk::element_count(part) == 0) return;
  if (part.empty()) return builder.add_reorder(builder.dense_memory(dy), dx.memory);
  const Desc seen = dense(dy.dtype, dy.shape).submemory_desc(part, from);
  const Desc target = dense(dx.dtype, dx.shape).submemory_desc(part, to);
  builder.add_reorder(builder.dense_view(dy, seen), dnnl::memory(target, engine(), dx.data()));
}

void slice(NodeBuilder& builder) {
  const Value& x = builder.input(0);
  const std::size_t rank = x.shape.size();
  const bool by_input = builder.opset() >= 10;
  const Shape starts = by_input ? builder.integers(1) : builder.node().integers("starts", {});
  const Shape ends = by_input ? builder.integers(2) : builder.node().integers("ends", {});
  Shape axes, steps(starts.size(), 1);
  for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (by_input && builder.has(3)) axes = builder.integers(3);
  if (by_input && builder.has(4)) steps = builder.integers(4);
  if (!by_input) axes = builder.node().integers("axes", axes);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size())
    throw std::invalid_argument("starts, ends, axes and steps differ in length");

  Shape shape = x.shape;
  Dims offsets(rank, 0), strides = dense_strides(x.shape);
  std::int64_t offset = 0;
  bool unit = true;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t axis = normal_axis(axes[i], rank);
    const std::int64_t size = x.shape[axis], step = steps[i];
    if (step == 0) throw std::invalid_argument("a step is 0");
    const auto clamp = [&](std::int64_t position) {
      if (position < 0) position = position < -size ? -1 : position + size;
      return step > 0 ? std::clamp<std::int64_t>(position, 0, size) : std::clamp<std::int64_t>(position, -1, size - 1);
    };
    const std::int64_t start = clamp(starts[i]), end = clamp(ends[i]);
    const std::int64_t distance = step > 0 ? end - start : start - end;
    // The magnitude of the step, as an unsigned number: -2^63 has no positive counterpart.
    const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
    shape[axis] =
        distance <= 0 ? 0 : static_cast<std::int64_t>((static_cast<std::uint64_t>(distance) - 1) / stride + 1);
    if (shape[axis] == 0) continue;
    offsets[axis] = start;
    offset += start * strides[axis];
    unit = unit && (step == 1 || shape[axis] == 1);
    strides[axis] = shape[axis] == 1 ? strides[axis] : strides[axis] * step;
  }
  if (builder.is_gradient()) {
    if (builder.gradients_are_empty(shape)) return;
    if (!unit) throw sdk::Unsupported("a step other than 1: a oneDNN sub-memory has none");
    return copy_into_zeros(builder, shape, Dims(rank, 0), offsets);
  }
  if (!data_type(x.dtype) || rank == 0) return move_strided(builder, x, offset, strides, shape);
  if (builder.is_empty(0, x.dtype, shape)) return;
  if (!unit) throw sdk::Unsupported("a step other than 1: a oneDNN sub-memory has none");
  const Desc part = dense(x.dtype, x.shape).submemory_desc(shape, offsets);
  const dnnl::memory from = builder.dense_view(x, part);
  builder.add_reorder(from, builder.output(0, x.dtype, shape).memory);
}

void pad(NodeBuilder& builder) {
  const Value& x = builder.floating(0);
  const std::size_t rank = x.shape.size();
  const bool by_input = builder.opset() >= 11;
  if (const auto mode = builder.node().string("mode", "constant"); mode != "constant")
    throw sdk::Unsupported("mode '" + mode + "': oneDNN can only copy into a filled tensor");
  const Shape given = by_input ? builder.integers(1) : builder.node().integers("pads", {});
  Shape axes;
  for (std::size_t i = 0; i < rank; ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (by_input && builder.has(3)) axes = builder.integers(3);
  if (given.size() != 2 * axes.size()) {
    throw std::invalid_argument("pads has " + std::to_string(given.size()) + " values; expected " +
                                std::to_string(2 * axes.size()));
  }
  const double fill = builder.is_gradient() ? 0
                      : by_input            ? (builder.has(2) ? builder.scalar(2) : 0)
                                            : builder.node().real("value", 0);
  Shape shape = x.shape, kept = x.shape;
  Dims from_offset(rank, 0), to_offset(rank, 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = normal_axis(axes[i], rank);
    const std::int64_t before = given[i], after = given[i + axes.size()], most = std::int64_t{1} << 40;
    if (std::max(std::abs(before), std::abs(after)) > most) throw std::bad_alloc();
    shape[axis] += before + after;
    from_offset[axis] = std::max<std::int64_t>(-before, 0);
    to_offset[axis] = std::max<std::int64_t>(before, 0);
    kept[axis] += std::min<std::int64_t>(before, 0) + std::min<std::int64_t>(after, 0);
    if (shape[axis] < 0 || kept[axis] < 0)
      throw std::invalid_argument("pads remove more than there is along axis " + std::to_string(axis));
  }
  if (builder.is_gradient()) {
    if (!builder.gradients_are_empty(shape)) copy_into_zeros(builder, kept, to_offset, from_offset);
    return;
  }
  if (builder.is_empty(0, x.dtype, shape)) return;
  const dnnl::memory source = builder.dense_memory(x);
  const Value& y = builder.output(0, x.dtype, shape);
  const std::size_t size = sdk::element_size(x.dtype), count = sdk::element_count(shape);
  if (by_input && builder.has(2) && builder.input(2).dtype == x.dtype) {  // bit for bit: -0, NaN
    builder.add_host([from = builder.dense_memory(builder.input(2)), to = y.memory, count, size] {
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(static_cast<std::byte*>(to.get_data_handle()) + i * size, from.get_data_handle(), size);
      }
    });
  } else if (fill == 0) {
    builder.add_host([to = y.memory, bytes = count * size] { std::memset(to.get_data_handle(), 0, bytes); });
  } else if (x.dtype == "float") {
    builder.add_host([to = y.memory, count, number = static_cast<float>(fill)] {
      std::fill_n(static_cast<float*>(to.get_data_handle()), count, number);
    });
  } else {
    throw sdk::Unsupported("a fill value given as an attribute for dtype " + x.dtype);
  }
  if (sdk::element_count(kept) == 0) return;
  if (rank == 0) return builder.add_reorder(source, y.memory);
  const dnnl::memory from = builder.dense_view(x, dense(x.dtype, x.shape).submemory_desc(kept, from_offset));
  builder.add_reorder(from, dnnl::memory(dense(x.dtype, shape).submemory_desc(kept, to_offset), engine(), y.data()));
}

void cast(NodeBuilder& builder) {
  // Numbers of TensorProto.DataType.
  static const std::map<std::int64_t, std::string> names = {
      {1, "float"}, {2, "uint8"},    {3, "int8"},    {4, "uint16"},  {5, "int16"},   {6, "int32"},    {7, "int64"},
      {9, "bool"},  {10, "float16"}, {11, "double"}, {12, "uint32"}, {13, "uint64"}, {16, "bfloat16"}};
  const Value& x = builder.input(0);
  const auto to = names.find(builder.node().integer("to", 0));
  if (to == names.end()) throw sdk::Unsupported("attribute 'to' is " + std::to_string(builder.node().integer("to", 0)));
  // A reorder converts integers to float as ONNX does; to integers it rounds where ONNX truncates.
  const bool from_integer = !is_floating(x.dtype) && data_type(x.dtype) && to->second == "float";
  if (!from_integer && (!is_floating(x.dtype) || !is_floating(to->second))) {
    throw sdk::Unsupported("from " + x.dtype + " to " + to->second +
                           ": oneDNN casts between float, float16 and bfloat16, and from int32, int8, uint8 to float");
  }
  if (builder.is_gradient()) {
    if (!is_floating(x.dtype)) throw sdk::Unsupported("the gradient of a cast from " + x.dtype);
    if (builder.gradients_are_empty(x.shape)) return;
    const Value& dy = builder.cotangent();
    const dnnl::memory from =
        x.dtype == "float" ? builder.dense_memory(dy) : builder.in_layout(dy, dense("float", x.shape));
    return builder.add_reorder(from, builder.gradient(0).memory);
  }
  if (builder.is_empty(0, to->second, x.shape)) return;
  if (x.dtype != "float" && to->second != "float") {  // float holds both: one rounding, as in a direct cast
    const dnnl::memory wide = builder.in_layout(x, dense("float", x.shape));
    return builder.add_reorder(wide, builder.output(0, to->second, x.shape).memory);
  }
  const dnnl::memory source = builder.dense_memory(x);
  builder.add_reorder(source, builder.output(0, to->second, x.shape).memory);
}

}  // namespace

Bindings movement_bindings() {
  Bindings bindings;
  const Bindings operators = {
      {"Transpose", transpose}, {"Concat", concat}, {"Slice", slice}, {"Pad", pad}, {"Cast", cast}};
  for (const auto& [op, binding] : operators) {
    bindings.emplace_back(op, binding);
    bindings.emplace_back("gradient/" + op, binding);
  }
  return bindings;
}

}  // namespace opdiff::onednn
