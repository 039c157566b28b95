// Small graphs that the tests of this folder share, and their comparison.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace opdiff::testing_graphs {

inline std::vector<Dimension> dimensions(const std::vector<std::int64_t>& sizes) {
  std::vector<Dimension> result;
  for (const std::int64_t size : sizes) result.push_back({size, ""});
  return result;
}

// id is the first output's name.
inline Node node(std::string op, std::vector<std::string> inputs, std::vector<std::string> outputs,
                 std::map<std::string, Attribute> attributes = {}) {
  return {outputs.at(0), std::move(op), "", std::move(inputs), outputs, std::move(attributes)};
}

// x -> Conv(w) -> Relu -> Gemm(g, b) -> y.
inline Graph small_net() {
  Graph graph;
  graph.name = "small";
  graph.initialisers["w"] = Tensor::from_doubles(DType::f32, {2, 1, 1, 1}, std::vector<double>{1, -2});
  graph.initialisers["g"] = Tensor::from_doubles(DType::f32, {2, 2}, std::vector<double>{1, 2, 3, 4});
  graph.initialisers["b"] = Tensor::from_doubles(DType::f32, {2}, std::vector<double>{0.5, -0.5});
  graph.inputs = {{"x", DType::f32, std::vector<Dimension>{{std::nullopt, "batch"}, {1, ""}, {1, ""}, {1, ""}}}};
  graph.outputs = {{"y", DType::f32, std::vector<Dimension>{{std::nullopt, "batch"}, {2, ""}}}};
  graph.nodes = {node("Conv", {"x", "w"}, {"c"}, {{"strides", std::vector<std::int64_t>{1, 1}}}),
                 node("Relu", {"c"}, {"r"}), node("Flatten", {"r"}, {"f"}, {{"axis", std::int64_t{1}}}),
                 node("Gemm", {"f", "g", "b"}, {"y"}, {{"alpha", 0.1f}})};
  return graph;
}

inline Graph every_kind_of_attribute() {
  Graph graph = small_net();
  graph.ir_version = 9;
  graph.opsets = {{"", 19}, {"com.example", 1}};
  graph.values = {{"c", DType::f32, std::nullopt}, {"r", DType::f32, std::vector<Dimension>{{}, {2, ""}}}};
  Node custom = node("Custom", {"x", "", "w"}, {"z", "", "q"});
  custom.id = "my custom";
  custom.domain = "com.example";
  custom.attributes = {
      {"i", std::int64_t{-5}},
      {"f", -INFINITY},
      {"n", NAN},
      {"s", std::string("caf\xc3\xa9")},
      {"t", Tensor::from_doubles(DType::bf16, {2}, std::vector<double>{1, 2})},
      {"t0", Tensor::from_doubles(DType::f64, {}, std::vector<double>{0.1})},
      {"te", Tensor::zeros(DType::i64, {0, 3})},
      {"is", std::vector<std::int64_t>{1, -2, std::int64_t{1} << 62}},
      {"is0", std::vector<std::int64_t>{}},
      {"fs", std::vector<float>{0.1f, -0.0f}},
      {"fs0", std::vector<float>{}},
      {"ss", std::vector<std::string>{"a", ""}},
      {"ss0", std::vector<std::string>{}},
      {"g", std::make_shared<Graph>(small_net())},
  };
  std::get<std::shared_ptr<Graph>>(custom.attributes["g"])->ir_version = graph.ir_version;
  std::get<std::shared_ptr<Graph>>(custom.attributes["g"])->opsets = graph.opsets;
  graph.nodes.push_back(custom);
  int k = 0;
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16, DType::i8, DType::i16, DType::i32, DType::i64,
                            DType::u8, DType::u16, DType::u32, DType::u64, DType::boolean})
    graph.initialisers["d" + std::to_string(k++)] =
        Tensor::from_doubles(dtype, {3}, std::vector<double>{0, 1, dtype == DType::boolean ? 1.0 : 100.0});
  return graph;
}

inline void expect_same(const Graph& a, const Graph& b);

inline void expect_same(const std::vector<ValueInfo>& a, const std::vector<ValueInfo>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].dtype, b[i].dtype) << a[i].name;
    ASSERT_EQ(a[i].shape.has_value(), b[i].shape.has_value()) << a[i].name;
    if (!a[i].shape) continue;
    ASSERT_EQ(a[i].shape->size(), b[i].shape->size()) << a[i].name;
    for (std::size_t k = 0; k < a[i].shape->size(); ++k) {
      EXPECT_EQ((*a[i].shape)[k].value, (*b[i].shape)[k].value) << a[i].name;
      EXPECT_EQ((*a[i].shape)[k].symbol, (*b[i].shape)[k].symbol) << a[i].name;
    }
  }
}

inline void expect_same(const std::string& name, const Attribute& a, const Attribute& b) {
  ASSERT_EQ(a.index(), b.index()) << name;
  if (const auto* tensor = std::get_if<Tensor>(&a)) {
    EXPECT_TRUE(tensor->bit_equal(std::get<Tensor>(b))) << name;
  } else if (const auto* graph = std::get_if<std::shared_ptr<Graph>>(&a)) {
    expect_same(**graph, *std::get<std::shared_ptr<Graph>>(b));
  } else if (const auto* number = std::get_if<float>(&a); number && std::isnan(*number)) {
    EXPECT_TRUE(std::isnan(std::get<float>(b))) << name;
  } else {
    std::visit(
        [&](const auto& value) {
          using T = std::decay_t<decltype(value)>;
          if constexpr (!std::is_same_v<T, Tensor>) {
            EXPECT_EQ(value, std::get<T>(b)) << name;
          }
        },
        a);
  }
}

inline void expect_same(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.ir_version, b.ir_version);
  EXPECT_EQ(a.opsets, b.opsets);
  expect_same(a.inputs, b.inputs);
  expect_same(a.outputs, b.outputs);
  expect_same(a.values, b.values);
  ASSERT_EQ(a.initialisers.size(), b.initialisers.size());
  for (const auto& [name, tensor] : a.initialisers) {
    ASSERT_TRUE(b.initialisers.contains(name)) << name;
    EXPECT_TRUE(tensor.bit_equal(b.initialisers.at(name))) << name;
  }
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    const Node& x = a.nodes[i];
    const Node& y = b.nodes[i];
    EXPECT_EQ(x.id, y.id);
    EXPECT_EQ(x.op, y.op);
    EXPECT_EQ(x.domain, y.domain);
    EXPECT_EQ(x.inputs, y.inputs);
    EXPECT_EQ(x.outputs, y.outputs);
    ASSERT_EQ(x.attributes.size(), y.attributes.size()) << x.id;
    for (const auto& [name, attribute] : x.attributes) {
      ASSERT_TRUE(y.attributes.contains(name)) << name;
      expect_same(name, attribute, y.attributes.at(name));
    }
  }
}

}  // namespace opdiff::testing_graphs
