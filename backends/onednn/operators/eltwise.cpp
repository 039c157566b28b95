// Element-wise operators of one tensor and their gradients: the eltwise primitive, alone or as a post-operation.
#include <cmath>
#include <limits>

#include "../node_builder.h"

namespace opdiff::onednn {
namespace {

// Clip without limits: a copy, NaN included.
bool is_a_copy(const Eltwise& operation) {
  return operation.algorithm == dnnl::algorithm::eltwise_clip && std::isinf(operation.alpha) &&
         std::isinf(operation.beta) && operation.alpha < operation.beta;
}

void eltwise(NodeBuilder& builder) {
  const Value& x = builder.floating(0);
  if (builder.is_empty(0, x.dtype, x.shape)) return;
  const Eltwise operation = eltwise_of(builder);
  if (is_a_copy(operation)) {
    const Desc layout = x.memory.get_desc();
    return builder.add_reorder(x.memory, builder.output(0, x.dtype, x.shape, layout).memory);
  }
  const Desc layout = x.memory.get_desc();
  const dnnl::eltwise_forward::primitive_desc description(engine(), dnnl::prop_kind::forward_inference,
                                                          operation.algorithm, layout, layout, operation.alpha,
                                                          operation.beta);
  const Value& y = builder.output(0, x.dtype, x.shape, description.dst_desc());
  builder.add(dnnl::eltwise_forward(description), {{DNNL_ARG_SRC, x.memory}, {DNNL_ARG_DST, y.memory}});
}

void gradient(NodeBuilder& builder) {
  const Value& x = builder.floating(0);
  if (builder.gradients_are_empty(x.shape)) return;
  const Eltwise operation = eltwise_of(builder);
  if (is_a_copy(operation)) {
    return builder.add_reorder(builder.cotangent().memory, builder.gradient(0).memory);
  }
  const Desc layout = x.memory.get_desc();
  const dnnl::eltwise_forward::primitive_desc forward(engine(), dnnl::prop_kind::forward_training, operation.algorithm,
                                                      layout, layout, operation.alpha, operation.beta);
  const dnnl::eltwise_backward::primitive_desc description(engine(), operation.algorithm, layout, layout, layout,
                                                           operation.alpha, operation.beta, forward);
  const auto cotangent = builder.in_layout(builder.cotangent(), description.diff_dst_desc());
  builder.add(dnnl::eltwise_backward(description),
              {{DNNL_ARG_SRC, x.memory},
               {DNNL_ARG_DIFF_DST, cotangent},
               {DNNL_ARG_DIFF_SRC, builder.gradient(0, description.diff_src_desc()).memory}});
}

Eltwise clip(const NodeBuilder& builder) {
  const float infinity = std::numeric_limits<float>::infinity();
  Eltwise operation{dnnl::algorithm::eltwise_clip, -infinity, infinity};
  if (builder.opset() < 11) {
    operation.alpha = static_cast<float>(builder.node().real("min", -infinity));
    operation.beta = static_cast<float>(builder.node().real("max", infinity));
  } else {
    if (builder.has(1)) operation.alpha = static_cast<float>(builder.scalar(1));
    if (builder.has(2)) operation.beta = static_cast<float>(builder.scalar(2));
  }
  if (!(operation.alpha <= operation.beta)) {
    throw sdk::Unsupported("min " + std::to_string(operation.alpha) + " and max " + std::to_string(operation.beta) +
                           ": oneDNN's clip takes them in ascending order only");
  }
  return operation;
}

const std::map<std::string, Eltwise (*)(const NodeBuilder&)>& table() {
  using dnnl::algorithm;
  static const std::map<std::string, Eltwise (*)(const NodeBuilder&)> entries = {
      {"Relu", [](const NodeBuilder&) { return Eltwise{algorithm::eltwise_relu}; }},
      {"LeakyRelu",
       [](const NodeBuilder& builder) {
         return Eltwise{algorithm::eltwise_relu, static_cast<float>(builder.node().real("alpha", 0.01f))};
       }},
      {"Sigmoid", [](const NodeBuilder&) { return Eltwise{algorithm::eltwise_logistic}; }},
      {"Tanh", [](const NodeBuilder&) { return Eltwise{algorithm::eltwise_tanh}; }},
      {"Elu",
       [](const NodeBuilder& builder) {
         return Eltwise{algorithm::eltwise_elu, static_cast<float>(builder.node().real("alpha", 1))};
       }},
      {"Clip", clip},
      {"Exp", [](const NodeBuilder&) { return Eltwise{algorithm::eltwise_exp}; }},
      {"Log", [](const NodeBuilder&) { return Eltwise{algorithm::eltwise_log}; }},
      {"Sqrt", [](const NodeBuilder&) { return Eltwise{algorithm::eltwise_sqrt}; }},
      {"Neg", [](const NodeBuilder&) { return Eltwise{algorithm::eltwise_linear, -1}; }},
      {"Abs", [](const NodeBuilder&) { return Eltwise{algorithm::eltwise_abs}; }},
      {"Reciprocal", [](const NodeBuilder&) { return Eltwise{algorithm::eltwise_pow, 1, -1}; }},
  };
  return entries;
}

}  // namespace

bool is_eltwise(const std::string& op) { return table().count(op) != 0; }

Eltwise eltwise_of(const NodeBuilder& builder) { return table().at(builder.node().op)(builder); }

Bindings eltwise_bindings() {
  Bindings bindings;
  for (const auto& [op, unused] : table()) {
    bindings.emplace_back(op, eltwise);
    bindings.emplace_back("gradient/" + op, gradient);
  }
  return bindings;
}

}  // namespace opdiff::onednn
