#include "opdiff_worker.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "opdiff_wire.h"

namespace opdiff::sdk {
namespace {

using nlohmann::json;

constexpr int kSocket = 3;
constexpr std::size_t kGuard = 64;
constexpr std::byte kGuardByte{0xc5};
constexpr std::size_t kMostElements = std::size_t{1} << 46;

double cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// What `--profile` preloads (sdk/preload); null without it.
struct MemoryCounter {
  void (*reset)() = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "opdiff_peak_reset"));
  std::int64_t (*peak)() = reinterpret_cast<std::int64_t (*)()>(dlsym(RTLD_DEFAULT, "opdiff_peak_bytes"));
  std::int64_t (*held)() = reinterpret_cast<std::int64_t (*)()>(dlsym(RTLD_DEFAULT, "opdiff_held_bytes"));
  explicit operator bool() const { return reset && peak && held; }
};

[[noreturn]] void wrong_type(const Node& node, const std::string& name, const char* expected) {
  throw std::invalid_argument("attribute '" + name + "' of " + node.op + " is not " + expected);
}

struct Prepared {
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  std::unique_ptr<Model> model;
  std::int64_t held_bytes = 0;  // what the backend made in `prepare`: its outputs' buffers, often
  bool tell_kernels = false;    // they are asked for and not known yet
};

struct Reply {
  json body = json::object();
  std::optional<TensorMap> outputs;
};

// The state of one worker: what `hello` has set up and what `prepare` has made.
class Worker {
 public:
  explicit Worker(Backend& backend) : backend_(backend) {}

  Reply answer(const std::string& verb, const Frame& frame) {
    if (verb == "hello") return hello(frame);
    if (verb == "bye") return {};
    if (!greeted_) throw std::invalid_argument("'" + verb + "' before 'hello'; send 'hello' first");
    if (verb == "prepare") return prepare(frame);
    if (verb == "run" || verb == "gradient" || verb == "step") return run(frame);
    if (verb == "release") {
      prepared_.erase(frame.json.at("handle").get<std::int64_t>());
      return {};
    }
    throw Unsupported("this worker has no verb '" + verb + "'");
  }

 private:
  Reply hello(const Frame& frame) {
    std::map<std::string, std::string> options;
    if (frame.json.contains("options")) options = frame.json["options"].get<std::map<std::string, std::string>>();
    const Hello about = backend_.hello(options);
    greeted_ = true;
    Reply reply;
    reply.body = {{"name", about.name},          {"version", about.version},   {"build", about.build},
                  {"device", about.device},      {"isa", about.isa},           {"operators", about.operators},
                  {"dtypes", about.dtypes},      {"gradient", about.gradient}, {"passes", about.passes},
                  {"importing", about.importing}};
    return reply;
  }

  Reply prepare(const Frame& frame) {
    const auto handle = frame.json.at("handle").get<std::int64_t>();
    prepared_.erase(handle);
    Graph graph = parse_graph(frame.json.at("graph"), frame.arena);
    graph.isolated = frame.json.value("isolated", false);
    graph.profile = frame.json.value("profile", false);
    graph.kernels = frame.json.value("kernels", false);
    if (frame.json.contains("model") && frame.json["model"].is_object()) {
      const auto& model = frame.json["model"];
      const auto bytes = model.at("bytes").get<std::uint64_t>();
      const std::byte* data = frame.arena.part(model.at("offset").get<std::uint64_t>(), bytes);
      graph.model.assign(data, data + bytes);
    }
    Prepared prepared{graph.inputs, graph.outputs, nullptr, 0, graph.kernels};
    if (memory_) memory_.reset();
    prepared.model = backend_.prepare(std::move(graph));
    if (memory_) prepared.held_bytes = memory_.held();
    Reply reply;
    add_kernels(prepared, reply);
    prepared_[handle] = std::move(prepared);
    return reply;
  }

  static void add_kernels(Prepared& prepared, Reply& reply) {
    if (!prepared.tell_kernels) return;
    const auto kernels = prepared.model->kernels();
    if (!kernels) return;
    prepared.tell_kernels = false;
    json& list = reply.body["kernels"] = json::array();
    for (const auto& kernel : *kernels) list.push_back({{"kernel", kernel.name}, {"nodes", kernel.nodes}});
  }

  Reply run(const Frame& frame) {
    const auto handle = frame.json.at("handle").get<std::int64_t>();
    const auto found = prepared_.find(handle);
    if (found == prepared_.end()) throw std::invalid_argument("handle " + std::to_string(handle) + " is not prepared");
    Prepared& prepared = found->second;
    const TensorMap inputs = read_inputs(prepared, frame);
    const auto repeat = frame.json.value("repeat", std::int64_t{1});
    if (repeat < 1) throw std::invalid_argument("repeat is " + std::to_string(repeat) + "; it is at least 1");

    RunResult result;
    json wall = json::array(), peaks = json::array();
    const double cpu_start = cpu_ms();
    for (std::int64_t i = 0; i < repeat; ++i) {
      result = {};
      if (memory_) memory_.reset();
      const auto start = std::chrono::steady_clock::now();
      result = prepared.model->run(inputs);
      wall.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
      if (memory_) peaks.push_back(prepared.held_bytes + memory_.peak());
    }
    Reply reply;
    reply.body["cpu_ms"] = cpu_ms() - cpu_start;
    reply.body["wall_ms"] = std::move(wall);
    if (memory_) reply.body["peak_bytes"] = std::move(peaks);
    reply.body["node_ms"] = result.node_ms;
    add_kernels(prepared, reply);
    reply.body["failures"] = json::object();
    for (const auto& [id, failure] : result.failures)
      reply.body["failures"][id] = {{"outcome", failure.outcome}, {"reason", failure.reason}};
    reply.body["outputs"] = json::array();
    check_outputs(prepared, result);
    if (!result.outputs.empty()) reply.outputs = std::move(result.outputs);
    return reply;
  }

  static TensorMap read_inputs(const Prepared& prepared, const Frame& frame) {
    TensorMap inputs;
    for (const auto& value : frame.json.at("inputs"))
      inputs[value.at("name").get<std::string>()] = parse_tensor(value, frame.arena, false);
    for (const auto& expected : prepared.inputs) {
      const auto found = inputs.find(expected.name);
      if (found == inputs.end()) throw std::invalid_argument("graph input '" + expected.name + "' is missing");
      if (!expected.dtype.empty() && found->second.dtype != expected.dtype) {
        throw std::invalid_argument("graph input '" + expected.name + "' has dtype " + found->second.dtype +
                                    ", declared " + expected.dtype);
      }
      if (expected.shape_known && found->second.shape != expected.shape) {
        throw std::invalid_argument("graph input '" + expected.name + "' has shape " + to_string(found->second.shape) +
                                    ", declared " + to_string(expected.shape));
      }
    }
    return inputs;
  }

  static void check_outputs(const Prepared& prepared, const RunResult& result) {
    for (const auto& [name, tensor] : result.outputs) {
      if (!tensor.buffer.intact())
        throw std::runtime_error("the backend wrote outside the buffer of output '" + name + "'");
    }
    if (!result.failures.empty()) return;
    for (const auto& expected : prepared.outputs) {
      if (!result.outputs.count(expected.name))
        throw std::runtime_error("the backend gave no graph output '" + expected.name + "'");
    }
  }

  Backend& backend_;
  const MemoryCounter memory_;
  bool greeted_ = false;
  std::map<std::int64_t, Prepared> prepared_;
};

}  // namespace

std::size_t element_size(const std::string& dtype) {
  static const std::map<std::string, std::size_t> sizes = {
      {"double", 8}, {"float", 4}, {"float16", 2}, {"bfloat16", 2}, {"int8", 1},   {"int16", 2}, {"int32", 4},
      {"int64", 8},  {"uint8", 1}, {"uint16", 2},  {"uint32", 4},   {"uint64", 8}, {"bool", 1},
  };
  const auto found = sizes.find(dtype);
  if (found == sizes.end()) throw std::invalid_argument("dtype '" + dtype + "' is not one of the wire's");
  return found->second;
}

std::size_t element_count(const Shape& shape) {
  std::size_t count = 1;
  bool empty = false;
  for (const auto dimension : shape) {
    if (dimension < 0) throw std::invalid_argument("shape " + to_string(shape) + " has a negative dimension");
    if (dimension == 0) empty = true;
  }
  if (empty) return 0;
  for (const auto dimension : shape) {
    if (static_cast<std::size_t>(dimension) > kMostElements / count) throw std::bad_alloc();
    count *= static_cast<std::size_t>(dimension);
  }
  return count;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  // The end guard starts right behind the last byte, so that an overrun of one byte is seen too.
  const std::size_t total = (bytes + 2 * kGuard + kGuard - 1) / kGuard * kGuard;
  auto* whole = static_cast<std::byte*>(std::aligned_alloc(kGuard, total));
  if (!whole) throw std::bad_alloc();
  std::memset(whole, static_cast<int>(kGuardByte), kGuard);
  std::memset(whole + kGuard, 0xff, bytes);
  std::memset(whole + kGuard + bytes, static_cast<int>(kGuardByte), total - kGuard - bytes);
  data_ = std::shared_ptr<std::byte>(whole + kGuard, [whole](std::byte*) { std::free(whole); });
}

bool Buffer::intact() const {
  if (!data_) return true;
  const auto guard = [](std::byte value) { return value == kGuardByte; };
  const std::byte* end = data_.get() + bytes_;
  return std::all_of(data_.get() - kGuard, data_.get(), guard) && std::all_of(end, end + kGuard, guard);
}

Tensor Tensor::allocate(const std::string& dtype, const Shape& shape) {
  return owning(dtype, shape, Buffer(element_count(shape) * element_size(dtype)));
}

Tensor Tensor::owning(const std::string& dtype, const Shape& shape, Buffer buffer) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.data = buffer.data();
  tensor.buffer = std::move(buffer);
  return tensor;
}

std::int64_t Node::integer(const std::string& name, std::int64_t missing) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return missing;
  if (found->second.kind != Attribute::Kind::integer) wrong_type(*this, name, "an integer");
  return found->second.integer;
}

double Node::real(const std::string& name, double missing) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return missing;
  if (found->second.kind != Attribute::Kind::real) wrong_type(*this, name, "a float");
  return found->second.real;
}

std::string Node::string(const std::string& name, const std::string& missing) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return missing;
  if (found->second.kind != Attribute::Kind::string) wrong_type(*this, name, "a string");
  return found->second.string;
}

std::vector<std::int64_t> Node::integers(const std::string& name, const std::vector<std::int64_t>& missing) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return missing;
  if (found->second.kind != Attribute::Kind::integers) wrong_type(*this, name, "a list of integers");
  return found->second.integers;
}

Failure current_failure() {
  try {
    throw;
  } catch (const Unsupported& problem) {
    return {"unsupported", problem.what()};
  } catch (const std::bad_alloc&) {
    return {"out-of-memory", "the worker could not get the memory that it asked for"};
  } catch (const std::exception& problem) {
    return {"error", problem.what()};
  } catch (...) {
    return {"error", "the backend threw something that is not a std::exception"};
  }
}

int serve(Backend& backend) {
  fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  Worker worker(backend);
  try {
    while (auto frame = receive_frame(kSocket)) {
      const json& request = frame->json;
      json reply = {{"protocol", 1}, {"id", request.contains("id") ? request["id"] : json()}};
      std::string verb;
      std::optional<TensorMap> outputs;
      try {
        if (request.value("protocol", 0) != 1)
          throw std::invalid_argument("the request is not of protocol 1; engine and worker differ in version");
        verb = request.at("verb").get<std::string>();
        Reply answer = worker.answer(verb, *frame);
        reply.update(answer.body);
        reply["outcome"] = "ok";
        outputs = std::move(answer.outputs);
        if (outputs) send_frame(kSocket, reply, &*outputs);
      } catch (const ProtocolError&) {
        throw;
      } catch (...) {
        const Failure failure = current_failure();
        reply = {{"protocol", 1}, {"id", reply["id"]}, {"outcome", failure.outcome}, {"reason", failure.reason}};
        outputs.reset();
      }
      if (!outputs) send_frame(kSocket, reply, nullptr);
      if (verb == "bye") return 0;
    }
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "opdiff worker: %s\n", problem.what());
    return 1;
  }
}

}  // namespace opdiff::sdk
