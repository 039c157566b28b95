// A worker may do anything: the caller gets an outcome with a reason, and nothing is left behind.
#include "workers/worker_backend.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "workers/reply.h"
#include "workers/test_worker.h"

namespace opdiff::test {
namespace {

using ::testing::HasSubstr;

TEST_F(Workers, SaysHelloAndComputes) {
  const auto backend = start("good");
  EXPECT_EQ(backend->info().name, "test");
  EXPECT_EQ(backend->info().spec, "test:mode=good");
  EXPECT_EQ(backend->info().dtypes.size(), static_cast<std::size_t>(kDTypeCount));
  int handle = 0;
  ASSERT_TRUE(backend->prepare(small_graph(), {.profile = true}, &handle).ok());
  for (int again = 0; again < 3; ++again) {
    const Outcome outcome = backend->run(handle, small_inputs(), 2);
    ASSERT_TRUE(outcome.ok()) << outcome.reason;
    EXPECT_EQ(outcome.outputs.at("y").to_doubles(), kSmallOutput);
    EXPECT_EQ(outcome.outputs.at("y").shape(), (Shape{2, 3}));
    EXPECT_EQ(outcome.wall_ms.size(), 2u);
    EXPECT_EQ(outcome.node_ms.at("relu"), 0.25);
  }
  backend->release(handle);
}

TEST_F(Workers, EveryDtypeTravelsBothWays) {
  const auto backend = start("good");
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    Graph graph;
    graph.inputs = {{"x", dtype, {}}};
    graph.outputs = {{"y", dtype, {}}};
    graph.nodes = {{"n", "Identity", "", {"x"}, {"y"}, {}}};
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{5}, Shape{2, 3, 4}}) {
      std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
      for (std::size_t k = 0; k < values.size(); ++k)
        values[k] = dtype == DType::boolean ? k % 2 : static_cast<double>(k);
      const Tensor x = Tensor::from_doubles(dtype, shape, values);
      const Outcome outcome = run_once(*backend, graph, {{"x", x}});
      ASSERT_TRUE(outcome.ok()) << dtype_name(dtype) << outcome.reason;
      EXPECT_TRUE(outcome.outputs.at("y").bit_equal(x)) << dtype_name(dtype) << to_string(shape);
    }
  }
}

TEST_F(Workers, IsolatedNodesFailAlone) {
  const auto backend = start("good");
  Graph graph = small_graph();
  graph.nodes.push_back({"strange", "Strange", "", {"x"}, {"z"}, {}});
  graph.outputs.push_back({"z", DType::f32, {}});
  EXPECT_EQ(run_once(*backend, graph, small_inputs()).kind, OutcomeKind::unsupported);
  const Outcome outcome = run_once(*backend, graph, small_inputs(), {.isolated = true});
  ASSERT_TRUE(outcome.ok()) << outcome.reason;
  EXPECT_EQ(outcome.outputs.at("y").to_doubles(), kSmallOutput);
  EXPECT_FALSE(outcome.outputs.contains("z"));
  EXPECT_EQ(outcome.node_failures.at("strange").first, OutcomeKind::unsupported);
}

std::vector<std::string> as_text(const std::optional<std::vector<Kernel>>& kernels) {
  std::vector<std::string> result;
  if (!kernels) return {"not told"};
  for (const auto& kernel : *kernels)
    result.push_back(fmt::format("{}({})", kernel.name, fmt::join(kernel.nodes, ", ")));
  return result;
}

TEST_F(Workers, SayWhichKernelsTheyExecuteWhenAsked) {
  using Texts = std::vector<std::string>;
  const Texts untold = {"not told"}, told = {"numpy.Mul(mul)", "numpy.Relu(relu)", "copy()"};
  struct Known {
    const char* mode;
    Texts prepared, run;
  };
  for (const auto& [mode, prepared, run] :
       {Known{"good", told, told}, Known{"late-kernels", untold, told}, Known{"no-kernels", untold, untold}}) {
    const auto backend = start(mode);
    int handle = 0;
    Outcome outcome = backend->prepare(small_graph(), {.kernels = true}, &handle);
    ASSERT_TRUE(outcome.ok()) << outcome.reason;
    EXPECT_EQ(as_text(outcome.kernels), prepared) << mode;
    for (int again = 0; again < 2; ++again) {
      outcome = backend->run(handle, small_inputs());
      ASSERT_TRUE(outcome.ok()) << outcome.reason;
      EXPECT_EQ(as_text(outcome.kernels), run) << mode;
      EXPECT_EQ(outcome.outputs.at("y").to_doubles(), kSmallOutput);
    }
    EXPECT_EQ(as_text(run_once(*backend, small_graph(), small_inputs()).kernels), untold) << mode;
  }
}

TEST_F(Workers, KernelsOfNodesThatAreNotThereBreakTheProtocol) {
  const auto backend = start("odd-kernels");
  const Outcome outcome = run_once(*backend, small_graph(), small_inputs(), {.kernels = true});
  EXPECT_EQ(outcome.kind, OutcomeKind::crash);
  // The reply has no outputs either, but what breaks the protocol comes first.
  EXPECT_THAT(outcome.reason,
              HasSubstr("it broke the protocol: kernel 'fused' stands for 'nobody', which is no node of the graph"));
}

TEST(Replies, KernelsAreCheckedFieldByField) {
  const auto read = [](const char* kernels) {
    return read_kernels(nlohmann::json{{"kernels", nlohmann::json::parse(kernels)}}, {"conv", "relu"});
  };
  for (const char* hostile :
       {"5", "null", "{}", "\"Conv\"", "[5]", "[[]]", "[{}]", R"([{"kernel": 5, "nodes": []}])",
        R"([{"nodes": ["conv"]}])", R"([{"kernel": "Conv", "nodes": "conv"}])", R"([{"kernel": "Conv", "nodes": [5]}])",
        R"([{"kernel": "Conv", "nodes": [["conv"]]}])", R"([{"kernel": "Conv", "nodes": ["conv", "add"]}])"}) {
    EXPECT_FALSE(read(hostile)) << hostile;
  }
  EXPECT_EQ(as_text(*read("[]")), std::vector<std::string>{});
  EXPECT_EQ(as_text(*read(R"([{"kernel": "Conv\nRelu", "nodes": ["conv", "relu"]}, {"kernel": "Reorder"}])")),
            (std::vector<std::string>{"Conv Relu(conv, relu)", "Reorder()"}));
  EXPECT_EQ(*read_kernels(nlohmann::json::object(), {}), std::nullopt);
}

struct Misdeed {
  const char* mode;
  OutcomeKind kind;
  const char* reason;
};

class MisdeedTest : public Workers, public ::testing::WithParamInterface<Misdeed> {};

TEST_P(MisdeedTest, IsAnOutcomeAndTheNextWorkerWorks) {
  WorkerLimits limits;
  const std::string mode = GetParam().mode;
  limits.run_seconds = mode == "hang" ? 0.5 : 60;
  limits.resident_bytes = 600 << 20;
  const auto backend = start(mode, limits);
  ASSERT_TRUE(backend);
  int handle = 0;
  ASSERT_TRUE(backend->prepare(small_graph(), {}, &handle).ok());
  const Outcome outcome = backend->run(handle, small_inputs());
  EXPECT_EQ(outcome.kind, GetParam().kind) << outcome.reason;
  EXPECT_THAT(outcome.reason, HasSubstr(GetParam().reason));
  EXPECT_EQ(outcome.reason.find('\n'), std::string::npos);
  const bool died = outcome.kind == OutcomeKind::crash || outcome.kind == OutcomeKind::timeout ||
                    outcome.kind == OutcomeKind::out_of_memory;
  if (died && mode != "memory-error") {
    // The handle went with its worker; the next graph gets a new one.
    const Outcome gone = backend->run(handle, small_inputs());
    EXPECT_EQ(gone.kind, OutcomeKind::crash);
    EXPECT_THAT(gone.reason, HasSubstr("its worker is gone"));
  }
  EXPECT_TRUE(backend->prepare(small_graph(), {}, &handle).ok());
}

INSTANTIATE_TEST_SUITE_P(
    All, MisdeedTest,
    ::testing::Values(
        Misdeed{"hang", OutcomeKind::timeout,
                "no answer within 0.5 s; its last words: hello from the test worker | hanging"},
        Misdeed{"crash", OutcomeKind::crash,
                "killed by signal 11 (Segmentation fault); its last words: hello from the test worker | about to fall"},
        Misdeed{"exit", OutcomeKind::crash, "exited with status 7"},
        Misdeed{"close", OutcomeKind::crash, "it closed the connection"},
        Misdeed{"garbage", OutcomeKind::crash, "its reply is no JSON object"},
        Misdeed{"binary", OutcomeKind::crash, "its reply is no JSON object"},
        Misdeed{"oversize", OutcomeKind::crash, "a frame of 4294967295 bytes"},
        Misdeed{"short", OutcomeKind::crash, "exited with status 0"},
        Misdeed{"deep", OutcomeKind::crash, "broke the protocol"},
        Misdeed{"wrong-id", OutcomeKind::crash, "not to request"},
        Misdeed{"babble", OutcomeKind::crash, "not to request"},
        Misdeed{"unknown-outcome", OutcomeKind::crash, "outcome 'splendid' is none of"},
        Misdeed{"wrong-dtype-name", OutcomeKind::crash, "output 'y' has the unknown dtype 'float7'"},
        Misdeed{"wrong-name", OutcomeKind::error, "'nobody asked', which is no output"},
        Misdeed{"missing", OutcomeKind::error, "returned no output 'y'"},
        Misdeed{"outside", OutcomeKind::crash, "no shared memory"},
        Misdeed{"sparse", OutcomeKind::crash, "do not lie in shared memory"},
        Misdeed{"huge-shape", OutcomeKind::crash, "output 'y'"},
        Misdeed{"negative-shape", OutcomeKind::crash, "output 'y'"},
        Misdeed{"two-descriptors", OutcomeKind::crash, "more than one file descriptor"},
        Misdeed{"memory", OutcomeKind::out_of_memory, "MB resident; the limit is 600 MB"},
        Misdeed{"error", OutcomeKind::error, "RuntimeError: kernel says no: line two"},
        Misdeed{"memory-error", OutcomeKind::out_of_memory, "Unable to allocate 1 TiB"},
        Misdeed{"child", OutcomeKind::crash, "killed by signal 11"},
        Misdeed{"temporary", OutcomeKind::crash, "killed by signal 9"}),
    [](const auto& info) {
      std::string name = info.param.mode;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST_F(Workers, PrintsAreHarmless) {
  const auto backend = start("print");
  for (int again = 0; again < 3; ++again) {
    const Outcome outcome = run_once(*backend, small_graph(), small_inputs());
    ASSERT_TRUE(outcome.ok()) << outcome.reason;
    EXPECT_EQ(outcome.outputs.at("y").to_doubles(), kSmallOutput);
  }
}

TEST_F(Workers, FailuresOfHelloAreErrors) {
  auto backend = WorkerBackend::start(test_launch("hello-error"), {});
  ASSERT_FALSE(backend);
  EXPECT_THAT(backend.error().message, HasSubstr("backend 'test:mode=hello-error': RuntimeError: libmissing.so"));
  backend = WorkerBackend::start(test_launch("hello-crash"), {});
  ASSERT_FALSE(backend);
  EXPECT_THAT(backend.error().message, HasSubstr("Segmentation fault"));
  backend = WorkerBackend::start(test_launch("no-such-mode"), {});
  ASSERT_FALSE(backend);
  EXPECT_THAT(backend.error().message, HasSubstr("mode=no-such-mode is none of"));
  Launch launch = test_launch("good");
  launch.program.arguments[0] = "/no/such/interpreter";
  backend = WorkerBackend::start(std::move(launch), {});
  ASSERT_FALSE(backend);
  EXPECT_THAT(backend.error().message, HasSubstr("cannot start /no/such/interpreter: No such file or directory"));
}

TEST_F(Workers, LargeTensorsTravel) {
  const auto backend = start("good");
  Graph graph;
  graph.inputs = {{"x", DType::f32, {}}};
  graph.outputs = {{"y", DType::f32, {}}};
  graph.nodes = {{"n", "Identity", "", {"x"}, {"y"}, {}}};
  Tensor x = Tensor::zeros(DType::f32, {16 << 20});
  x.mutable_as<float>()[(16 << 20) - 1] = 7;
  const Outcome outcome = run_once(*backend, graph, {{"x", x}});
  ASSERT_TRUE(outcome.ok()) << outcome.reason;
  EXPECT_TRUE(outcome.outputs.at("y").bit_equal(x));
}

TEST_F(Workers, KilledAtFiftyRandomMoments) {
  Rng rng(20261129);
  const auto backend = start("slow");
  int crashes = 0, right = 0;
  for (int round = 0; round < 50; ++round) {
    const pid_t victim = backend->pid();
    // A case takes about 25 ms, of which 20 are the worker's sleep; a new worker 150.
    const auto delay = std::chrono::microseconds(rng.integer(0, victim > 0 ? 30000 : 200000));
    std::thread killer([&] {
      std::this_thread::sleep_for(delay);
      const pid_t now = victim > 0 ? victim : backend->pid();
      if (now > 0) ::kill(now, SIGKILL);
    });
    const Outcome outcome = run_once(*backend, small_graph(), small_inputs());
    killer.join();
    if (outcome.ok()) {
      ++right;
      EXPECT_EQ(outcome.outputs.at("y").to_doubles(), kSmallOutput);
    } else {
      ++crashes;
      EXPECT_EQ(outcome.kind, OutcomeKind::crash) << outcome.reason;
      EXPECT_THAT(outcome.reason, HasSubstr("killed by signal 9"));
    }
  }
  EXPECT_GE(crashes, 10);
  int attempts = 0;
  Outcome last;
  do last = run_once(*backend, small_graph(), small_inputs());
  while (!last.ok() && ++attempts < 3);
  EXPECT_TRUE(last.ok()) << last.reason;
  RecordProperty("crashes", crashes);
}

// The engine's own sudden death takes its workers along.
TEST_F(Workers, DieWithTheEngine) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t engine = fork();
  if (engine == 0) {
    // A fresh process would do better, but the thread that starts workers does not survive a fork: exec ourselves.
    dup2(ends[1], 9);
    setenv("OPDIFF_TEST_ENGINE", "1", 1);
    execl("/proc/self/exe", "workers_test", "--gtest_filter=WorkersEngine.DISABLED_Dies",
          "--gtest_also_run_disabled_tests", nullptr);
    _exit(1);
  }
  close(ends[1]);
  pid_t worker = 0;
  ASSERT_EQ(read(ends[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  close(ends[0]);
  EXPECT_EQ(::kill(worker, 0), 0);
  ::kill(engine, SIGKILL);
  int status = 0;
  waitpid(engine, &status, 0);
  bool gone = false;
  for (int wait = 0; wait < 300 && !gone; ++wait) {
    std::ifstream file("/proc/" + std::to_string(worker) + "/stat");
    std::string text;
    std::getline(file, text);
    gone = text.empty() || text.find(") Z") != std::string::npos;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(gone);
  // Its temporary folder has nobody to remove it but the next engine, once it is a minute old.
  const std::filesystem::path temporary = std::getenv("TMPDIR");
  EXPECT_FALSE(std::filesystem::is_empty(temporary));
  TemporaryFolder::sweep(temporary);
  EXPECT_FALSE(std::filesystem::is_empty(temporary));
  const auto backend = start("good");
  for (const auto& entry : std::filesystem::directory_iterator(temporary)) {
    std::filesystem::last_write_time(entry, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(2));
  }
  TemporaryFolder::sweep(temporary);
  // That of the living worker stays.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temporary), {}), 1);
}

// Not a test of its own: the engine of DieWithTheEngine, run by it.
TEST(WorkersEngine, DISABLED_Dies) {
  if (!std::getenv("OPDIFF_TEST_ENGINE")) GTEST_SKIP();
  const auto backend = start("good");
  const pid_t worker = backend->pid();
  ASSERT_EQ(write(9, &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  pause();
}

}  // namespace
}  // namespace opdiff::test
