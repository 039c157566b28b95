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

Expected<void> check_declared_outputs(const Graph& graph, const std::map<std::string, TensorType>& inferred) {
  for (const ValueInfo& output : graph.outputs) {
    const auto found = inferred.find(output.name);
    if (found == inferred.end()) continue;
    const TensorType& type = found->second;
    bool same = output.dtype == type.dtype;
    if (output.shape && type.shape) {
      same = same && output.shape->size() == type.shape->size();
      for (std::size_t axis = 0; same && axis < output.shape->size(); ++axis) {
        const std::optional<std::int64_t>& declared = (*output.shape)[axis].value;
        same = !declared || *declared == (*type.shape)[axis];
      }
    }
    if (same) continue;
    std::vector<std::string> sizes;
    for (const Dimension& dimension : output.shape.value_or(std::vector<Dimension>{})) {
      sizes.push_back(dimension.value            ? fmt::format("{}", *dimension.value)
                      : dimension.symbol.empty() ? "?"
                                                 : dimension.symbol);
    }
    return make_error("output '{}' is declared as {}[{}], but its node makes {}", output.name, dtype_name(output.dtype),
                      fmt::join(sizes, ","), to_string(type));
  }
  return {};
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
