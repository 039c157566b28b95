#include "ops/axes.h"

namespace opdiff {

Expected<IntegerList> integer_list(const Call& call, const std::string& name, int input, int since) {
  if (call.opset() < since) {
    if (call.has(input))
      return make_error("input {} ('{}') is given, but it is an input from opset {} on", input, name, since);
    return IntegerList{call.has_attribute(name), true, call.integers(name)};
  }
  if (!call.has(input)) return IntegerList{};
  if (call.dtype(input) != DType::i64 && call.dtype(input) != DType::i32)
    return make_error("input {} ('{}') has type {}, expected int64", input, name, dtype_name(call.dtype(input)));
  if (call.rank(input) > 1)
    return make_error("input {} ('{}') has shape {}, expected one dimension", input, name,
                      to_string(call.shape(input)));
  if (!call.tensor(input)) return IntegerList{true, false, {}};
  return IntegerList{true, true, call.tensor(input)->to_int64s()};
}

Expected<std::vector<int>> normalise_axes(const std::vector<std::int64_t>& axes, std::int64_t rank) {
  std::vector<int> result;
  for (const std::int64_t axis : axes) {
    const auto positive = normalise_axis(axis, rank);
    if (!positive) return make_error("'axes' is {}: {}", to_string(axes), positive.error().message);
    if (contains(result, *positive)) return make_error("'axes' is {}: axis {} comes twice", to_string(axes), *positive);
    result.push_back(*positive);
  }
  return result;
}

}  // namespace opdiff
