// What a binding (operators/*.cpp) sees of its node: inputs as oneDNN memories, attributes, and the steps
// that it adds. The result is a Kernel; program.h builds and runs them in order.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <unordered_map>

#include "layout.h"

namespace opdiff::onednn {

// A tensor between two nodes. Its memory may have any layout of oneDNN's; its shape is ONNX's.
struct Value {
  std::string dtype;
  Shape shape;
  dnnl::memory memory;
  sdk::Buffer buffer;  // empty for a graph input: its data belong to the request
  bool known = false;  // the elements are final before the first run
  // Other memories over the same data; a graph input moves from run to run and takes them along.
  std::shared_ptr<std::vector<dnnl::memory>> views = std::make_shared<std::vector<dnnl::memory>>();

  std::byte* data() const { return static_cast<std::byte*>(memory.get_data_handle()); }
};

using ValueMap = std::map<std::string, Value>;

// The node can only be built when the elements of an input are there (a Reshape whose shape is computed).
struct NotYetKnown {};

struct Step {
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;
  std::function<void()> host;  // instead of a primitive
};

// A node, ready to run.
struct Kernel {
  std::vector<Step> steps;
  std::vector<std::pair<std::string, sdk::Buffer>> written;  // name, memory that the steps write

  void execute();  // waits for the end; throws when a step wrote outside its memory
};

// As oneDNN's verbose line has it: "convolution:jit:avx512_core post:eltwise_relu".
std::string name_of(const dnnl::primitive& primitive);

// Nodes that are computed as post-operations of the one being built.
struct Fusion {
  std::vector<const sdk::Node*> followers;
  const sdk::Node& last() const { return *followers.back(); }
};

class NodeBuilder {
 public:
  // `everything_known`: all inputs have been computed, their elements can be read.
  NodeBuilder(const sdk::Node& node, std::int64_t opset, ValueMap& values, bool everything_known, const Fusion* fusion);

  const sdk::Node& node() const { return node_; }
  std::int64_t opset() const { return opset_; }

  // Of a gradient node (domain opdiff.gradient) these see the operator's own inputs; behind them come the cotangents,
  // and output k is the gradient of input k.
  bool is_gradient() const { return cotangents_ > 0; }
  std::size_t input_count() const { return node_.inputs.size() - cotangents_; }
  bool has(std::size_t index) const;
  const Value& input(std::size_t index) const;     // throws std::invalid_argument when it is left out
  const Value& floating(std::size_t index) const;  // and Unsupported when it is not float, float16 or bfloat16
  bool wants_output(std::size_t index) const;

  const Value& cotangent() const;  // of the operator's output 0
  // Whether the gradient of an input is asked for and has elements.
  bool wants_gradient(std::size_t index) const;
  Value& gradient(std::size_t index);  // dense
  Value& gradient(std::size_t index, const Desc& layout);
  // Makes the gradients that have no elements and says true when no others are wanted. `cotangent`: the shape that the
  // cotangent must have; refuses one without elements, over which sums would run.
  bool gradients_are_empty(const Shape& cotangent);

  // Elements of an input, known now. Throws NotYetKnown.
  std::vector<std::int64_t> integers(std::size_t index) const;
  double scalar(std::size_t index) const;

  // The memory of a value in layout `wanted`: its own, or a reordered copy (made once for a known value).
  dnnl::memory in_layout(const Value& value, const Desc& wanted);
  // The same, of the value's dense elements seen under `seen` (other dims or strides over the same data).
  dnnl::memory in_layout(const Value& value, const Desc& seen, const Desc& wanted);
  dnnl::memory dense_memory(const Value& value);
  dnnl::memory dense_view(const Value& value, const Desc& seen);  // no copy where the value is dense

  // Attributes that hold the post-operations to fuse into the primitive that makes output 0, of this dtype and shape.
  dnnl::primitive_attr with_post_operations(const std::string& dtype, const Shape& shape,
                                            dnnl::primitive_attr base = {});
  // Adds to `arguments` what those post-operations read.
  void add_post_operands(const dnnl::primitive_desc& description, std::unordered_map<int, dnnl::memory>& arguments);
  bool fuses() const { return fusion_ != nullptr; }

  // Makes an output. `layout` defaults to dense.
  Value& output(std::size_t index, const std::string& dtype, const Shape& shape);
  Value& output(std::size_t index, const std::string& dtype, const Shape& shape, const Desc& layout);
  // Makes the dense output and says true when it has no elements: then there is nothing to compute.
  bool is_empty(std::size_t index, const std::string& dtype, const Shape& shape);
  // A dense value's elements under other dimensions, those of size one repeated up to `dims`, by a plain copy.
  dnnl::memory expanded(const dnnl::memory& dense, const Dims& seen, const Dims& dims);
  // The sum of `full` over the axes along which `target` has size one and it has not, times `factor`.
  void add_sum(const dnnl::memory& full, const dnnl::memory& target, float factor = 1);
  // to = factor * from, by a reorder.
  void add_scaled(const dnnl::memory& from, const dnnl::memory& to, float factor);
  dnnl::memory scale_memory(float scale);
  // Scratch memory of the kernel.
  dnnl::memory scratch(const Desc& layout);

  void add(dnnl::primitive primitive, std::unordered_map<int, dnnl::memory> arguments);
  void add_host(std::function<void()> step);
  void add_reorder(const dnnl::memory& from, const dnnl::memory& to);

  Kernel take() { return std::move(kernel_); }

 private:
  const Value& value_named(const std::string& name, const std::string& what) const;

  const sdk::Node& node_;
  std::size_t cotangents_;  // 0: no gradient node
  std::int64_t opset_;
  ValueMap& values_;
  bool everything_known_;
  const Fusion* fusion_;
  std::string sum_operand_;
  std::map<int, std::pair<const Value*, Desc>>
      post_operands_;  // by the index of a binary post-operation; as it is seen
  Kernel kernel_;
};

inline constexpr const char* kGradientDomain = "opdiff.gradient";

using Binding = void (*)(NodeBuilder&);
using Bindings = std::vector<std::pair<std::string, Binding>>;

// From an operator's name ("gradient/Conv": its gradient) to its binding: all operators/*.cpp together (generated by
// the build).
const std::map<std::string, Binding>& binding_table();

// The element-wise operator as oneDNN knows it.
struct Eltwise {
  dnnl::algorithm algorithm;
  float alpha = 0;
  float beta = 0;
};
bool is_eltwise(const std::string& op);
std::optional<dnnl::algorithm> binary_algorithm(const std::string& op);  // of Add, Sub, Mul, Div, Max and Min
Eltwise eltwise_of(const NodeBuilder& builder);

}  // namespace opdiff::onednn
