#include "plan/inputs.h"

#include "base/rng.h"

namespace opdiff {

TensorMap draw_inputs(const std::map<std::string, TensorType>& types, std::uint64_t seed) {
  TensorMap inputs;
  for (const auto& [name, type] : types) {
    Rng rng(seed, "input " + name);
    const Shape shape = type.shape.value_or(Shape{});
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
    for (double& value : values) {
      value = is_float(type.dtype)           ? rng.normal()
              : type.dtype == DType::boolean ? static_cast<double>(rng.integer(0, 1))
                                             : static_cast<double>(rng.integer(0, 9));
    }
    inputs[name] = Tensor::from_doubles(type.dtype, shape, values);
  }
  return inputs;
}

Expected<SplitInputs> split_inputs(const Graph& graph, TensorMap given, const std::string& file) {
  SplitInputs split;
  split.extra = std::move(given);
  for (const ValueInfo& input : graph.inputs) {
    const auto found = split.extra.find(input.name);
    if (found == split.extra.end()) {
      std::vector<std::string> names;
      for (const auto& [name, tensor] : split.extra) names.push_back(name);
      return make_error("{}: no array for the model's input '{}'; the file has: {}", file, input.name,
                        names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", ")));
    }
    split.inputs[input.name] = std::move(found->second);
    split.extra.erase(found);
  }
  return split;
}

}  // namespace opdiff
