// oneDNN's view of ONNX tensors: dtypes, dense and strided descriptors, the engine and the stream. Used by
// node_builder.h and by every file in operators/.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>

#include "opdiff_worker.h"

namespace opdiff::onednn {

using sdk::Shape;
using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

dnnl::engine& engine();
dnnl::stream& stream();

std::optional<dnnl::memory::data_type> data_type(const std::string& dtype);  // empty: oneDNN does not know it
bool is_floating(const std::string& dtype);                                  // float, float16 or bfloat16

Dims dims_of(const Shape& shape);  // a scalar becomes {1}: oneDNN has no rank 0
Dims dense_strides(const Dims& dims);

// Row-major. For a dtype that oneDNN does not know: the bytes, as a vector of u8.
Desc dense(const std::string& dtype, const Shape& shape);
Desc dense(dnnl::memory::data_type type, const Dims& dims);
// The layout is oneDNN's to choose.
Desc any_layout(const std::string& dtype, const Dims& dims);

// ONNX's (numpy's) broadcasting. Throws std::invalid_argument.
Shape broadcast(const Shape& a, const Shape& b);
Shape with_leading_ones(const Shape& shape, std::size_t rank);
// `axis` counted from the front; throws std::invalid_argument outside [-rank, rank).
std::size_t normal_axis(std::int64_t axis, std::size_t rank);

// Dense `to` of shape `shape` takes element (i, j, ...) from from[offset + i * strides[0] + j * strides[1] +
// ...].
void copy_strided(const std::byte* from, std::int64_t offset, const Dims& strides, const Shape& shape,
                  std::size_t element_size, std::byte* to);

}  // namespace opdiff::onednn
