// ONNX in and out: what we write we read, foreign encodings are read, and broken files are errors with a
// clear text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "graph/onnx_reader.h"
#include "graph/onnx_writer.h"
#include "graph/validate.h"
#include "sample_graphs.h"

#define ONNX_ML 1
#define ONNX_NAMESPACE onnx
#include <onnx/onnx_pb.h>

namespace opdiff {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// A folder of its own that goes with the test.
class OnnxTest : public testing::Test {
 protected:
  OnnxTest() {
    std::string pattern = (fs::temp_directory_path() / "opdiff-onnx-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~OnnxTest() override { fs::remove_all(folder_); }
  void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

  fs::path folder_;
};

onnx::ModelProto small_proto() {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(write_onnx(testing_graphs::small_net())));
  return model;
}

Expected<Graph> parse(const onnx::ModelProto& model, const fs::path& folder = {}) {
  return parse_onnx(model.SerializeAsString(), folder, "m.onnx");
}

std::string message_of(const onnx::ModelProto& model, const fs::path& folder = {}) {
  const auto graph = parse(model, folder);
  return graph ? "(read)" : graph.error().message;
}

onnx::TensorProto* initialiser(onnx::ModelProto& model, const std::string& name) {
  for (auto& tensor : *model.mutable_graph()->mutable_initializer())
    if (tensor.name() == name) return &tensor;
  return nullptr;
}

TEST_F(OnnxTest, RoundTripKeepsEverything) {
  const Graph graph = testing_graphs::every_kind_of_attribute();
  const std::string bytes = write_onnx(graph);
  const auto back = parse_onnx(bytes, {}, "m.onnx");
  ASSERT_TRUE(back) << back.error().message;
  testing_graphs::expect_same(graph, *back);
  EXPECT_EQ(write_onnx(*back), bytes);
}

TEST_F(OnnxTest, FileRoundTrip) {
  const fs::path path = folder_ / "new" / "m.onnx";
  ASSERT_TRUE(write_onnx_file(testing_graphs::small_net(), path));
  const auto back = read_onnx(path);
  ASSERT_TRUE(back) << back.error().message;
  testing_graphs::expect_same(testing_graphs::small_net(), *back);
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1);
}

TEST_F(OnnxTest, OldModelsKeepTheirVersions) {
  Graph graph = testing_graphs::small_net();
  graph.ir_version = 3;
  graph.opsets = {{"", 7}};
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(write_onnx(graph)));
  EXPECT_EQ(model.graph().input_size(), 4);  // x and the three initialisers
  const auto back = parse(model);
  ASSERT_TRUE(back) << back.error().message;
  testing_graphs::expect_same(graph, *back);
}

TEST_F(OnnxTest, VersionsOutsideTheRange) {
  for (const int version : {2, 13, -1}) {
    auto model = small_proto();
    model.set_ir_version(version);
    EXPECT_EQ(message_of(model), fmt::format("m.onnx: IR version {} is not supported; 3 to 12 are", version));
  }
  for (const int version : {6, 23, 0}) {
    auto model = small_proto();
    model.mutable_opset_import(0)->set_version(version);
    EXPECT_EQ(message_of(model), fmt::format("m.onnx: opset {} is not supported; 7 to 22 are", version));
  }
  auto model = small_proto();
  model.clear_opset_import();
  EXPECT_THAT(message_of(model), HasSubstr("does not import"));
}

TEST_F(OnnxTest, DomainsAndUnknownOperatorsAreKept) {
  auto model = small_proto();
  model.mutable_opset_import(0)->set_domain("ai.onnx");
  auto* extra = model.add_opset_import();
  extra->set_domain("com.example");
  extra->set_version(3);
  model.mutable_graph()->mutable_node(1)->set_op_type("Mystery");
  model.mutable_graph()->mutable_node(1)->set_domain("com.example");
  model.mutable_graph()->mutable_node(0)->set_domain("ai.onnx");
  const auto graph = parse(model);
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(graph->opset(), 17);
  EXPECT_EQ(graph->opset("com.example"), 3);
  EXPECT_EQ(graph->nodes[1].op, "Mystery");
  EXPECT_EQ(graph->nodes[1].domain, "com.example");
  EXPECT_EQ(graph->nodes[0].domain, "");
}

TEST_F(OnnxTest, NodeIds) {
  auto model = small_proto();
  auto& nodes = *model.mutable_graph()->mutable_node();
  nodes[0].set_name("same");
  nodes[1].set_name("same");
  nodes[2].set_name("");
  nodes[3].set_name("f");  // what node 2 would be called
  const auto graph = parse(model);
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_EQ(graph->nodes[0].id, "c");
  EXPECT_EQ(graph->nodes[1].id, "r");
  EXPECT_EQ(graph->nodes[2].id, "f#2");
  EXPECT_EQ(graph->nodes[3].id, "f");
}

TEST_F(OnnxTest, ControlCharactersInNamesAreWrittenOut) {
  onnx::ModelProto model = small_proto();
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    node.set_name(node.name() + "\x1b[2J\n");
    for (std::string& name : *node.mutable_input()) name += name.empty() ? "" : "\x1b";
    for (std::string& name : *node.mutable_output()) name += name.empty() ? "" : "\x1b";
  }
  for (auto& tensor : *model.mutable_graph()->mutable_initializer()) tensor.set_name(tensor.name() + "\x1b");
  for (auto* infos : {model.mutable_graph()->mutable_input(), model.mutable_graph()->mutable_output(),
                      model.mutable_graph()->mutable_value_info()}) {
    for (auto& info : *infos) info.set_name(info.name() + "\x1b");
  }
  auto graph = parse(model);
  ASSERT_TRUE(graph) << graph.error().message;
  for (const Node& node : graph->nodes) {
    EXPECT_THAT(node.id, testing::EndsWith("\\x1b[2J\\n"));
    for (const std::string& name : node.outputs) EXPECT_EQ(name.find('\x1b'), std::string::npos);
  }
  // Uses still meet what is used.
  EXPECT_TRUE(validate(*graph)) << validate(*graph).error().message;
}

TEST_F(OnnxTest, TypedFieldsOfEveryDtype) {
  using P = onnx::TensorProto;
  const auto read = [](int dtype, const std::function<void(P&)>& fill) {
    auto model = small_proto();
    auto* tensor = model.mutable_graph()->add_initializer();
    tensor->set_name("t");
    tensor->set_data_type(dtype);
    tensor->add_dims(2);
    fill(*tensor);
    const auto graph = parse(model);
    EXPECT_TRUE(graph) << graph.error().message;
    return graph ? graph->initialisers.at("t").to_doubles() : std::vector<double>{};
  };
  const auto int32s = [](int a, int b) { return [=](P& t) { t.add_int32_data(a), t.add_int32_data(b); }; };
  const auto uint64s = [](P& t) { t.add_uint64_data(0), t.add_uint64_data(4294967295u); };
  const auto pair = [](double a, double b) { return std::vector<double>{a, b}; };
  EXPECT_EQ(read(P::FLOAT, [](P& t) { t.add_float_data(0.5f), t.add_float_data(-2); }), pair(0.5, -2));
  EXPECT_EQ(read(P::DOUBLE, [](P& t) { t.add_double_data(0.1), t.add_double_data(-2); }), pair(0.1, -2));
  EXPECT_EQ(read(P::INT64, [](P& t) { t.add_int64_data(-7), t.add_int64_data(1); }), pair(-7, 1));
  EXPECT_EQ(read(P::UINT64, uint64s), pair(0, 4294967295.0));
  EXPECT_EQ(read(P::UINT32, uint64s), pair(0, 4294967295.0));
  EXPECT_EQ(read(P::FLOAT16, int32s(0x3C00, 0xC000)), pair(1, -2));
  EXPECT_EQ(read(P::BFLOAT16, int32s(0x3F80, 0xC000)), pair(1, -2));
  EXPECT_EQ(read(P::INT8, int32s(-128, 127)), pair(-128, 127));
  EXPECT_EQ(read(P::UINT8, int32s(0, 255)), pair(0, 255));
  EXPECT_EQ(read(P::INT16, int32s(-32768, 32767)), pair(-32768, 32767));
  EXPECT_EQ(read(P::UINT16, int32s(0, 65535)), pair(0, 65535));
  EXPECT_EQ(read(P::INT32, int32s(-5, 6)), pair(-5, 6));
  EXPECT_EQ(read(P::BOOL, int32s(0, 2)), pair(0, 1));
}

TEST_F(OnnxTest, TensorsThatCannotBeRead) {
  const auto message = [](const std::function<void(onnx::TensorProto&)>& edit) {
    auto model = small_proto();
    edit(*initialiser(model, "g"));
    return message_of(model);
  };
  const auto dtype = [](int code) { return [code](onnx::TensorProto& t) { t.set_data_type(code); }; };
  EXPECT_EQ(message(dtype(8)), "m.onnx: initialiser 'g' has dtype string, which is not supported");
  EXPECT_THAT(message(dtype(17)), HasSubstr("float8e4m3fn"));
  EXPECT_THAT(message(dtype(22)), HasSubstr("int4"));
  EXPECT_THAT(message(dtype(14)), HasSubstr("complex64"));
  EXPECT_THAT(message(dtype(99)), HasSubstr("unknown dtype 99"));
  EXPECT_THAT(message([](auto& t) { t.set_dims(0, std::int64_t{1} << 60); }),
              AllOf(HasSubstr("'g'"), HasSubstr("2^48")));
  EXPECT_THAT(message([](auto& t) { t.set_dims(0, std::int64_t{1} << 40); }), HasSubstr("16 in raw_data"));
  EXPECT_THAT(message([](auto& t) { t.set_dims(0, -2); }), HasSubstr("negative"));
  EXPECT_THAT(message([](auto& t) { t.clear_raw_data(); }), HasSubstr("only 0 are in the file"));
  EXPECT_THAT(message([](auto& t) { t.mutable_raw_data()->pop_back(); }), HasSubstr("15 in raw_data"));
  EXPECT_THAT(message([](auto& t) {
                t.clear_raw_data();
                t.set_data_type(onnx::TensorProto::UINT8);
                for (int i = 0; i < 4; ++i) t.add_int32_data(300);
              }),
              HasSubstr("300"));
  EXPECT_THAT(message([](auto& t) { t.set_name("b"); }), HasSubstr("'b' is given twice"));
  EXPECT_THAT(message([](auto& t) { t.set_name("\xff"); }), HasSubstr("UTF-8"));
  auto model = small_proto();
  model.mutable_graph()->add_sparse_initializer()->mutable_values()->set_name("s");
  EXPECT_THAT(message_of(model), AllOf(HasSubstr("sparse"), HasSubstr("'s'")));
}

TEST_F(OnnxTest, AttributesThatCannotBeKept) {
  const auto message = [](const std::function<void(onnx::AttributeProto&)>& edit) {
    auto model = small_proto();
    auto* attribute = model.mutable_graph()->mutable_node(1)->add_attribute();
    attribute->set_name("a");
    edit(*attribute);
    return message_of(model);
  };
  using P = onnx::AttributeProto;
  EXPECT_EQ(message([](P& a) { a.set_type(P::SPARSE_TENSOR); }),
            "m.onnx: node 'r': attribute 'a' is of a kind that is not supported (SPARSE_TENSOR)");
  EXPECT_THAT(message([](P& a) { a.set_type(P::GRAPHS); }), HasSubstr("GRAPHS"));
  EXPECT_THAT(message([](P& a) { a.set_ref_attr_name("z"); }), HasSubstr("'z'"));
  EXPECT_THAT(message([](P& a) { a.mutable_t()->set_data_type(8); }), HasSubstr("attribute 'a' has dtype string"));
  EXPECT_EQ(message([](P& a) { a.set_i(3); }), "(read)");  // no type: the field that is there
}

TEST_F(OnnxTest, FunctionsAreRefusedWhenCalled) {
  auto model = small_proto();
  auto* function = model.add_functions();
  function->set_name("Relu");
  function->set_domain("mine");
  EXPECT_EQ(message_of(model), "(read)");
  function->set_domain("");
  EXPECT_THAT(message_of(model), AllOf(HasSubstr("node 'r'"), HasSubstr("function 'Relu'")));
}

TEST_F(OnnxTest, InputsWithoutDenseTensors) {
  auto model = small_proto();
  auto* type = model.mutable_graph()->mutable_input(0)->mutable_type();
  type->mutable_tensor_type()->set_elem_type(onnx::TensorProto::STRING);
  EXPECT_THAT(message_of(model), AllOf(HasSubstr("'x'"), HasSubstr("string")));
  type->mutable_sequence_type();
  EXPECT_THAT(message_of(model), HasSubstr("sequence"));
  model.mutable_graph()->mutable_input(0)->clear_type();
  EXPECT_THAT(message_of(model), HasSubstr("without a type"));
}

TEST_F(OnnxTest, FilesThatAreNoModels) {
  const auto message = [this](const std::string& bytes) {
    write(folder_ / "bad.onnx", bytes);
    const auto graph = read_onnx(folder_ / "bad.onnx");
    return graph ? "(read)" : graph.error().message;
  };
  EXPECT_THAT(message(""), AllOf(HasSubstr("bad.onnx"), HasSubstr("empty")));
  EXPECT_THAT(message("GIF89a this is not a model"), AllOf(HasSubstr("bad.onnx"), HasSubstr("not an ONNX model")));
  const std::string good = write_onnx(testing_graphs::small_net());
  for (std::size_t length = 1; length < good.size(); ++length)
    EXPECT_THAT(message(good.substr(0, length)), HasSubstr("bad.onnx")) << length;
  EXPECT_THAT(read_onnx(folder_ / "absent.onnx").error().message, HasSubstr("absent.onnx: cannot open: No such file"));
  EXPECT_THAT(read_onnx(folder_).error().message, HasSubstr("is a folder"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(read_onnx(folder_ / "pipe").error().message, HasSubstr("not a regular file"));
}

class ExternalData : public OnnxTest {
 protected:
  ExternalData() {
    fs::create_directory(folder_ / "model");
    write(folder_ / "model" / "weights.bin", std::string(8, '\0') + good_);
    write(folder_ / "secret.bin", std::string(100, 's'));
  }
  Expected<Graph> read(
      const std::vector<std::pair<std::string, std::string>>& entries,
      const std::function<void(onnx::TensorProto&)>& edit = [](auto&) {}) {
    auto model = small_proto();
    auto& tensor = *initialiser(model, "g");
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : entries) {
      auto* entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
    edit(tensor);
    write(folder_ / "model" / "m.onnx", model.SerializeAsString());
    return read_onnx(folder_ / "model" / "m.onnx");
  }
  std::string message(const std::vector<std::pair<std::string, std::string>>& entries) {
    const auto graph = read(entries);
    return graph ? "(read)" : graph.error().message;
  }

  const std::string good_ = *initialiser(*std::make_unique<onnx::ModelProto>(small_proto()), "g")->mutable_raw_data();
};

TEST_F(ExternalData, IsRead) {
  for (const auto& extra : std::vector<std::vector<std::pair<std::string, std::string>>>{
           {}, {{"length", "16"}}, {{"length", "16"}, {"checksum", "00"}}}) {
    std::vector<std::pair<std::string, std::string>> entries = {{"location", "weights.bin"}, {"offset", "8"}};
    entries.insert(entries.end(), extra.begin(), extra.end());
    const auto graph = read(entries);
    ASSERT_TRUE(graph) << graph.error().message;
    EXPECT_TRUE(graph->initialisers.at("g").bit_equal(testing_graphs::small_net().initialisers.at("g")));
  }
  fs::create_directory(folder_ / "model" / "sub");
  EXPECT_EQ(message({{"location", "./sub/../weights.bin"}, {"offset", "8"}}), "(read)");
}

TEST_F(ExternalData, StaysInsideTheModelFolder) {
  EXPECT_THAT(message({{"location", "../secret.bin"}}),
              AllOf(HasSubstr("'g'"), HasSubstr("outside the model's folder")));
  EXPECT_THAT(message({{"location", "a/../../secret.bin"}}), HasSubstr("outside the model's folder"));
  EXPECT_THAT(message({{"location", (folder_ / "secret.bin").string()}}), HasSubstr("absolute"));
  fs::create_symlink(folder_ / "secret.bin", folder_ / "model" / "link.bin");
  EXPECT_THAT(message({{"location", "link.bin"}}), HasSubstr("is a link that points outside"));
  fs::create_directory_symlink(folder_, folder_ / "model" / "up");
  EXPECT_THAT(message({{"location", "up/secret.bin"}}), HasSubstr("is a link that points outside"));
  fs::create_directory(folder_ / "model-2");
  write(folder_ / "model-2" / "secret.bin", std::string(100, 's'));
  EXPECT_THAT(message({{"location", "../model-2/secret.bin"}}), HasSubstr("outside the model's folder"));
  fs::create_symlink("weights.bin", folder_ / "model" / "inner.bin");
  EXPECT_EQ(message({{"location", "inner.bin"}}), "(read)");
}

TEST_F(ExternalData, BrokenReferences) {
  EXPECT_THAT(message({{"location", "weights.bin"}, {"offset", "9"}}), HasSubstr("lie outside 'weights.bin'"));
  EXPECT_THAT(message({{"location", "weights.bin"}, {"offset", "-1"}}), HasSubstr("offset '-1'"));
  EXPECT_THAT(message({{"location", "weights.bin"}, {"offset", "18446744073709551615"}}), HasSubstr("lie outside"));
  EXPECT_THAT(message({{"location", "weights.bin"}, {"length", "12"}}), HasSubstr("length is 12"));
  EXPECT_THAT(message({{"location", "absent.bin"}}), HasSubstr("cannot open 'absent.bin'"));
  EXPECT_THAT(message({{"location", "."}}), HasSubstr("folder"));
  EXPECT_THAT(message({}), HasSubstr("location is empty"));
  EXPECT_THAT(message({{"location", std::string("weights.bin\0x", 13)}}), HasSubstr("zero byte"));
  const auto graph = read({{"location", "weights.bin"}}, [](auto& t) { t.set_dims(0, std::int64_t{1} << 40); });
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("lie outside 'weights.bin'"));
}

// A sparse file of 3 GB costs nothing; its tensors would.
TEST_F(ExternalData, TogetherWithinProtobufsLimit) {
  fs::resize_file(folder_ / "model" / "weights.bin", std::uintmax_t{3} << 30);
  const auto graph = read({{"location", "weights.bin"}}, [](auto& t) { t.set_dims(0, std::int64_t{300} << 20); });
  ASSERT_FALSE(graph);
  EXPECT_THAT(graph.error().message, HasSubstr("a model may take"));
}

TEST_F(ExternalData, NeedsAFolder) {
  auto model = small_proto();
  initialiser(model, "g")->set_data_location(onnx::TensorProto::EXTERNAL);
  EXPECT_THAT(message_of(model), HasSubstr("no model folder"));
}

}  // namespace
}  // namespace opdiff
