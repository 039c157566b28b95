// Starts tests/workers/test_worker.py, and looks for what a worker could leave behind.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "workers/command.h"
#include "workers/install.h"
#include "workers/worker_backend.h"

namespace opdiff::test {

// An interpreter with numpy: the system's, else an environment that is made for it.
inline std::string python_with_numpy() {
  static const std::string path = [] {
    const auto tried = run_command({"python3", "-c", "import sys, numpy; print(sys.executable)"});
    if (tried && tried->status == 0) return tried->output.substr(0, tried->output.find('\n'));
    const auto made = sdk_python();
    if (!made) ADD_FAILURE() << made.error().message;
    return made ? made->string() : std::string();
  }();
  return path;
}

inline Launch test_launch(const std::string& mode) {
  Launch launch;
  launch.spec = "test:mode=" + mode;
  launch.program.arguments = {python_with_numpy(), "-u", OPDIFF_SOURCE_DIR "/sdk/python/opdiff_worker.py",
                              OPDIFF_SOURCE_DIR "/tests/workers/test_worker.py"};
  launch.options = {{"mode", mode}};
  return launch;
}

inline std::unique_ptr<WorkerBackend> start(const std::string& mode, WorkerLimits limits = {}) {
  auto backend = WorkerBackend::start(test_launch(mode), limits);
  if (!backend) {
    ADD_FAILURE() << backend.error().message;
    return nullptr;
  }
  return *std::move(backend);
}

// y = relu(x * w)
inline Graph small_graph() {
  Graph graph;
  graph.name = "small";
  graph.inputs = {{"x", DType::f32, std::vector<Dimension>{{2, ""}, {3, ""}}}};
  graph.outputs = {{"y", DType::f32, std::vector<Dimension>{{2, ""}, {3, ""}}}};
  graph.initialisers["w"] = Tensor::from_doubles(DType::f32, {3}, std::vector<double>{1, -2, 3});
  graph.nodes = {{"mul", "Mul", "", {"x", "w"}, {"m"}, {}}, {"relu", "Relu", "", {"m"}, {"y"}, {}}};
  return graph;
}

inline TensorMap small_inputs() {
  return {{"x", Tensor::from_doubles(DType::f32, {2, 3}, std::vector<double>{1, 2, 3, -4, -5, -6})}};
}

inline const std::vector<double> kSmallOutput = {1, 0, 9, 0, 10, 0};

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Living processes whose command line names the test worker or one of its children.
inline std::vector<std::string> leftover_processes() {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::ifstream environment(entry.path() / "environ", std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(environment)), {});
    // Workers of this test are known by their TMPDIR, which names this process's own folder (see SetUp of the tests).
    if (text.find("opdiff-worker-") != std::string::npos &&
        text.find(std::to_string(getpid()) + "-opdiff-test") != std::string::npos) {
      found.push_back(entry.path().string());
    }
  }
  return found;
}

// A temporary folder of this test's own, so that what workers leave can be seen.
class Workers : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / (std::to_string(getpid()) + "-opdiff-test");
    std::filesystem::create_directories(folder_);
    const char* before = std::getenv("TMPDIR");
    before_ = before ? before : "";
    setenv("TMPDIR", folder_.c_str(), 1);
    static const bool warm = start("good") != nullptr;  // the thread that starts workers comes to be
    ASSERT_TRUE(warm);
    descriptors_ = open_descriptors();
  }
  void TearDown() override {
    EXPECT_EQ(open_descriptors(), descriptors_);
    for (int wait = 0; wait < 200 && !leftover_processes().empty(); ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(leftover_processes(), std::vector<std::string>{});
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "a worker's temporary folder is left";
    std::filesystem::remove_all(folder_);
    if (before_.empty()) {
      unsetenv("TMPDIR");
    } else {
      setenv("TMPDIR", before_.c_str(), 1);
    }
  }

 private:
  std::filesystem::path folder_;
  std::string before_;
  std::size_t descriptors_ = 0;
};

}  // namespace opdiff::test
