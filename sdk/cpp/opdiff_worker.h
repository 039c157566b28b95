// What the author of a C++ backend writes against: derive from Backend and Model, call serve() from main().
// The loop and the replies are in opdiff_worker.cpp, frames and arenas in opdiff_wire.cpp; both implement
// docs/formats/wire.md. Needs the standard library and nlohmann-json, nothing else of opdiff.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace opdiff::sdk {

using Shape = std::vector<std::int64_t>;

// Throw it for what the backend cannot do: the outcome is `unsupported`. std::bad_alloc becomes
// `out-of-memory` and any other std::exception `error`; what() is the reason that the user reads.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bytes of one element of an ONNX dtype ("float", "bfloat16", "int64", "bool", ...). Throws
// std::invalid_argument.
std::size_t element_size(const std::string& dtype);
// Number of elements. Throws std::invalid_argument for a negative dimension, std::bad_alloc above 2^46.
std::size_t element_count(const Shape& shape);
std::string to_string(const Shape& shape);  // "[2, 3]"

// Owned memory, 64-byte aligned, between two guard zones, filled with 0xff: an element that a kernel forgets
// to write reads as NaN, and a write past either end is found by intact().
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }
  bool intact() const;

 private:
  std::shared_ptr<std::byte> data_;
  std::size_t bytes_ = 0;
};

// Dense, row-major, little-endian. Inputs of a run are views, valid until Model::run returns; everything else
// owns its memory through `buffer`.
struct Tensor {
  std::string dtype;
  Shape shape;
  const std::byte* data = nullptr;
  Buffer buffer;

  static Tensor allocate(const std::string& dtype, const Shape& shape);
  static Tensor owning(const std::string& dtype, const Shape& shape, Buffer buffer);
  std::size_t elements() const { return element_count(shape); }
  std::size_t bytes() const { return elements() * element_size(dtype); }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
  template <typename T>
  T* mutable_as() const {
    return reinterpret_cast<T*>(buffer.data());
  }
};

using TensorMap = std::map<std::string, Tensor>;

struct Attribute {
  enum class Kind { integer, real, string, integers, reals, strings, tensor } kind = Kind::integer;
  std::int64_t integer = 0;
  double real = 0;
  std::string string;
  std::vector<std::int64_t> integers;
  std::vector<double> reals;
  std::vector<std::string> strings;
  Tensor tensor;
};

struct Node {
  std::string id;  // unique; the name in every message and report
  std::string op;
  std::string domain;
  std::vector<std::string> inputs;  // "" where an optional one is left out
  std::vector<std::string> outputs;
  std::map<std::string, Attribute> attributes;

  // Each gives `missing` when the attribute is not there and throws std::invalid_argument when it has another
  // type.
  bool has(const std::string& name) const { return attributes.count(name) != 0; }
  std::int64_t integer(const std::string& name, std::int64_t missing) const;
  double real(const std::string& name, double missing) const;
  std::string string(const std::string& name, const std::string& missing) const;
  std::vector<std::int64_t> integers(const std::string& name, const std::vector<std::int64_t>& missing) const;
};

struct ValueInfo {
  std::string name;
  std::string dtype;
  Shape shape;
  bool shape_known = false;
};

struct Graph {
  std::string name;
  std::int64_t opset = 0;  // of the default domain
  std::map<std::string, std::int64_t> opsets;
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  TensorMap initialisers;
  std::vector<Node> nodes;       // in an order in which they can be run
  std::vector<std::byte> model;  // the same as ONNX bytes, for importing backends
  bool isolated = false;         // the nodes share no edge: keep them so, report each one's failure by itself
  bool profile = false;          // measure the time of every node
  bool kernels = false;          // Model::kernels will be asked
};

struct Failure {
  std::string outcome;  // "unsupported", "error" or "out-of-memory"
  std::string reason;
};

// The failure that the exception being handled stands for. Call it inside a catch block.
Failure current_failure();

struct RunResult {
  TensorMap outputs;                        // by graph output name
  std::map<std::string, double> node_ms;    // by node id, where known
  std::map<std::string, Failure> failures;  // by node id, isolated graphs only
};

// One call of the framework's own that is executed for a graph.
struct Kernel {
  std::string name;
  std::vector<std::string> nodes;  // ids of those that it stands for; empty where that is not known, or none
};

// A graph made ready to run.
class Model {
 public:
  virtual ~Model() = default;
  // `inputs` holds every graph input, with the declared dtype, and the declared shape where one is declared.
  virtual RunResult run(const TensorMap& inputs) = 0;
  // What is executed. Asked, where Graph::kernels is set, after `prepare` and, as long as the answer is nothing (not
  // known), after each run.
  virtual std::optional<std::vector<Kernel>> kernels() { return std::nullopt; }
};

struct Hello {
  std::string name;
  std::string version;
  std::string build;
  std::string device = "cpu";
  std::string isa;
  std::vector<std::string> operators;
  std::vector<std::string> dtypes;
  std::vector<std::string> passes;
  bool gradient = false;
  bool importing = false;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Called once, first. `options` are the key=value pairs of the backend spec; refuse what you do not know.
  virtual Hello hello(const std::map<std::string, std::string>& options) = 0;
  virtual std::unique_ptr<Model> prepare(Graph graph) = 0;
};

// Answers requests on file descriptor 3 until `bye` or until the engine goes. Returns the process's exit
// status.
int serve(Backend& backend);

}  // namespace opdiff::sdk
