// Operators that only change the shape, and their gradients: dense copies, of any dtype. And Constant and Shape, made
// on the host.
#include <algorithm>
#include <cstring>
#include <set>

#include "../node_builder.h"

namespace opdiff::onednn {
namespace {

void copy_as(NodeBuilder& builder, const Value& x, const Shape& shape) {
  if (sdk::element_count(shape) != sdk::element_count(x.shape)) {
    throw std::invalid_argument("shape " + sdk::to_string(x.shape) + " has another number of elements than " +
                                sdk::to_string(shape));
  }
  if (builder.is_empty(0, x.dtype, shape)) return;
  const dnnl::memory from = builder.dense_memory(x);
  const Value& y = builder.output(0, x.dtype, shape);
  builder.add_host([from, to = y.memory, bytes = sdk::element_count(shape) * sdk::element_size(x.dtype)] {
    std::memcpy(to.get_data_handle(), from.get_data_handle(), bytes);
  });
}

// Of all of them: the cotangent in the input's shape.
void gradient(NodeBuilder& builder) {
  const Value& x = builder.floating(0);
  const Value& dy = builder.cotangent();
  for (std::size_t i = 1; i < builder.node().outputs.size(); ++i)
    if (builder.wants_output(i)) throw std::invalid_argument("the gradient of input " + std::to_string(i));
  copy_as(builder, dy, x.shape);
}

void identity(NodeBuilder& builder) { copy_as(builder, builder.input(0), builder.input(0).shape); }

void dropout(NodeBuilder& builder) {
  if (builder.opset() >= 12 && builder.has(2) && builder.scalar(2) != 0)
    throw sdk::Unsupported("input 'training_mode' is true");
  const Value& x = builder.floating(0);
  copy_as(builder, x, x.shape);
  if (!builder.wants_output(1)) return;
  if (builder.opset() < 10) throw sdk::Unsupported("a mask of the input's dtype");
  const Value& mask = builder.output(1, "bool", x.shape);
  builder.add_host([to = mask.memory, bytes = sdk::element_count(x.shape)] {
    if (bytes > 0) std::memset(to.get_data_handle(), 1, bytes);
  });
}

void reshape(NodeBuilder& builder) {
  const Value& x = builder.input(0);
  Shape shape = builder.integers(1);
  const bool allow_zero = builder.node().integer("allowzero", 0) != 0;
  std::size_t free = shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !allow_zero) {
      if (i >= x.shape.size())
        throw std::invalid_argument("shape[" + std::to_string(i) + "] = 0 copies a dimension that is not there");
      shape[i] = x.shape[i];
    } else if (shape[i] == -1) {
      if (free != shape.size()) throw std::invalid_argument("shape has more than one -1");
      free = i;
    }
  }
  if (free != shape.size()) {
    shape[free] = 1;
    const auto rest = sdk::element_count(shape), all = sdk::element_count(x.shape);
    if (rest == 0 || all % rest != 0) throw std::invalid_argument("no dimension can stand for the -1 in shape");
    shape[free] = static_cast<std::int64_t>(all / rest);
  }
  copy_as(builder, x, shape);
}

void flatten(NodeBuilder& builder) {
  const Value& x = builder.input(0);
  const auto rank = static_cast<std::int64_t>(x.shape.size());
  const std::int64_t axis = builder.node().integer("axis", 1);
  if (axis < -rank || axis > rank)
    throw std::invalid_argument("attribute 'axis' is " + std::to_string(axis) + ", rank " + std::to_string(rank));
  const auto split = x.shape.begin() + (axis < 0 ? axis + rank : axis);
  copy_as(builder, x,
          {static_cast<std::int64_t>(sdk::element_count(Shape(x.shape.begin(), split))),
           static_cast<std::int64_t>(sdk::element_count(Shape(split, x.shape.end())))});
}

// Attribute before opset 13, input from it on.
std::vector<std::int64_t> axes_of(NodeBuilder& builder) {
  if (builder.opset() < 13) return builder.node().integers("axes", {});
  return builder.has(1) ? builder.integers(1) : std::vector<std::int64_t>{};
}

void squeeze(NodeBuilder& builder) {
  const Value& x = builder.input(0);
  std::set<std::size_t> removed;
  const auto axes = axes_of(builder);
  for (const auto axis : axes) {
    const std::size_t position = normal_axis(axis, x.shape.size());
    if (x.shape[position] != 1) {
      throw std::invalid_argument("axis " + std::to_string(axis) + " of shape " + sdk::to_string(x.shape) +
                                  " is not of size one");
    }
    removed.insert(position);
  }
  Shape shape;
  for (std::size_t i = 0; i < x.shape.size(); ++i) {
    if (axes.empty() ? x.shape[i] != 1 : !removed.count(i)) shape.push_back(x.shape[i]);
  }
  copy_as(builder, x, shape);
}

void unsqueeze(NodeBuilder& builder) {
  const Value& x = builder.input(0);
  const auto axes = axes_of(builder);
  const std::size_t rank = x.shape.size() + axes.size();
  std::set<std::size_t> inserted;
  for (const auto axis : axes) {
    if (!inserted.insert(normal_axis(axis, rank)).second)
      throw std::invalid_argument("axis " + std::to_string(axis) + " is named twice");
  }
  Shape shape;
  auto next = x.shape.begin();
  for (std::size_t i = 0; i < rank; ++i) shape.push_back(inserted.count(i) ? 1 : *next++);
  copy_as(builder, x, shape);
}

void make_known(NodeBuilder& builder, const std::string& dtype, const Shape& shape, const void* data) {
  Value& y = builder.output(0, dtype, shape);
  const std::size_t bytes = sdk::element_count(shape) * sdk::element_size(dtype);
  if (bytes > 0) std::memcpy(y.data(), data, bytes);
  y.known = true;
}

void constant(NodeBuilder& builder) {
  const sdk::Node& node = builder.node();
  if (node.attributes.size() != 1) throw std::invalid_argument("expected exactly one attribute, the value");
  const auto& [name, attribute] = *node.attributes.begin();
  using Kind = sdk::Attribute::Kind;
  const auto as_float = [](double number) { return static_cast<float>(number); };
  if (name == "value" && attribute.kind == Kind::tensor) {
    make_known(builder, attribute.tensor.dtype, attribute.tensor.shape, attribute.tensor.data);
  } else if (name == "value_float" && attribute.kind == Kind::real) {
    const float number = as_float(attribute.real);
    make_known(builder, "float", {}, &number);
  } else if (name == "value_int" && attribute.kind == Kind::integer) {
    make_known(builder, "int64", {}, &attribute.integer);
  } else if (name == "value_floats" && attribute.kind == Kind::reals) {
    std::vector<float> numbers(attribute.reals.size());
    std::transform(attribute.reals.begin(), attribute.reals.end(), numbers.begin(), as_float);
    make_known(builder, "float", {static_cast<std::int64_t>(numbers.size())}, numbers.data());
  } else if (name == "value_ints" && attribute.kind == Kind::integers) {
    make_known(builder, "int64", {static_cast<std::int64_t>(attribute.integers.size())}, attribute.integers.data());
  } else {
    throw sdk::Unsupported("a constant given as '" + name + "'");
  }
}

void shape_of(NodeBuilder& builder) {
  const Value& x = builder.input(0);
  const auto rank = static_cast<std::int64_t>(x.shape.size());
  const auto position = [&](const std::string& name, std::int64_t missing) {
    const std::int64_t value = builder.node().integer(name, missing);
    return std::clamp<std::int64_t>(value < 0 ? value + rank : value, 0, rank);
  };
  const std::int64_t start = position("start", 0), end = std::max(position("end", rank), start);
  const Shape part(x.shape.begin() + start, x.shape.begin() + end);
  make_known(builder, "int64", {end - start}, part.data());
}

void gradient_of_dropout(NodeBuilder& builder) {
  if (builder.opset() >= 12 && builder.has(2) && builder.scalar(2) != 0)
    throw sdk::Unsupported("input 'training_mode' is true");
  gradient(builder);
}

}  // namespace

Bindings reshaping_bindings() {
  return {{"Identity", identity},
          {"Dropout", dropout},
          {"Reshape", reshape},
          {"Flatten", flatten},
          {"Squeeze", squeeze},
          {"Constant", constant},
          {"Unsqueeze", unsqueeze},
          {"Shape", shape_of},
          {"gradient/Identity", gradient},
          {"gradient/Dropout", gradient_of_dropout},
          {"gradient/Reshape", gradient},
          {"gradient/Flatten", gradient},
          {"gradient/Squeeze", gradient},
          {"gradient/Unsqueeze", gradient}};
}

}  // namespace opdiff::onednn
