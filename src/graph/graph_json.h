// The JSON objects `tensor` and `graph` of docs/formats/wire.md, both ways: the engine writes them, the C++
// worker SDK reads them. The tensors' bytes are in an arena beside the JSON (graph/arena.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "graph/arena.h"
#include "graph/graph.h"
#include "graph/training.h"

namespace opdiff {

// {"name", "dtype", "shape", "offset"}; adds the bytes to the arena.
nlohmann::json tensor_to_json(std::string_view name, const Tensor& tensor, ArenaBuilder& arena);
// Copies the bytes out of the arena. The error names the tensor and what is wrong with it.
Expected<std::pair<std::string, Tensor>> tensor_from_json(const nlohmann::json& object,
                                                          std::span<const std::byte> arena);

// A list of tensors: the initialisers of a graph, the inputs and outputs of a run.
nlohmann::json tensors_to_json(const TensorMap& tensors, ArenaBuilder& arena);
Expected<TensorMap> tensors_from_json(const nlohmann::json& list, std::span<const std::byte> arena);

nlohmann::json graph_to_json(const Graph& graph, ArenaBuilder& arena);
Expected<Graph> graph_from_json(const nlohmann::json& object, std::span<const std::byte> arena);

// {"cotangents": {TENSOR: COTANGENT}, "gradients": {TENSOR: GRADIENT}, "backward": [node ids]}.
nlohmann::json training_to_json(const Training& training);

// Numbers of the wire: non-finite ones are the strings "nan", "inf", "-inf".
nlohmann::json number_to_json(double value);
Expected<double> number_from_json(const nlohmann::json& value);

}  // namespace opdiff
