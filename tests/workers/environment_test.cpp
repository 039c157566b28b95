// Manifests, environments and bindings, in folders of the test's own; pip is not asked for anything.
#include "workers/environment.h"

#include <gmock/gmock.h>

#include "workers/install.h"
#include "workers/open.h"
#include "workers/test_worker.h"

namespace opdiff::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kManifest = R"(name = "test"
kind = "python"
about = "a test"
version = "1"
megabytes = 3
worker = "test_worker.py"
[[install]]
packages = ["no such thing=={version}"]
[environment]
OPDIFF_TEST_SEES = "{env}/x {threads}"
)";

class Environments : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("opdiff-environments-{}", getpid());
    fs::create_directories(folder_ / "root/backends");
    fs::create_directory_symlink(OPDIFF_SOURCE_DIR "/sdk", folder_ / "root/sdk");
    write("root/backends/test/manifest.toml", kManifest);
    fs::create_symlink(OPDIFF_SOURCE_DIR "/tests/workers/test_worker.py",
                       folder_ / "root/backends/test/test_worker.py");
    setenv("OPDIFF_ROOT", (folder_ / "root").c_str(), 1);
    setenv("OPDIFF_HOME", (folder_ / "home").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("OPDIFF_ROOT");
    unsetenv("OPDIFF_HOME");
    fs::remove_all(folder_);
  }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  void pretend(const std::string& version, bool ready = true) {
    write("home/environments/test@" + version + "-cp311/" + (ready ? "ready" : "other"), "");
  }
  std::string resolved(const std::string& spec) {
    const auto launch = resolve(*parse_spec(spec), 2);
    return launch ? launch->program.arguments[0] : launch.error().message;
  }

  fs::path folder_;
};

TEST_F(Environments, WhichOneASpecMeans) {
  EXPECT_THAT(resolved("test"), HasSubstr("backend 'test' is not installed; run: opdiff backend add test"));
  pretend("0.9");
  pretend("0.10");
  pretend("3", false);                                                     // not ready: cut short
  EXPECT_THAT(resolved("test"), HasSubstr("test@0.10-cp311/bin/python"));  // the newest
  pretend("1");
  EXPECT_THAT(resolved("test"), HasSubstr("test@1-cp311/bin/python"));  // the manifest's
  EXPECT_THAT(resolved("test@0.9"), HasSubstr("test@0.9-cp311/bin/python"));
  EXPECT_THAT(resolved("test@3"),
              HasSubstr("is not installed; installed: 1, 0.10, 0.9; run: opdiff backend add test==3"));
  EXPECT_THAT(resolved("other"), HasSubstr("there is no backend 'other'; there are: faulty, test"));
  const auto launch = resolve(*parse_spec("test:threads=3,mode=good"), 2);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->program.environment.at("OMP_NUM_THREADS"), "3");
  EXPECT_THAT(*launch->program.environment.at("OPDIFF_TEST_SEES"), HasSubstr("test@1-cp311/x 3"));
  EXPECT_EQ(launch->options, (std::map<std::string, std::string>{{"mode", "good"}}));
}

TEST_F(Environments, AnInterpreterOfTheUsersIsBoundAndForgotten) {
  AddOptions options;
  options.python = python_with_numpy();
  const auto added = add_backend("test", options);
  ASSERT_TRUE(added) << added.error().message;
  EXPECT_EQ(added->info.version, "1");
  const auto backend = open_backend("test:mode=good");
  ASSERT_TRUE(backend) << backend.error().message;
  EXPECT_TRUE(run_once(**backend, small_graph(), small_inputs()).ok());
  EXPECT_TRUE(list_backends()->at(0).installed.at(0).bound);
  EXPECT_THAT(add_backend("test==2", options).error().message, HasSubstr("has test 1, not 2"));
  ASSERT_TRUE(remove_backend("test"));
  EXPECT_TRUE(fs::exists(options.python));
  EXPECT_THAT(remove_backend("test").error().message, HasSubstr("nothing to remove for 'test'; installed: nothing"));
  options.python = "/no/python";
  EXPECT_THAT(add_backend("test", options).error().message, HasSubstr("--python /no/python: there is no such file"));
  options.python = "/bin/true";
  EXPECT_THAT(add_backend("test", options).error().message, HasSubstr("is no working Python 3"));
}

TEST_F(Environments, AFailedInstallationIsNeverReady) {
  std::vector<std::string> said;
  AddOptions options;
  options.say = [&](const std::string& line) { said.push_back(line); };
  const auto added = add_backend("test==7", options);
  ASSERT_FALSE(added);
  EXPECT_THAT(added.error().message, HasSubstr("pip install no such thing==7 failed"));
  EXPECT_THAT(added.error().message, HasSubstr("install.log"));
  EXPECT_THAT(said.at(0), HasSubstr("test 7: up to 3 MB to download, into "));
  EXPECT_THAT(resolved("test@7"), HasSubstr("is not installed"));
  EXPECT_THAT(add_backend("test:x=1").error().message, HasSubstr("is no backend to add or remove"));
  EXPECT_THAT(add_backend("../x").error().message, HasSubstr("is no backend to add or remove"));
}

TEST_F(Environments, BrokenManifestsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"name = ", "manifest.toml:1: "},
      {"name = \"other\"", "name = 'other' is not the name of its folder, 'test'"},
      {"name = \"test\"\nkind = \"magic\"", "kind = 'magic' is none of python, native, builtin"},
      {"name = \"test\"\nkind = \"python\"", "needs 'version' and [[install]]"},
      {"name = \"test\"\nkind = \"python\"\nversion = \"1\"\n[[install]]\npackages = [\"--index-url=x\"]",
       "something that is no package"},
      {"name = \"test\"\nkind = \"python\"\nversion = \"1\"\n[[install]]\npackages = [1]",
       "something that is no package"},
      {"name = \"test\"\nkind = \"python\"\nversion = \"1\"\n[environment]\nA = 3", "'environment.A' is no string"},
  };
  for (const auto& [text, message] : cases) {
    write("root/backends/test/manifest.toml", text);
    EXPECT_THAT(resolved("test"), HasSubstr(message));
    EXPECT_THAT(resolved("test"), HasSubstr("manifest.toml"));
  }
  setenv("OPDIFF_ROOT", "/no/such/folder", 1);
  EXPECT_THAT(resolved("test"), HasSubstr("OPDIFF_ROOT=/no/such/folder holds no backends/"));
}

TEST(Versions, CompareAsNumbers) {
  EXPECT_TRUE(version_less("1.9.0", "1.10.0"));
  EXPECT_FALSE(version_less("1.10.0", "1.9.0"));
  EXPECT_TRUE(version_less("1.9", "1.9.1"));
  EXPECT_FALSE(version_less("2.0", "2.0"));
}

// The manifests that opdiff comes with.
TEST(Manifests, AreWhole) {
  const auto manifests = all_manifests();
  ASSERT_TRUE(manifests) << manifests.error().message;
  for (const auto& manifest : *manifests) {
    EXPECT_FALSE(manifest.about.empty()) << manifest.name;
    if (manifest.kind == ManifestKind::builtin) continue;
    EXPECT_GT(manifest.megabytes, 0) << manifest.name;
    EXPECT_NE(manifest.download.find(fmt::format("{:g} MB", manifest.megabytes)), std::string::npos) << manifest.name;
    EXPECT_TRUE(fs::exists(manifest.folder / "README.md")) << manifest.name;
    EXPECT_TRUE(fs::exists(manifest.folder / "known.toml")) << manifest.name;
    EXPECT_TRUE(manifest.kind != ManifestKind::python || fs::exists(manifest.folder / manifest.worker))
        << manifest.name;
  }
}

}  // namespace
}  // namespace opdiff::test
