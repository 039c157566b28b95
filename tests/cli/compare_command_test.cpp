// The program as users run it: exit statuses, messages, files. Backends are the reference and faults planted in it, so
// that no framework is needed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/file.h"
#include "base/npy.h"

namespace opdiff {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const std::string kProgram = OPDIFF_BINARY_DIR "/opdiff";
const std::string kModels = OPDIFF_SOURCE_DIR "/tests/models/";
const std::string kLeNet = OPDIFF_SOURCE_DIR "/examples/lenet5/lenet5.onnx";
const std::string kCompare = kLeNet + " --dim batch=2 --threads 1 --backends ";

struct Ended {
  int status = -1;
  std::string out, err;
};

class CompareCommand : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / fmt::format("opdiff-cli-{}", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string out() const { return (folder_ / "out").string(); }

  Ended shell(const std::string& command) const {
    const std::string err = (folder_ / "err").string(), text = (folder_ / "text").string();
    const int status = std::system(fmt::format("{} > '{}' 2> '{}'", command, text, err).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, *read_file(text, 1 << 24), *read_file(err, 1 << 24)};
  }
  Ended compare(const std::string& arguments) const { return shell(kProgram + " compare " + arguments); }
  json result() const { return json::parse(*read_file(out() + "/result.json", 1 << 24)); }

  fs::path folder_;
};

TEST_F(CompareCommand, CleanIsZero) {
  const Ended ended = compare(kCompare + "reference --out " + out());
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(ended.out.rfind("CLEAN: ", 0), 0U) << ended.out;
  const json written = result();
  EXPECT_EQ(written["status"], "clean");
  EXPECT_EQ(written["nodes"].size(), 13U);
  EXPECT_EQ(written["model"]["sha256"].get<std::string>().size(), 64U);
  EXPECT_TRUE(written["culprits"].empty());
}

TEST_F(CompareCommand, ADefectIsOneAndItsCommandRepeatsIt) {
  const json nodes = json::parse(compare(kCompare + "reference --json").out)["nodes"];
  std::string node;
  for (const json& candidate : nodes) {
    if (candidate["op"] == "Conv") node = candidate["name"];
  }
  const Ended ended =
      compare(kCompare + "'reference,faulty:base=reference,node=" + node + ",fault=scale,size=8' --out " + out());
  EXPECT_EQ(ended.status, 1) << ended.out << ended.err;
  const json culprit = result()["culprits"][0];
  EXPECT_EQ(culprit["nodes"], json::array({node}));
  EXPECT_EQ(culprit["stage"], "kernel");
  EXPECT_EQ(culprit["proven"], true);
  EXPECT_GT(culprit["placebo"]["error"], culprit["necessary"]["error"]);
  const std::string repeat = culprit["repeat"];
  EXPECT_NE(ended.out.find(repeat), std::string::npos);
  const Ended again = shell(OPDIFF_BINARY_DIR "/" + repeat);
  EXPECT_EQ(again.status, 1) << repeat << again.err;
  EXPECT_NE(again.out.find(node), std::string::npos);
}

TEST_F(CompareCommand, ADeadBackendIsThree) {
  for (const char* fault : {"crash", "hang"}) {
    const Ended ended =
        compare(kCompare + "faulty:base=reference,node=relu4,fault=" + fault + " --time-limit 1 --out " + out());
    EXPECT_EQ(ended.status, 3) << ended.out << ended.err;
    EXPECT_EQ(result()["status"], "crashed");
    EXPECT_FALSE(result()["culprits"].empty());
  }
}

TEST_F(CompareCommand, UsageAndMissingThingsAreTwo) {
  for (const std::string& arguments : std::vector<std::string>{
           kCompare + "nosuchframework", "nosuch.onnx --backends reference", kCompare + "reference --fail-on nonsense",
           kCompare + "reference --accept nonsense", kCompare + "reference --dim batch=many",
           kCompare + "reference,reference", kCompare + "reference --bind Nonsense=reference",
           kCompare + "reference --memory-limit lots", kCompare + "reference --dim batch=3",
           kCompare + "reference --accept precision=bf16",
           kCompare + "reference --fail-on defect --accept precision=bf16",
           kLeNet + " --backends reference --dim batch=99999999999999999999",
           kLeNet + " --backends reference --dim batch=3000000000",
           kLeNet + " --backends reference --inputs nosuch.npz"}) {
    const Ended ended = compare(arguments + " --out " + out());
    EXPECT_EQ(ended.status, 2) << arguments << ended.out;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_FALSE(fs::exists(out()));
  }
  EXPECT_EQ(compare("").status, 2);
  EXPECT_EQ(compare("--help").status, 0);
}

TEST_F(CompareCommand, WhatSaysLittleIsSaid) {
  const Ended empty = compare(kLeNet + " --dim batch=0 --threads 1 --backends reference");
  EXPECT_EQ(empty.status, 0) << empty.err;
  EXPECT_NE(empty.err.find("it has no elements"), std::string::npos) << empty.err;
  std::map<std::string, Tensor> arrays;
  arrays["image"] = Tensor::zeros(DType::f32, {1, 1, 32, 32});
  arrays["extra"] = arrays["image"];
  ASSERT_TRUE(write_npz((folder_ / "in.npz").string(), arrays));
  const std::string inputs = " --threads 1 --backends reference --inputs " + (folder_ / "in.npz").string();
  EXPECT_NE(compare(kLeNet + inputs).err.find("array 'extra' is no input of the model"), std::string::npos);
  const Ended full = shell("sh -c '" + kProgram + " compare " + kCompare + "reference > /dev/full'");
  EXPECT_EQ(full.status, 2);
  EXPECT_NE(full.err.find("standard output cannot be written"), std::string::npos) << full.err;
}

TEST_F(CompareCommand, CheckSaysItsVerdictFirst) {
  const Ended clean = shell(kProgram + " check Conv --backend reference --dtype f32,f64 --cases 2");
  EXPECT_EQ(clean.status, 0) << clean.out << clean.err;
  EXPECT_EQ(clean.out.rfind("CLEAN: Conv float on reference: 2 cases\n", 0), 0U) << clean.out;
  EXPECT_NE(clean.out.find("\nCLEAN: Conv double on reference: 2 cases\n"), std::string::npos) << clean.out;
  const Ended wrong =
      shell(kProgram + " check Conv --backend reference,faulty:base=reference,op=Conv,fault=scale --cases 2");
  EXPECT_EQ(wrong.status, 1) << wrong.out << wrong.err;
  EXPECT_NE(wrong.out.find("\nDEFECT: Conv float on faulty:base=reference,op=Conv,fault=scale: 2 cases\n"),
            std::string::npos)
      << wrong.out;
  EXPECT_EQ(shell(kProgram + " check conv --backend reference").status, 2);
  EXPECT_NE(shell(kProgram + " check conv --backend reference").err.find("is Conv"), std::string::npos);
}

TEST_F(CompareCommand, EveryBadModelIsOneMessageAndTwo) {
  const json expected = json::parse(*read_file(kModels + "bad/expected.json", 1 << 20));
  for (const auto& [name, what] : expected.items()) {
    if (what["ends"] != "refused") continue;
    fs::path model = kModels + "bad/" + name;
    if (fs::is_directory(model)) model /= "model.onnx";
    const Ended ended = compare(fmt::format("'{}' --backends reference --dim batch=2 --out {}", model.string(), out()));
    EXPECT_EQ(ended.status, 2) << name << ended.out << ended.err;
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << name << ": " << ended.err;
    for (const json& word : what["mentions"]) {
      EXPECT_NE(ended.err.find(word.get<std::string>()), std::string::npos) << name << ": " << ended.err;
    }
    EXPECT_FALSE(fs::exists(out())) << name;
  }
}

TEST_F(CompareCommand, AnInterruptionLeavesAUsableResultAndNothingElse) {
  const fs::path temporary = folder_ / "tmp";
  fs::create_directories(temporary);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    fs::remove_all(out());
    const pid_t child = fork();
    if (child == 0) {
      setenv("TMPDIR", temporary.c_str(), 1);
      const std::string backend = "faulty:base=reference,op=Relu,fault=hang";
      execl(kProgram.c_str(), "opdiff", "compare", kLeNet.c_str(), "--dim", "batch=2", "--backends", backend.c_str(),
            "--out", out().c_str(), "--quiet", nullptr);
      _exit(127);
    }
    std::this_thread::sleep_for(std::chrono::seconds(2));
    EXPECT_FALSE(fs::is_empty(temporary));
    kill(child, signal);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << signal;
    EXPECT_EQ(WEXITSTATUS(status), 2);
    EXPECT_EQ(result()["interrupted"], true);
    EXPECT_TRUE(fs::is_empty(temporary)) << signal;
  }
}

TEST_F(CompareCommand, ASecondRunIntoOneFolderReplacesTheFirst) {
  const auto files = [&] {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(out()))
      if (entry.is_regular_file()) names.insert(fs::relative(entry.path(), out()));
    return names;
  };
  EXPECT_EQ(compare(kCompare + "faulty:base=reference,op=Conv,fault=scale,size=2 --out " + out()).status, 1);
  EXPECT_EQ(files().size(), 1 + 3 * result()["culprits"].size());
  EXPECT_TRUE(fs::exists(out() + "/" + result()["culprits"][0]["case"].get<std::string>() + ".onnx"));
  EXPECT_EQ(compare(kCompare + "nosuchframework --out " + out()).status, 2);
  EXPECT_GT(files().size(), 3U);  // nothing came in its place
  EXPECT_EQ(compare(kCompare + "reference --out " + out()).status, 0);
  EXPECT_EQ(files(), std::set<std::string>{"result.json"});
}

TEST_F(CompareCommand, TwoRunsDoNotWriteIntoOneFolder) {
  fs::create_directories(out());
  const Ended ended = shell(fmt::format("flock {} {} compare {}reference --out {}", out(), kProgram, kCompare, out()));
  EXPECT_EQ(ended.status, 2);
  EXPECT_NE(ended.err.find("another opdiff is writing"), std::string::npos) << ended.err;
}

TEST_F(CompareCommand, LabelsMustBeOneARow) {
  const std::string inputs = (folder_ / "inputs.npz").string();
  const Tensor image = Tensor::zeros(DType::f32, {2, 1, 32, 32});
  const auto with_labels = [&](const Tensor& labels) {
    EXPECT_TRUE(write_npz(inputs, {{"image", image}, {"label", labels}}));
    return compare(kLeNet + " --backends reference --inputs " + inputs);
  };
  const auto integers = [](const std::vector<std::int64_t>& values) {
    return Tensor::from_int64s(DType::i64, {static_cast<std::int64_t>(values.size())}, values);
  };
  EXPECT_EQ(with_labels(integers({0, 9})).status, 0);
  for (const Tensor& labels :
       {integers({0, 1, 2}), integers({0, 10}), Tensor::zeros(DType::f32, {2}), Tensor::zeros(DType::i64, {2, 1})}) {
    const Ended ended = with_labels(labels);
    EXPECT_EQ(ended.status, 2) << ended.out;
    EXPECT_NE(ended.err.find("label"), std::string::npos) << ended.err;
  }
}

TEST_F(CompareCommand, ArgumentsThatAreNoneAreNamed) {
  EXPECT_NE(shell(kProgram + " foo").err.find("no command 'foo'; there are: backend check compare"), std::string::npos);
  for (const char* seed : {"-1", "1.5", "18446744073709551616"}) {
    const Ended ended = compare(fmt::format("{}reference --seed {}", kCompare, seed));
    EXPECT_EQ(ended.status, 2);
    EXPECT_NE(ended.err.find(seed), std::string::npos) << ended.err;
  }
  EXPECT_EQ(shell(kProgram + " check Relu --only -1").status, 2);
  const Ended large = compare(kLeNet + " --backends reference --dim batch=3000000000");
  EXPECT_NE(large.err.find("tensor 'conv1'"), std::string::npos) << large.err;
  const Ended misspelt = compare(kCompare + "reference --fail-on precision --accept precision=bf61");
  EXPECT_EQ(misspelt.status, 0);
  EXPECT_NE(misspelt.err.find("precision=bf61 accepted nothing"), std::string::npos) << misspelt.err;
}

TEST_F(CompareCommand, FailOnAssignmentsAndContracts) {
  EXPECT_EQ(compare(kCompare + "reference --fail-on rounding").status, 0);  // the reference is exact
  EXPECT_EQ(compare(kCompare + "reference --rtol 0 --atol 0").status, 0);
  const Ended bound =
      compare(kCompare + "reference --bind Conv=faulty:base=reference,op=Conv,fault=scale,size=8 --out " + out());
  EXPECT_EQ(bound.status, 1) << bound.err;
  bool found = false;
  const json written = result();
  for (const auto& [name, whole] : written["whole_model"].items()) {
    if (name.rfind("reference with Conv=", 0) == 0) found = whole["suspect"];
  }
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace opdiff
