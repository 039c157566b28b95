// Writes a Graph as an ONNX model, with the opsets and the IR version that it has. The same graph gives the
// same bytes. graph/onnx_reader.h is the other way.
#pragma once

#include <filesystem>
#include <string>

#include "graph/graph.h"

namespace opdiff {

// Which outputs are written with a type. Declared: all, as in the graph. Known: not those that are f32 of unknown rank,
// which is how an output that nobody declared stands in a graph; a framework that imports the model infers them.
enum class OutputTypes { declared, known };

// A serialised ModelProto; node names are the ids. CHECKs that it stays under protobuf's 2 GiB, which every
// graph that was read and every part of one does.
std::string write_onnx(const Graph& graph, OutputTypes types = OutputTypes::declared);
// Atomically.
Expected<void> write_onnx_file(const Graph& graph, const std::filesystem::path& path);

}  // namespace opdiff
