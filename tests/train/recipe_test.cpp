#include "train/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace opdiff {
namespace {

using ::testing::HasSubstr;

class Recipes : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Expected<Recipe> read(const std::string& text) {
    std::ofstream(folder_ / "r.toml") << text;
    return read_recipe(folder_ / "r.toml");
  }
  std::string error(const std::string& text) {
    const auto recipe = read(text);
    return recipe ? "no error" : recipe.error().message;
  }
  const std::filesystem::path folder_ = std::filesystem::temp_directory_path() / fmt::format("recipes-{}", getpid());
};

constexpr const char* kData = "[data]\ntrain = { images = \"a\", labels = \"b\" }\n";

TEST_F(Recipes, AllKeys) {
  const auto recipe = read(R"(
model = "m.onnx"
loss = "nll"
optimiser = "adam:lr=1e-3"
batch = 32
epochs = 7
seed = 3
backend = "torch"
out = "runs/a"
checkpoint_steps = 100
[data]
folder = ["$OPDIFF_NOT_SET/x", "data"]
missing = "fetch it"
train = { images = "i.npz:train_images", labels = "l" }
test = { images = "t.npz" }
[transform]
resize = [32, 16]
mean = [0.1, 0.2, 0.3]
deviation = 0.5
flip = 0.5
[bind]
Conv = "onednn"
fc3 = "reference"
)");
  ASSERT_TRUE(recipe) << recipe.error().message;
  EXPECT_EQ(recipe->model, folder_ / "m.onnx");
  EXPECT_EQ(recipe->batch, 32);
  EXPECT_EQ(recipe->epochs, 7);
  EXPECT_EQ(recipe->seed, 3u);
  EXPECT_EQ(recipe->out, folder_ / "runs/a");
  EXPECT_EQ(recipe->train.images, folder_ / "data/i.npz");
  EXPECT_EQ(recipe->train.images_array, "train_images");
  EXPECT_EQ(recipe->train.labels, folder_ / "data/l");
  EXPECT_EQ(recipe->test->labels_array, "labels");
  EXPECT_EQ(recipe->data_hint, "fetch it");
  EXPECT_EQ(recipe->transform.resize, std::pair(std::int64_t{32}, std::int64_t{16}));
  EXPECT_EQ(recipe->transform.mean.size(), 3u);
  EXPECT_EQ(recipe->bindings.size(), 2u);
}

TEST_F(Recipes, BindingsAsAList) {
  const auto recipe =
      read("model = \"m\"\nbind = [\"Conv=onednn\", \"*/update=torch:optimizer=fused\"]\n" + std::string(kData));
  ASSERT_TRUE(recipe) << recipe.error().message;
  EXPECT_EQ(recipe->bindings[1].what, "*/update");
  EXPECT_EQ(recipe->bindings[1].backend, "torch:optimizer=fused");
}

TEST_F(Recipes, MessagesNameFileKeyAndValue) {
  const std::string start = "model = \"m\"\n";
  EXPECT_THAT(error(start + "bacth = 3\n" + kData), HasSubstr("unknown key 'bacth'"));
  EXPECT_THAT(error(start + "bacth = 3\n" + kData), HasSubstr("r.toml"));
  EXPECT_THAT(error(start + "batch = \"3\"\n" + kData), HasSubstr("line 2: 'batch' is \"3\""));
  EXPECT_THAT(error(start + "batch = 0\n" + kData), HasSubstr("'batch' is 0"));
  EXPECT_THAT(error(start + "seed = -1\n" + kData), HasSubstr("'seed' is -1"));
  EXPECT_THAT(error(start + "loss = 3\n" + kData), HasSubstr("'loss' is 3"));
  EXPECT_THAT(error(start + "data = 3\n"), HasSubstr("'data' is 3; it must be a table"));
  EXPECT_THAT(error(start), HasSubstr("[data] is missing"));
  EXPECT_THAT(error(kData), HasSubstr("'model' is missing"));
  EXPECT_THAT(error(start + "[data]\ntrain = { image = \"a\" }\n"), HasSubstr("unknown key 'data.train.image'"));
  EXPECT_THAT(error(start + "[data]\ntrain = { labels = \"a\" }\n"), HasSubstr("'data.train.images' is missing"));
  EXPECT_THAT(error(start + kData + "[transform]\nresize = 32\n"), HasSubstr("'transform.resize' is 32"));
  EXPECT_THAT(error(start + kData + "[transform]\ndeviation = 0\n"), HasSubstr("'transform.deviation' is 0"));
  EXPECT_THAT(error(start + kData + "[transform]\nmean = nan\n"), HasSubstr("'transform.mean' is nan"));
  EXPECT_THAT(error(start + kData + "[transform]\nflip = 1.5\n"), HasSubstr("'transform.flip' is 1.5"));
  EXPECT_THAT(error(start + "bind = [\"Conv\"]\n" + kData), HasSubstr("'Conv': expected WHAT=BACKEND"));
  EXPECT_THAT(error(start + "model = \"x\"\n" + kData), HasSubstr("line 2"));
  EXPECT_THAT(error("model = \n"), HasSubstr("line 1"));
}

}  // namespace
}  // namespace opdiff
