#include "workers/spec.h"

#include <gmock/gmock.h>

#include "base/rng.h"

namespace opdiff {
namespace {

using ::testing::HasSubstr;

TEST(Spec, Parts) {
  const auto spec = parse_spec("onnxruntime@1.23.2:opt=basic,disable=MatMulAddFusion+ConvBNFusion");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "onnxruntime");
  EXPECT_EQ(spec->version, "1.23.2");
  EXPECT_EQ(spec->option("opt"), "basic");
  EXPECT_EQ(spec->option("disable"), "MatMulAddFusion+ConvBNFusion");
  EXPECT_EQ(spec->option("threads", "2"), "2");
  EXPECT_EQ(parse_spec("torch@2.13.0+cpu")->version, "2.13.0+cpu");
}

TEST(Spec, ASpecInsideASpec) {
  const auto spec = parse_spec("faulty:base=(onnxruntime@1.23.2:opt=basic,disable=A+B),op=Conv,fault=scale");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->option("base"), "onnxruntime@1.23.2:opt=basic,disable=A+B");
  EXPECT_EQ(spec->option("op"), "Conv");
  EXPECT_EQ(parse_spec("faulty:base=torch,fault=nan")->option("base"), "torch");
  EXPECT_EQ(parse_spec("faulty:base=torch:mkldnn=0,fault=nan")->option("base"), "torch:mkldnn=0");
  const auto twice = parse_spec("faulty:base=(faulty:base=(torch:mkldnn=0),op=Relu,fault=nan),op=Conv,fault=scale");
  ASSERT_TRUE(twice) << twice.error().message;
  EXPECT_EQ(twice->option("base"), "faulty:base=(torch:mkldnn=0),op=Relu,fault=nan");
}

TEST(Spec, WhatIsWrongIsSaid) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "'' is no backend's name"},
      {"Torch", "'Torch' is no backend's name"},
      {"../torch", "is no backend's name"},
      {"torch@", "'' after '@' is no version"},
      {"torch@../../x", "is no version"},
      {"torch@..", "is no version"},
      {"torch:", "'' is no option of the form key=value"},
      {"torch:fast", "'fast' is no option of the form key=value"},
      {"torch:=1", "'=1' is no option"},
      {"torch:a=1,a=2", "option 'a' is given twice"},
      {"faulty:base=(torch,op=Conv", "its parentheses do not match"},
      {"faulty:base=torch),op=Conv", "its parentheses do not match"},
  };
  for (const auto& [text, message] : cases) {
    const auto spec = parse_spec(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_THAT(spec.error().message, HasSubstr(message));
    EXPECT_THAT(spec.error().message, HasSubstr(text));
  }
}

TEST(Spec, Lists) {
  const auto specs = parse_spec_list(
      "onnxruntime,torch:compile=inductor,mkldnn=0,onednn,faulty:base=(torch:mkldnn=0,threads=1),op=Conv,fault=scale");
  ASSERT_TRUE(specs) << specs.error().message;
  std::vector<std::string> texts;
  for (const auto& spec : *specs) texts.push_back(to_string(spec));
  EXPECT_EQ(texts, (std::vector<std::string>{"onnxruntime", "torch:compile=inductor,mkldnn=0", "onednn",
                                             "faulty:base=(torch:mkldnn=0,threads=1),op=Conv,fault=scale"}));
  EXPECT_FALSE(parse_spec_list("onnxruntime,,torch"));
  EXPECT_FALSE(parse_spec_list("onnxruntime,opt=basic"));
  EXPECT_FALSE(parse_spec_list(""));
}

TEST(Spec, OptionsAreChangedWhereTheyBelong) {
  const auto plain = with_option(*parse_spec("onnxruntime@1.23.2:opt=all"), "disable", "A");
  EXPECT_EQ(to_string(*plain), "onnxruntime@1.23.2:disable=A,opt=all");
  EXPECT_EQ(to_string(*with_option(*plain, "disable", "")), "onnxruntime@1.23.2:opt=all");
  const auto faulty = with_option(*parse_spec("faulty:base=onnxruntime,op=Conv,fault=scale"), "opt", "disable");
  EXPECT_EQ(to_string(*faulty), "faulty:base=(onnxruntime:opt=disable),fault=scale,op=Conv");
  EXPECT_EQ(parse_spec(to_string(*faulty))->option("base"), "onnxruntime:opt=disable");
}

// Whatever is typed, the parser ends and what it accepts it can write and read again.
TEST(Spec, RandomText) {
  Rng rng(3);
  const std::string alphabet = "ab1@:=,()+.-_ /";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int length = static_cast<int>(rng.integer(0, 20)); length > 0; --length) text += rng.pick(alphabet);
    auto spec = parse_spec(text);
    if (!spec) continue;
    spec->written.clear();
    const auto again = parse_spec(to_string(*spec));
    ASSERT_TRUE(again) << text << " -> " << to_string(*spec) << ": " << again.error().message;
    EXPECT_EQ(again->options, spec->options) << text;
  }
}

}  // namespace
}  // namespace opdiff
