#include "plan/known.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "judge/judge.h"
#include "reference/evaluate.h"

namespace opdiff {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const double kNan = std::numeric_limits<double>::quiet_NaN();

fs::path written(const std::string& text) {
  static int number = 0;
  const fs::path file = fs::path(testing::TempDir()) / fmt::format("known{}-{}.toml", getpid(), number++);
  std::ofstream(file) << text;
  return file;
}

std::string entry(const std::string& op, const std::string& predicate, const std::string& more = "") {
  return fmt::format(
      "[[known]]\noperator = \"{}\"\npredicate = \"{}\"\nreason = \"because\"\nlink = \"https://example.org/1\"\n{}\n",
      op, predicate, more);
}

std::vector<KnownDivergence> known(const std::string& text) {
  const auto entries = read_known(written(text));
  EXPECT_TRUE(entries.has_value()) << entries.error().message;
  return entries ? *entries : std::vector<KnownDivergence>();
}

std::string refusal(const std::string& text) {
  const fs::path file = written(text);
  const auto entries = read_known(file);
  if (entries) return "";
  EXPECT_THAT(entries.error().message, HasSubstr(file.string()));
  return entries.error().message;
}

// A node and what a backend gave for it: the right outputs, with some elements changed.
struct Case {
  Node node;
  int opset = 17;
  std::vector<Tensor> inputs;
  std::vector<Tensor> got;
  OutcomeKind outcome = OutcomeKind::ok;

  Case(const std::string& op, std::map<std::string, Attribute> attributes, std::vector<Tensor> given,
       const std::string& domain = "")
      : inputs(std::move(given)) {
    node.id = node.op = op;
    node.domain = domain;
    node.attributes = std::move(attributes);
    for (std::size_t k = 0; k < inputs.size(); ++k) node.inputs.push_back(fmt::format("x{}", k));
    node.outputs = {"y"};
    const auto right = evaluate_node(node, opset, pointers(inputs));
    EXPECT_TRUE(right.has_value()) << right.error().message;
    got = *right;
    got.resize(1);
    for (Tensor& y : got) y = y.clone();
  }

  static std::vector<const Tensor*> pointers(const std::vector<Tensor>& tensors) {
    std::vector<const Tensor*> result;
    for (const Tensor& tensor : tensors) result.push_back(&tensor);
    return result;
  }
  Case& set(std::int64_t index, double value) {
    std::vector<double> values = got[0].to_doubles();
    values[static_cast<std::size_t>(index)] = value;
    got[0] = Tensor::from_doubles(got[0].dtype(), got[0].shape(), values);
    return *this;
  }
  // The entry's number, or -1.
  int matched(const std::vector<KnownDivergence>& entries) const {
    const auto in = pointers(inputs), out = pointers(got);
    const auto verdicts = outcome == OutcomeKind::ok ? judge_node(node, opset, in, out) : std::vector<Verdict>();
    const KnownDivergence* found = match(entries, {node, opset, in, outcome, out, verdicts});
    return found ? static_cast<int>(found - entries.data()) : -1;
  }
};

Tensor floats(Shape shape, std::vector<double> values, DType dtype = DType::f32) {
  return Tensor::from_doubles(dtype, std::move(shape), values);
}

TEST(Known, WhatIsRightIsNotKnown) {
  EXPECT_EQ(Case("Relu", {}, {floats({3}, {kNan, 1, -1})}).matched(known(entry("Relu", "input is nan"))), -1);
}

TEST(Known, OnlyElementsThatTheEntrySpeaksOf) {
  const auto entries = known(entry("Relu", "input is nan"));
  const std::vector<Tensor> x = {floats({4}, {kNan, 1, -1, kNan})};
  EXPECT_EQ(Case("Relu", {}, x).set(0, 7).set(3, 7).matched(entries), 0);
  EXPECT_EQ(Case("Relu", {}, x).set(0, 7).set(1, 2).matched(entries), -1) << "another element is wrong, too";
  EXPECT_EQ(Case("Relu", {}, x).set(1, 2).matched(entries), -1);
  EXPECT_EQ(Case("Relu", {}, {floats({2}, {1, -1})}).set(0, 5).matched(entries), -1) << "no NaN here";
}

TEST(Known, ElementsAreFollowedThroughWindows) {
  const auto entries = known(entry("MaxPool", "input is -inf"));
  const double inf = std::numeric_limits<double>::infinity();
  const Case right("MaxPool", {{"kernel_shape", std::vector<std::int64_t>{2}}},
                   {floats({1, 1, 5}, {-inf, -inf, 3, 4, 5})});
  EXPECT_EQ(Case(right).set(0, -3.4e38).matched(entries), 0);
  EXPECT_EQ(Case(right).set(1, 2).matched(entries), 0) << "its window holds an infinity";
  EXPECT_EQ(Case(right).set(2, 2).matched(entries), -1) << "its window holds none";
}

TEST(Known, ElementsThatNothingGoesInto) {
  const auto entries = known(entry("ConvTranspose", "output 0 is unreached"));
  const Case right("ConvTranspose", {{"strides", std::vector<std::int64_t>{2}}},
                   {floats({1, 1, 2}, {0, 3}), floats({1, 1, 1}, {2})});
  EXPECT_EQ(Case(right).set(1, 7).matched(entries), 0);
  EXPECT_EQ(Case(right).set(0, 7).matched(entries), -1) << "0 is computed here";
  EXPECT_EQ(Case(right).set(0, 7).set(1, 7).matched(entries), -1);
  const Case none("ConvTranspose", {}, {floats({1, 1, 2}, {0, 3}), floats({1, 1, 1}, {2})});
  EXPECT_EQ(Case(none).set(0, 7).matched(entries), -1);
}

TEST(Known, ReductionsAreReachedWhole) {
  const auto entries = known(entry("ReduceMean", "input is inf"));
  const double inf = std::numeric_limits<double>::infinity();
  const Case right("ReduceMean", {{"axes", std::vector<std::int64_t>{1}}}, {floats({2, 2}, {inf, 1, 2, 3})});
  EXPECT_EQ(Case(right).set(0, 7).matched(entries), 0);
  EXPECT_EQ(Case(right).set(1, 7).matched(entries), -1);
}

TEST(Known, TwoEntriesTogether) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto entries = known(entry("Relu", "input is nan") + entry("Relu", "input is inf"));
  EXPECT_EQ(Case("Relu", {}, {floats({3}, {kNan, inf, 1})}).set(0, 7).set(1, 9).matched(entries), 1);
  EXPECT_EQ(Case("Relu", {}, {floats({3}, {kNan, inf, 1})}).set(0, 7).set(1, 9).set(2, 8).matched(entries), -1);
}

TEST(Known, Subnormals) {
  const auto entries = known(entry("Transpose", "dtype is bfloat16 and input is subnormal"));
  const Case right("Transpose", {}, {floats({2, 1}, {1e-39, 1}, DType::bf16)});
  EXPECT_EQ(Case(right).set(0, 2).matched(entries), 0);
  EXPECT_EQ(Case(right).set(1, 0).matched(entries), -1);
  EXPECT_EQ(Case("Transpose", {}, {floats({2, 1}, {1e-39, 1})}).set(0, 2).matched(entries), -1) << "float";
}

TEST(Known, AnotherInput) {
  EXPECT_EQ(Case("Add", {}, {floats({2}, {1, 2}), floats({2}, {kNan, 2})})
                .set(0, 1)
                .matched(known(entry("Add", "input 1 is nan"))),
            0);
  EXPECT_EQ(Case("Add", {}, {floats({2}, {1, 2}), floats({2}, {kNan, 2})})
                .set(0, 1)
                .matched(known(entry("Add", "input is nan"))),
            -1);
  EXPECT_EQ(Case("Add", {}, {floats({2}, {1, 2}), floats({2}, {kNan, 2})})
                .set(0, 1)
                .matched(known(entry("Add", "input 7 is nan"))),
            -1);
}

TEST(Known, Attributes) {
  const std::vector<std::int64_t> kernel = {2, 3}, strides = {3, 1};
  const Case wrong =
      Case("MaxPool", {{"kernel_shape", kernel}, {"strides", strides}, {"auto_pad", std::string("SAME_UPPER")}},
           {floats({1, 1, 4, 4}, std::vector<double>(16, 1))})
          .set(0, 2);
  const auto holds = [&](const std::string& predicate) {
    return wrong.matched(known(entry("MaxPool", predicate))) == 0;
  };
  EXPECT_TRUE(holds("attribute auto_pad is SAME_UPPER|SAME_LOWER"));
  EXPECT_FALSE(holds("attribute auto_pad is VALID"));
  EXPECT_TRUE(holds("attribute auto_pad is not VALID"));
  EXPECT_FALSE(holds("attribute auto_pad is not VALID|SAME_UPPER"));
  EXPECT_TRUE(holds("attribute auto_pad like SAME_*"));
  EXPECT_TRUE(holds("attribute auto_pad like VALID|*[A-F]_UPPER"));
  EXPECT_FALSE(holds("attribute auto_pad like [a-z]*"));
  EXPECT_FALSE(holds("attribute auto_pad not like *UPPER"));
  EXPECT_TRUE(holds("attribute auto_pad not like *LOWER"));
  EXPECT_FALSE(holds("attribute ceil_mode like *"));
  EXPECT_TRUE(holds("attribute strides > 2"));
  EXPECT_FALSE(holds("attribute strides > 3"));
  EXPECT_TRUE(holds("attribute strides >= 3"));
  EXPECT_TRUE(holds("attribute strides < 2"));
  EXPECT_TRUE(holds("attribute strides is 1"));
  EXPECT_TRUE(holds("attribute ceil_mode is 0|absent"));
  EXPECT_FALSE(holds("attribute ceil_mode > 0"));
  EXPECT_FALSE(holds("attribute dilations > 1"));
  EXPECT_TRUE(holds("attribute strides > attribute kernel_shape"));
  EXPECT_FALSE(holds("attribute strides is attribute kernel_shape"));
  EXPECT_TRUE(holds("rank is 4 and dimension 1 is 1 and dimension -1 >= 4 and opset > 16 and dtype is float|float16"));
  EXPECT_FALSE(holds("rank is 4 and dimension 4 is 1"));
  EXPECT_FALSE(holds("dtype is not float"));
  EXPECT_EQ(wrong.matched(known(entry("AveragePool", "rank is 4"))), -1);
}

TEST(Known, AnotherShape) {
  Case wrong("Relu", {}, {floats({2}, {kNan, 1})});
  wrong.got[0] = floats({1}, {0});
  EXPECT_EQ(wrong.matched(known(entry("Relu", "rank is 1"))), 0);
  EXPECT_EQ(wrong.matched(known(entry("Relu", "input is nan"))), -1) << "elements say nothing of shapes";
}

TEST(Known, Refusals) {
  Case refused("Relu", {}, {floats({2}, {kNan, 1})});
  refused.got.clear();
  refused.outcome = OutcomeKind::error;
  EXPECT_EQ(refused.matched(known(entry("Relu", "rank is 1 and result is refused"))), 0);
  EXPECT_EQ(refused.matched(known(entry("Relu", "rank is 2 and result is refused"))), -1);
  EXPECT_EQ(refused.matched(known(entry("Relu", "input is nan and result is refused"))), 0);
  EXPECT_EQ(refused.matched(known(entry("Relu", "input is inf and result is refused"))), -1);
  EXPECT_EQ(refused.matched(known(entry("Relu", "rank is 1"))), -1) << "speaks of values";
  refused.outcome = OutcomeKind::crash;
  EXPECT_EQ(refused.matched(known(entry("Relu", "rank is 1 and result is refused"))), -1) << "a death is never known";
  EXPECT_EQ(Case("Relu", {}, {floats({2}, {1, 1})})
                .set(0, 2)
                .matched(known(entry("Relu", "rank is 1 and result is refused"))),
            -1);
}

TEST(Known, ReleasesAndOptions) {
  const auto count = [](const std::string& more, const std::string& version) {
    return applicable(known(entry("Relu", "input is nan", more)), version, {}).size();
  };
  EXPECT_EQ(count("", "1.0"), 1u);
  EXPECT_EQ(count("from = \"1.9\"", "1.10.1"), 1u);
  EXPECT_EQ(count("from = \"1.10\"", "1.9"), 0u);
  EXPECT_EQ(count("from = \"1.30\"\nbefore = \"2.0\"", "1.30"), 1u);
  EXPECT_EQ(count("before = \"1.30\"", "1.30.0"), 0u);
  EXPECT_EQ(count("before = \"1.30\"", "1.29.0"), 1u);
  const auto fast = known(entry("Relu", "option fpmath is bf16|any"));
  EXPECT_EQ(applicable(fast, "1", {{"fpmath", "any"}}).size(), 1u);
  EXPECT_EQ(applicable(fast, "1", {{"fpmath", "strict"}}).size(), 0u);
  EXPECT_EQ(applicable(fast, "1", {}).size(), 0u);
  EXPECT_EQ(applicable(known(entry("Relu", "option fpmath is strict|absent")), "1", {}).size(), 1u);
}

TEST(Known, BadFilesAreRefusedByName) {
  EXPECT_THAT(refusal("[[known]\n"), HasSubstr(":1:"));
  EXPECT_THAT(refusal("known = 3\n"), HasSubstr("[[known]]"));
  EXPECT_THAT(refusal("known = [3]\n"), HasSubstr("entry 1"));
  EXPECT_THAT(refusal("[[unknown]]\n"), HasSubstr("'unknown'"));
  EXPECT_THAT(refusal(entry("Relu", "input is nan") + entry("Rellu", "input is nan")), HasSubstr("entry 2"));
  EXPECT_THAT(refusal(entry("Rellu", "input is nan")), HasSubstr("'Rellu'"));
  EXPECT_THAT(refusal(entry("Relu", "input is nan", "form = \"1\"")), HasSubstr("'form'"));
  EXPECT_THAT(refusal(entry("Relu", "input is nan", "from = 1.30")), HasSubstr("'from'"));
  EXPECT_THAT(refusal(entry("Relu", "input is nan", "from = \"2.0\"\nbefore = \"1.9\"")), HasSubstr("not before"));
  EXPECT_THAT(refusal("[[known]]\noperator = \"Relu\"\npredicate = \"input is nan\"\nreason = \"r\"\n"),
              HasSubstr("'link'"));
  EXPECT_THAT(
      refusal("[[known]]\noperator = \"Relu\"\npredicate = \"input is nan\"\nreason = \"r\"\nlink = \"trust me\"\n"),
      HasSubstr("trust me"));
  EXPECT_THAT(refusal("[[known]]\noperator = \"Relu\"\npredicate = \"input is nan\"\nreason = \"\\u001b[2J\"\nlink = "
                      "\"https://x\"\n"),
              HasSubstr("'reason'"));
  EXPECT_THAT(refusal(std::string(2u << 20, '#')), HasSubstr("larger than"));
  EXPECT_THAT(refusal(entry("Relu", "")), HasSubstr("predicate"));
}

TEST(Known, BadPredicatesAreRefusedWithTheTerm) {
  for (const char* text : {"",
                           "nan",
                           "input",
                           "input is",
                           "input is big",
                           "input x is nan",
                           "input -1 is nan",
                           "input is not nan",
                           "input > 3",
                           "dtype is floaty",
                           "dtype < float",
                           "attribute",
                           "attribute axis",
                           "attribute axis > x",
                           "attribute axis is 1 2",
                           "attribute axis is |1",
                           "attribute axis like",
                           "attribute axis not is 1",
                           "attribute axis not",
                           "dtype like flo*",
                           "rank is four",
                           "rank is 1e999",
                           "dimension is 3",
                           "dimension 99 is 3",
                           "result is odd",
                           "result is not refused",
                           "option x < 3",
                           "input is nan and",
                           "input is nan or input is inf",
                           "input is nan and and dtype is float",
                           "opset == 3"}) {
    const auto terms = parse_predicate(text);
    ASSERT_FALSE(terms.has_value()) << text;
    EXPECT_THAT(terms.error().message, HasSubstr("term '")) << text;
  }
  EXPECT_TRUE(parse_predicate("  input   0  is  nan|inf and rank <= 3 ").has_value());
}

TEST(Known, FilesOfAllBackendsCanBeRead) {
  const fs::path root = OPDIFF_SOURCE_DIR;
  for (const auto& folder : fs::directory_iterator(root / "backends")) {
    const auto entries = read_known(folder.path() / "known.toml");
    ASSERT_TRUE(entries.has_value()) << entries.error().message;
    for (const KnownDivergence& known : *entries) {
      const std::string page = known.link.substr(0, known.link.find('#'));
      EXPECT_TRUE(!page.starts_with("docs/") || fs::exists(root / page)) << known.link;
    }
  }
}

TEST(Known, AFaultyBackendKnowsWhatItsBaseKnows) {
  BackendInfo info;
  info.spec = "faulty:base=(faulty:base=onednn,op=Relu,fault=scale),op=Add,fault=scale";
  info.version = "3.2.0";
  const auto planted = known_divergences(info);
  info.spec = "onednn";
  const auto base = known_divergences(info);
  ASSERT_TRUE(planted.has_value() && base.has_value());
  EXPECT_EQ(planted->size(), base->size());
  EXPECT_GT(base->size(), 0u);
  info.spec = "reference";
  EXPECT_TRUE(known_divergences(info)->empty());
}

// Of a gradient, what takes the cotangent of an output that reads such an element.
TEST(Known, SpeaksOfGradients) {
  const auto entries = known(entry("gradient.MaxPool", "input is lowest|-inf"));
  const std::map<std::string, Attribute> attributes = {{"kernel_shape", std::vector<std::int64_t>{2}},
                                                       {"pads", std::vector<std::int64_t>{1, 0}},
                                                       {"strides", std::vector<std::int64_t>{2}}};
  const double lowest = -static_cast<double>(std::numeric_limits<float>::max());
  const Case right("MaxPool", attributes, {floats({1, 1, 3}, {lowest, 1, 2}), floats({1, 1, 2}, {5, 7})},
                   "opdiff.gradient");
  EXPECT_EQ(right.got[0].to_doubles(), (std::vector<double>{5, 0, 7}));
  EXPECT_EQ(Case(right).set(0, 0).matched(entries), 0);
  EXPECT_EQ(Case(right).set(0, 0).matched(known(entry("MaxPool", "input is lowest"))), -1) << "the operator itself";
  EXPECT_EQ(Case(right).set(2, 8).matched(entries), -1) << "no such element in this window";
  EXPECT_THAT(refusal(entry("gradient.Nothing", "input is nan")), HasSubstr("no such operator"));
}

}  // namespace
}  // namespace opdiff
