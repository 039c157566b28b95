#include "workers/worker_backend.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/utf8.h"
#include "graph/graph_json.h"
#include "graph/onnx_writer.h"
#include "workers/reply.h"

namespace opdiff {

WorkerBackend::WorkerBackend(Launch launch, const WorkerLimits& limits) : launch_(std::move(launch)), limits_(limits) {}

WorkerBackend::~WorkerBackend() {
  if (!process_) return;
  constexpr double kFarewell = 0.5;  // seconds; what does not go by itself is killed
  nlohmann::json reply;
  FileDescriptor arena;
  if (call({{"verb", "bye"}}, nullptr, kFarewell, &reply, &arena).ok() && process_) process_->finish(kFarewell);
}

Expected<std::unique_ptr<WorkerBackend>> WorkerBackend::start(Launch launch, const WorkerLimits& limits,
                                                              bool even_dead) {
  std::unique_ptr<WorkerBackend> backend(new WorkerBackend(std::move(launch), limits));
  const Outcome outcome = backend->ensure_alive();
  if (outcome.ok()) return backend;
  if (outcome.kind == OutcomeKind::error || !even_dead) {
    return make_error("backend '{}': {}", backend->launch_.spec, outcome.reason);
  }
  backend->info_.spec = backend->launch_.spec;
  backend->death_at_start_ = outcome;
  return backend;
}

Outcome WorkerBackend::ensure_alive() {
  // A framework that dies whenever it is imported is not tried for every node; one that came up once is.
  constexpr int kStarts = 3;
  if (death_at_start_) return *std::exchange(death_at_start_, std::nullopt);
  if (process_) return {};
  if (info_.name.empty() && deaths_at_start_ == kStarts) return last_death_;
  auto started = WorkerProcess::start(launch_.program);
  if (!started) return Outcome::failure(OutcomeKind::error, started.error().message);
  process_ = *std::move(started);
  Outcome outcome = say_hello();
  if (!outcome.ok()) {
    ++deaths_at_start_;
    last_death_ = outcome;
  }
  return outcome;
}

Outcome WorkerBackend::say_hello() {
  nlohmann::json reply;
  FileDescriptor arena;
  Outcome outcome =
      call({{"verb", "hello"}, {"options", launch_.options}}, nullptr, limits_.hello_seconds, &reply, &arena);
  if (!outcome.ok()) {
    if (process_) process_.reset();
    return outcome;
  }
  auto info = read_hello(reply);
  if (!info) return broke_protocol(info.error().message);
  info_ = *std::move(info);
  info_.spec = launch_.spec;
  return {};
}

Outcome WorkerBackend::died(Outcome outcome) {
  process_.reset();
  for (auto& [handle, prepared] : handles_) {
    if (prepared.death.empty()) prepared.death = outcome.reason;
  }
  return outcome;
}

Outcome WorkerBackend::broke_protocol(std::string_view what) {
  return died(process_->kill(OutcomeKind::crash, fmt::format("it broke the protocol: {}", what)));
}

Outcome WorkerBackend::call(nlohmann::json request, const ArenaBuilder* arena, double seconds, nlohmann::json* reply,
                            FileDescriptor* reply_arena) {
  const std::int64_t id = next_id_++;
  request["protocol"] = kProtocol;
  request["id"] = id;
  WireFrame frame;
  frame.body = request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  request = nullptr;
  if (frame.body.size() > kMaximumFrame) {
    return Outcome::failure(OutcomeKind::error,
                            fmt::format("the graph is too large for the wire: {} bytes of JSON; at most {}",
                                        frame.body.size(), kMaximumFrame));
  }
  if (arena) {
    auto made = make_arena(*arena);
    if (!made) return Outcome::failure(OutcomeKind::out_of_memory, made.error().message);
    frame.arena = *std::move(made);
  }
  auto answered = process_->exchange(std::move(frame), Limits{seconds, limits_.resident_bytes, limits_.interrupted});
  if (!answered) return died(std::move(answered.error()));
  auto parsed = parse_reply(answered->body, id);
  if (!parsed) return broke_protocol(parsed.error().message);
  if (parsed->outcome != OutcomeKind::ok) return Outcome::failure(parsed->outcome, parsed->reason);
  *reply = std::move(parsed->body);
  *reply_arena = std::move(answered->arena);
  return {};
}

Outcome WorkerBackend::prepare(const Graph& graph, const PrepareOptions& options, int* handle) {
  const std::lock_guard lock(mutex_);
  Outcome outcome = ensure_alive();
  if (!outcome.ok()) return outcome;
  ArenaBuilder arena;
  nlohmann::json request = {{"verb", "prepare"}, {"handle", next_handle_}};
  request["isolated"] = options.isolated;
  request["profile"] = options.profile;
  request["kernels"] = options.kernels;
  request["graph"] = graph_to_json(graph, arena);
  if (info_.importing) {
    std::string model = write_onnx(graph, OutputTypes::known);
    const std::size_t bytes = model.size();
    request["model"] = {{"offset", arena.add(std::move(model))}, {"bytes", bytes}};
  }
  if (options.training) request["training"] = training_to_json(*options.training);
  nlohmann::json reply;
  FileDescriptor reply_arena;
  outcome = call(std::move(request), &arena, limits_.prepare_seconds, &reply, &reply_arena);
  if (!outcome.ok()) return outcome;
  Prepared prepared;
  prepared.isolated = options.isolated;
  if (options.training) prepared.verb = options.training->updates ? "step" : "gradient";
  for (const auto& output : graph.outputs) prepared.outputs.push_back(output.name);
  if (options.kernels) {
    prepared.nodes.emplace();
    for (const auto& node : graph.nodes) prepared.nodes->insert(node.id);
  }
  outcome = told_kernels(reply, prepared);
  if (!outcome.ok()) return outcome;
  *handle = next_handle_++;
  handles_[*handle] = std::move(prepared);
  return outcome;
}

Outcome WorkerBackend::run(int handle, const TensorMap& inputs, int repeat) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) {
    return Outcome::failure(OutcomeKind::error, fmt::format("internal error: graph {} was not prepared", handle));
  }
  if (!found->second.death.empty()) {
    return Outcome::failure(OutcomeKind::crash, "its worker is gone: " + found->second.death);
  }
  ArenaBuilder arena;
  nlohmann::json request = {{"verb", found->second.verb}, {"handle", handle}, {"repeat", repeat}};
  request["inputs"] = tensors_to_json(inputs, arena);
  nlohmann::json reply;
  FileDescriptor reply_arena;
  Outcome outcome = call(std::move(request), &arena, limits_.run_seconds * repeat, &reply, &reply_arena);
  if (!outcome.ok()) return outcome;
  outcome = told_kernels(reply, found->second);
  if (!outcome.ok()) return outcome;
  Outcome run = read_run_reply(reply, reply_arena, found->second);
  run.kernels = std::move(outcome.kernels);
  return run;
}

Outcome WorkerBackend::told_kernels(const nlohmann::json& reply, Prepared& prepared) {
  Outcome outcome;
  if (!prepared.nodes) return outcome;
  auto kernels = read_kernels(reply, *prepared.nodes);
  if (!kernels) return broke_protocol(kernels.error().message);
  if (*kernels) prepared.kernels = *std::move(kernels);
  outcome.kernels = prepared.kernels;
  return outcome;
}

Outcome WorkerBackend::read_run_reply(const nlohmann::json& reply, const FileDescriptor& arena,
                                      const Prepared& prepared) {
  auto run = read_run(reply, arena, limits_.resident_bytes > 0 ? limits_.resident_bytes : machine_memory() / 4 * 3);
  if (!run) return broke_protocol(run.error().message);
  const std::set<std::string> wanted(prepared.outputs.begin(), prepared.outputs.end());
  for (const auto& [name, tensor] : run->outputs) {
    if (!wanted.contains(name)) {
      return Outcome::failure(OutcomeKind::error,
                              fmt::format("the worker returned '{}', which is no output of the graph", name));
    }
  }
  for (const auto& name : wanted) {
    if (!run->outputs.contains(name) && (!prepared.isolated || run->node_failures.empty())) {
      return Outcome::failure(OutcomeKind::error, fmt::format("the worker returned no output '{}'", name));
    }
  }
  return *std::move(run);
}

void WorkerBackend::release(int handle) {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(handle);
  if (found == handles_.end()) return;
  const bool held = found->second.death.empty();
  handles_.erase(found);
  nlohmann::json reply;
  FileDescriptor arena;
  // A failure to release is the next call's news.
  if (held && process_) call({{"verb", "release"}, {"handle", handle}}, nullptr, limits_.run_seconds, &reply, &arena);
}

}  // namespace opdiff
