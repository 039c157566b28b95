// Cast in forms.
#pragma once

#include "forms/builder.h"

namespace opdiff {

inline std::string cast(SideBuilder& side, const std::string& x, DType to) {
  return side.node("Cast", {x}, {{"to", std::int64_t{onnx_code(to)}}});
}

}  // namespace opdiff
