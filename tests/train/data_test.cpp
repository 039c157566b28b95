#include "train/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>

#include "base/npy.h"
#include "train/image_file.h"

namespace opdiff {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class DataFiles : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path write(const std::string& name, const std::string& bytes) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  static std::string gzipped(const std::string& bytes) {
    std::string out(compressBound(bytes.size()) + 64, '\0');
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  }
  static std::string idx(const std::vector<std::uint32_t>& shape, const std::string& values) {
    std::string bytes = {0, 0, 8, static_cast<char>(shape.size())};
    for (const std::uint32_t extent : shape)
      for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift & 255);
    return bytes + values;
  }
  std::string idx_error(const std::string& bytes) {
    const auto read = read_idx(write("x", bytes));
    fs::remove(folder_ / "x");
    return read ? "no error" : read.error().message;
  }
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("data-files-{}", getpid());
};

TEST_F(DataFiles, IdxPlainAndGzipped) {
  const std::string bytes = idx({2, 1, 3}, "abcdef");
  for (const std::string& stored : {bytes, gzipped(bytes)}) {
    const auto read = read_idx(write("x", stored));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->shape(), (Shape{2, 1, 3}));
    EXPECT_EQ(read->at(5), 'f');
  }
  fs::remove(folder_ / "x");
  write("x.gz", gzipped(bytes));
  EXPECT_TRUE(read_idx(folder_ / "x"));
}

TEST_F(DataFiles, BrokenIdxIsRefused) {
  const std::string bytes = idx({2, 1, 3}, "abcdef");
  EXPECT_THAT(idx_error(""), HasSubstr("its header"));
  EXPECT_THAT(idx_error(bytes.substr(0, 9)), HasSubstr("its header"));
  EXPECT_THAT(idx_error(bytes.substr(0, bytes.size() - 1)),
              HasSubstr("its header says [2,1,3] = 6 bytes, the file has 5"));
  EXPECT_THAT(idx_error(bytes + "x"), HasSubstr("the file has 7"));
  EXPECT_THAT(idx_error("PNG" + bytes), HasSubstr("no IDX file"));
  std::string floats = bytes;
  floats[2] = 0x0D;
  EXPECT_THAT(idx_error(floats), HasSubstr("type 0x0d"));
  // A claim that no file of this size can keep, plain or compressed: nothing is allocated for it.
  EXPECT_THAT(idx_error(idx({0xFFFFFFFF, 0xFFFF, 28}, "")), HasSubstr("elements"));
  EXPECT_THAT(idx_error(idx({0xFFFFFFFF, 28}, "")), HasSubstr("the file has 0"));
  EXPECT_THAT(idx_error(gzipped(idx({0xFFFFFFFF, 28, 28}, "abc"))), HasSubstr("compressed"));
  const std::string packed = gzipped(idx({40, 10}, std::string(400, 'q')));
  for (std::size_t length = 1; length < packed.size(); ++length)
    EXPECT_NE(idx_error(packed.substr(0, length)), "no error") << length;
  std::string flipped = packed;
  flipped[flipped.size() - 6] ^= 1;  // of the checksum
  EXPECT_THAT(idx_error(flipped), HasSubstr("damaged"));
  EXPECT_THAT(idx_error(gzipped(idx({2, 2}, "abcdefgh"))), HasSubstr("more values"));
}

TEST_F(DataFiles, Labels) {
  write("i", idx({2, 1, 1}, "ab"));
  write("l", idx({2}, std::string("\x01\x09", 2)));
  const auto data = read_dataset({folder_ / "i", "", folder_ / "l", ""}, std::nullopt);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_TRUE(check_classes(*data, 10, std::nullopt));
  const auto outside = check_classes(*data, 9, std::nullopt);
  ASSERT_FALSE(outside);
  EXPECT_THAT(outside.error().message, HasSubstr("label 1 is 9; the model has the classes 0 to 8"));
  EXPECT_TRUE(check_classes(*data, 9, 9));
  write("l", idx({3}, "abc"));
  EXPECT_THAT(read_dataset({folder_ / "i", "", folder_ / "l", ""}, std::nullopt).error().message,
              HasSubstr("there are 2 samples"));
  EXPECT_THAT(read_dataset({folder_ / "none", "", folder_ / "l", ""}, "fetch it").error().message,
              HasSubstr("none: no such file; fetch it"));
}

TEST_F(DataFiles, Archives) {
  TensorMap arrays;
  const double values[] = {0, 0.5, 1, 2};
  arrays["images"] = Tensor::from_doubles(DType::f64, {2, 2}, values);
  const std::int64_t labels[] = {0, 1};
  arrays["y"] = Tensor::from_int64s(DType::i32, {2}, labels);
  ASSERT_TRUE(write_npz(folder_ / "d.npz", arrays));
  const auto data = read_dataset({folder_ / "d.npz", "images", folder_ / "d.npz", "y"}, std::nullopt);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->images.dtype(), DType::f32);
  EXPECT_EQ(data->labels.dtype(), DType::i64);
  EXPECT_THAT(read_dataset({folder_ / "d.npz", "x", folder_ / "d.npz", "y"}, std::nullopt).error().message,
              HasSubstr("has no array 'x'; it has: images y"));
}

TEST_F(DataFiles, FolderOfClasses) {
  const auto picture = [&](const std::string& name, std::uint8_t grey) {
    fs::create_directories((folder_ / name).parent_path());
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = 3;
    image.height = 2;
    image.format = PNG_FORMAT_GRAY;
    const std::vector<std::uint8_t> pixels(6, grey);
    ASSERT_TRUE(png_image_write_to_file(&image, (folder_ / name).c_str(), 0, pixels.data(), 0, nullptr));
  };
  picture("set/cat/b.png", 10);
  picture("set/cat/a.png", 20);
  picture("set/dog/a.png", 30);
  const auto data = read_dataset({folder_ / "set", "", "", ""}, std::nullopt);
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->images.shape(), (Shape{3, 1, 2, 3}));
  EXPECT_EQ(data->images.at(0), 20);
  EXPECT_EQ(data->labels.to_int64s(), (std::vector<std::int64_t>{0, 0, 1}));
  EXPECT_EQ(data->classes, (std::vector<std::string>{"cat", "dog"}));
  const auto colour = read_png(folder_ / "set/cat/a.png", 3);
  ASSERT_TRUE(colour);
  EXPECT_EQ(colour->shape(), (Shape{3, 2, 3}));
  write("set/dog/c.png", "no picture");
  EXPECT_THAT(read_dataset({folder_ / "set", "", "", ""}, std::nullopt).error().message, HasSubstr("no readable PNG"));
}

TEST(Preprocessing, LinearInterpolationWithHalfPixelCentres) {
  const double pixels[] = {0, 51, 102, 255};
  const Tensor data = Tensor::from_doubles(DType::u8, {1, 2, 2}, pixels);
  const auto made =
      Preprocessing::make({0, std::pair(std::int64_t{4}, std::int64_t{4}), {0.5}, {0.25}}, {2, 2}, {1, 4, 4});
  ASSERT_TRUE(made) << made.error().message;
  const std::int64_t row[] = {0};
  const Tensor out = made->batch(data, row);
  EXPECT_EQ(out.shape(), (Shape{1, 1, 4, 4}));
  const auto value = [&](int y, int x) { return out.at(y * 4 + x); };
  EXPECT_FLOAT_EQ(value(0, 0), (0 - 0.5) / 0.25);
  EXPECT_FLOAT_EQ(value(3, 3), (1 - 0.5) / 0.25);
  EXPECT_FLOAT_EQ(value(0, 1), (0.75 * 0 + 0.25 * 0.2 - 0.5) / 0.25);
  EXPECT_FLOAT_EQ(value(1, 0), (0.25 * 0.4 - 0.5) / 0.25);
}

TEST(Preprocessing, FlipsAndChannels) {
  const double values[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const Tensor data = Tensor::from_doubles(DType::f32, {2, 2, 1, 2}, values);
  const auto made = Preprocessing::make({0.5, {}, {0, 1}, {1, 2}}, {2, 1, 2}, {2, 1, 2});
  ASSERT_TRUE(made) << made.error().message;
  const std::int64_t rows[] = {1, 0};
  EXPECT_EQ(made->batch(data, rows, {true, false}).to_doubles(), (std::vector<double>{6, 5, 3.5, 3, 1, 2, 1, 1.5}));
}

TEST(Preprocessing, MisfitsAreNamed) {
  const auto error = [](const Transform& t, const Shape& raw, const Shape& sample) {
    const auto made = Preprocessing::make(t, raw, sample);
    return made ? std::string("no error") : made.error().message;
  };
  EXPECT_THAT(error({}, {28, 28}, {1, 32, 32}), HasSubstr("samples of shape [28,28] do not fit the model"));
  EXPECT_THAT(error({0, {}, {1, 2}, {}}, {28, 28}, {1, 28, 28}), HasSubstr("'transform.mean' has 2 numbers"));
  EXPECT_THAT(error({0.5, {}, {}, {}}, {7}, {7}), HasSubstr("no pictures"));
  EXPECT_EQ(error({}, {28, 28}, {784}), "no error");
  EXPECT_EQ(error({}, {7}, {7}), "no error");
}

TEST(Order, DependsOnSeedAndEpochAlone) {
  auto order = shuffled(1000, 7, 3);
  EXPECT_EQ(order, shuffled(1000, 7, 3));
  EXPECT_NE(order, shuffled(1000, 7, 4));
  EXPECT_NE(order, shuffled(1000, 8, 3));
  std::sort(order.begin(), order.end());
  for (std::int64_t i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  const std::int64_t rows[] = {5, 6, 7}, other[] = {7, 5, 6};
  const auto a = flips_of(rows, 0.5, 1, 2), b = flips_of(other, 0.5, 1, 2);
  EXPECT_EQ(a[0], b[1]);  // of a sample, wherever it stands
  EXPECT_EQ(a[2], b[0]);
  std::vector<std::int64_t> many(10000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int64_t>(i);
  const auto flips = flips_of(many, 0.5, 1, 2);
  EXPECT_NEAR(static_cast<double>(std::count(flips.begin(), flips.end(), true)), 5000, 300);  // 6 deviations
}

}  // namespace
}  // namespace opdiff
