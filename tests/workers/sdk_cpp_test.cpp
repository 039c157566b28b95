// The C++ SDK from the engine's side: what a worker (scale_worker.cpp) does, and what becomes of its faults.
#include <gtest/gtest.h>

#include <cmath>

#include "workers/worker_backend.h"

namespace opdiff {
namespace {

std::unique_ptr<WorkerBackend> start(std::map<std::string, std::string> options = {}) {
  Launch launch{"scale", {{OPDIFF_BINARY_DIR "/tests/scale_worker"}, {}}, std::move(options)};
  auto backend = WorkerBackend::start(std::move(launch), {});
  EXPECT_TRUE(backend) << backend.error().message;
  return backend ? *std::move(backend) : nullptr;
}

Graph mul(const std::string& op = "Mul") {
  Graph graph;
  graph.inputs = {{"x", DType::f32, std::vector<Dimension>{{2, ""}, {std::nullopt, "n"}}}};
  graph.outputs = {{"y", DType::f32, std::nullopt}};
  graph.initialisers["factor"] = Tensor::scalar_like(DType::f32, 3.0);
  graph.nodes = {{"scale", op, "", {"x", "factor"}, {"y"}, {}}};
  return graph;
}

TensorMap inputs() { return {{"x", Tensor::from_doubles(DType::f32, {2, 2}, std::vector<double>{1, -2, 0.5, 4})}}; }

Outcome run_with(const std::string& fault) {
  const auto backend = start({{"fault", fault}});
  PrepareOptions options;
  options.isolated = true;
  return run_once(*backend, mul(), inputs(), options);
}

TEST(SdkCpp, SaysHelloAndRuns) {
  const auto backend = start();
  EXPECT_EQ(backend->info().name, "scale");
  EXPECT_EQ(backend->info().operators, std::vector<std::string>{"Mul"});
  int handle = 0;
  ASSERT_TRUE(backend->prepare(mul(), {}, &handle).ok());
  const Outcome outcome = backend->run(handle, inputs(), 3);
  ASSERT_TRUE(outcome.ok()) << outcome.reason;
  EXPECT_EQ(outcome.wall_ms.size(), 3u);
  EXPECT_EQ(outcome.outputs.at("y").to_doubles(), (std::vector<double>{3, -6, 1.5, 12}));
  EXPECT_EQ(outcome.outputs.at("y").shape(), (Shape{2, 2}));
}

TEST(SdkCpp, UnsupportedNamesTheNode) {
  const Outcome outcome = run_once(*start(), mul("Add"), inputs());
  EXPECT_EQ(outcome.kind, OutcomeKind::unsupported);
  EXPECT_NE(outcome.reason.find("'scale'"), std::string::npos) << outcome.reason;
}

TEST(SdkCpp, RefusesAnUnknownOption) {
  Launch launch{"scale", {{OPDIFF_BINARY_DIR "/tests/scale_worker"}, {}}, {{"colour", "red"}}};
  const auto backend = WorkerBackend::start(std::move(launch), {});
  ASSERT_FALSE(backend);
  EXPECT_NE(backend.error().message.find("colour"), std::string::npos) << backend.error().message;
}

TEST(SdkCpp, MissingInputIsAnError) {
  const Outcome outcome = run_once(*start(), mul(), {});
  EXPECT_EQ(outcome.kind, OutcomeKind::error);
  EXPECT_NE(outcome.reason.find("'x'"), std::string::npos) << outcome.reason;
}

TEST(SdkCpp, WritingPastTheEndIsFound) {
  const Outcome outcome = run_with("overrun");
  EXPECT_EQ(outcome.kind, OutcomeKind::error);
  EXPECT_NE(outcome.reason.find("outside the buffer of output 'y'"), std::string::npos) << outcome.reason;
}

TEST(SdkCpp, WhatIsNotWrittenReadsAsNaN) {
  const Outcome outcome = run_with("short");
  ASSERT_TRUE(outcome.ok()) << outcome.reason;
  EXPECT_TRUE(std::isnan(outcome.outputs.at("y").to_doubles().back()));
}

TEST(SdkCpp, OutOfMemory) {
  EXPECT_EQ(run_with("memory").kind, OutcomeKind::out_of_memory);
  EXPECT_EQ(run_with("huge").kind, OutcomeKind::out_of_memory);
}

TEST(SdkCpp, AForgottenOutputIsAnError) {
  const Outcome outcome = run_with("forget");
  EXPECT_EQ(outcome.kind, OutcomeKind::error);
  EXPECT_NE(outcome.reason.find("'y'"), std::string::npos) << outcome.reason;
}

TEST(SdkCpp, FailuresOfNodesAreCarried) {
  const Outcome outcome = run_with("fail");
  ASSERT_TRUE(outcome.ok()) << outcome.reason;
  ASSERT_EQ(outcome.node_failures.count("scale"), 1u);
  EXPECT_EQ(outcome.node_failures.at("scale").first, OutcomeKind::unsupported);
  EXPECT_EQ(outcome.node_failures.at("scale").second, "not today");
}

TEST(SdkCpp, KernelsAreToldWhenAsked) {
  const auto backend = start();
  EXPECT_FALSE(run_once(*backend, mul(), inputs()).kernels);
  const Outcome outcome = run_once(*backend, mul(), inputs(), {.kernels = true});
  ASSERT_TRUE(outcome.kernels) << outcome.reason;
  ASSERT_EQ(outcome.kernels->size(), 1u);
  EXPECT_EQ(outcome.kernels->at(0).name, "scale");
  EXPECT_EQ(outcome.kernels->at(0).nodes, std::vector<std::string>{"scale"});
  EXPECT_FALSE(run_once(*start({{"fault", "silent"}}), mul(), inputs(), {.kernels = true}).kernels);
}

}  // namespace
}  // namespace opdiff
