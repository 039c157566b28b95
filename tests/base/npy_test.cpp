// .npy and .npz: our own round trip, numpy's reading of ours and ours of numpy's, and hostile files.
#include "base/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zip.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "base/npy_stream.h"
#include "base/rng.h"

namespace opdiff {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Npy : public testing::Test {
 protected:
  Npy() {
    std::string pattern = (fs::temp_directory_path() / "opdiff-npy-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Npy() override { fs::remove_all(folder_); }

  void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
  // Runs a numpy script in the folder; nullopt where there is no numpy.
  std::optional<std::string> numpy(const std::string& script) {
    if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) return std::nullopt;
    write(folder_ / "script.py", "import numpy as np\nimport zipfile\n" + script);
    const std::string command = fmt::format("cd '{}' && python3 script.py > log.txt 2>&1", folder_.string());
    const int status = std::system(command.c_str());
    const auto log = read_file(folder_ / "log.txt", 1 << 20);
    EXPECT_EQ(status, 0) << *log;
    return *log;
  }
  std::string npy_message(const std::string& bytes) {
    write(folder_ / "bad.npy", bytes);
    const auto tensor = read_npy(folder_ / "bad.npy");
    return tensor ? "(read)" : tensor.error().message;
  }
  std::string npz_message(const fs::path& path) {
    const auto tensors = read_npz(path);
    return tensors ? "(read)" : tensors.error().message;
  }

  fs::path folder_;
};

std::string header(const std::string& dict, char major = 1) {
  std::string text = "\x93NUMPY";
  text += {major, '\0', static_cast<char>(dict.size() & 0xFF), static_cast<char>(dict.size() >> 8)};
  if (major > 1) text += std::string(2, '\0');
  return text + dict;
}

std::map<std::string, Tensor> one_of_each() {
  std::map<std::string, Tensor> tensors;
  for (int k = 0; k < kDTypeCount; ++k) {
    const auto dtype = static_cast<DType>(k);
    tensors[std::string(dtype_name(dtype))] =
        Tensor::from_doubles(dtype, {2, 3}, std::vector<double>{0, 1, 1, 0, dtype == DType::boolean ? 1. : 100., 1});
  }
  tensors["scalar"] = Tensor::scalar_like(DType::f32, 0.5);
  tensors["vector"] = Tensor::zeros(DType::i64, {3});
  tensors["empty"] = Tensor::zeros(DType::f32, {2, 0, 3});
  tensors["layer/weights:0 caf\xc3\xa9"] = Tensor::zeros(DType::f32, {1, 2, 3, 4, 5});
  return tensors;
}

void expect_same(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(tensor.bit_equal(b.at(name))) << name;
  }
}

TEST_F(Npy, RoundTrip) {
  for (const auto& [name, tensor] : one_of_each()) {
    ASSERT_TRUE(write_npy(folder_ / "t.npy", tensor));
    const auto back = read_npy(folder_ / "t.npy");
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_TRUE(back->bit_equal(tensor)) << name;
  }
}

TEST_F(Npy, NpzRoundTripIsAtomicAndReproducible) {
  const auto tensors = one_of_each();
  ASSERT_TRUE(write_npz(folder_ / "sub" / "t.npz", tensors));
  const std::string first = *read_file(folder_ / "sub" / "t.npz", 1 << 20);
  const auto back = read_npz(folder_ / "sub" / "t.npz");
  ASSERT_TRUE(back) << back.error().message;
  expect_same(tensors, *back);
  ASSERT_TRUE(write_npz(folder_ / "sub" / "t.npz", tensors));
  EXPECT_EQ(*read_file(folder_ / "sub" / "t.npz", 1 << 20), first);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "sub"), {}), 1);

  ASSERT_TRUE(write_npz(folder_ / "none.npz", {}));
  const auto none = read_npz(folder_ / "none.npz");
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_TRUE(none->empty());
}

TEST_F(Npy, WritingWhereNobodyMayIsAnError) {
  write(folder_ / "file", "");
  EXPECT_THAT(write_npz(folder_ / "file" / "t.npz", one_of_each()).error().message, HasSubstr("file/t.npz"));
  fs::create_directory(folder_ / "taken.npz");
  EXPECT_THAT(write_npz(folder_ / "taken.npz", one_of_each()).error().message, HasSubstr("taken.npz"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);  // no temporary file is left
}

TEST_F(Npy, NumpyReadsOurs) {
  ASSERT_TRUE(write_npz(folder_ / "t.npz", one_of_each()));
  ASSERT_TRUE(write_npy(folder_ / "t.npy", one_of_each().at("float16")));
  const auto log = numpy(R"(
z = np.load('t.npz')
for n in 'double float float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool'.split():
    want = np.array([[0, 1, 1], [0, 100, 1]]).astype({'double': 'f8', 'float': 'f4'}.get(n, n))
    assert z[n].dtype == want.dtype and (z[n] == want).all(), n
b = (z['bfloat16'].view('u2').astype('u4') << 16).view('f4')
assert (b == [[0, 1, 1], [0, 100, 1]]).all(), b
assert z['scalar'].shape == () and z['scalar'] == 0.5
assert z['vector'].shape == (3,) and z['empty'].shape == (2, 0, 3)
assert z['layer/weights:0 café'].shape == (1, 2, 3, 4, 5)
assert np.load('t.npy').dtype == np.float16
)");
  if (!log) GTEST_SKIP() << "python3 has no numpy: not checked against it";
}

TEST_F(Npy, WeReadNumpys) {
  const auto log = numpy(R"(
a = np.arange(24).reshape(2, 3, 4)
arrays = {'f4': a.astype('<f4'), 'big_f8': a.astype('>f8'), 'big_i2': a.astype('>i2'), 'u1': a.astype('u1'),
          'fortran': np.asfortranarray(a.astype('f4')), 'big_fortran': np.asfortranarray(a.astype('>i4')),
          'bool': a % 2 == 0, 'f2': a.astype('f2'), 'i8': a, 'bf16': np.arange(24, dtype='u2').reshape(2, 3, 4).view('V2')}
np.savez('stored.npz', **arrays)
np.savez_compressed('deflated.npz', **arrays)
np.save('fortran.npy', arrays['fortran'])
np.save('scalar.npy', np.float32(1.5))
for version in (1, 2, 3):
    with open(f'v{version}.npy', 'wb') as f:
        np.lib.format.write_array(f, arrays['f4'], version=(version, 0))
with zipfile.ZipFile('zip64.npz', 'w') as z:
    for name, array in arrays.items():
        with z.open(name + '.npy', 'w', force_zip64=True) as f:
            np.lib.format.write_array(f, array)
)");
  if (!log) GTEST_SKIP() << "python3 has no numpy: not checked against it";
  std::vector<double> values(24);
  for (int i = 0; i < 24; ++i) values[static_cast<std::size_t>(i)] = i;
  const std::map<std::string, DType> dtypes = {
      {"f4", DType::f32},      {"big_f8", DType::f64},      {"big_i2", DType::i16}, {"u1", DType::u8},
      {"fortran", DType::f32}, {"big_fortran", DType::i32}, {"f2", DType::f16},     {"i8", DType::i64},
      {"bf16", DType::bf16},   {"bool", DType::boolean}};
  for (const char* file : {"stored.npz", "deflated.npz", "zip64.npz"}) {
    const auto tensors = read_npz(folder_ / file);
    ASSERT_TRUE(tensors) << tensors.error().message;
    ASSERT_EQ(tensors->size(), dtypes.size());
    for (const auto& [name, dtype] : dtypes) {
      const Tensor& tensor = tensors->at(name);
      EXPECT_EQ(tensor.dtype(), dtype) << name;
      EXPECT_EQ(tensor.shape(), (Shape{2, 3, 4})) << name;
      for (std::int64_t i = 0; i < 24; ++i) {
        if (dtype == DType::bf16)
          EXPECT_EQ(tensor.as<std::uint16_t>()[static_cast<std::size_t>(i)], i);
        else
          EXPECT_EQ(tensor.at(i), dtype == DType::boolean ? 1 - i % 2 : i) << name;
      }
    }
  }
  for (const char* file : {"fortran.npy", "v1.npy", "v2.npy", "v3.npy"}) {
    const auto tensor = read_npy(folder_ / file);
    ASSERT_TRUE(tensor) << tensor.error().message;
    EXPECT_EQ(tensor->to_doubles(), values) << file;
  }
  EXPECT_EQ(read_npy(folder_ / "scalar.npy")->at(0), 1.5);
}

TEST_F(Npy, RefusedKindsAreNamed) {
  const auto with_descr = [this](const std::string& descr) {
    return npy_message(header("{'descr': " + descr + ", 'fortran_order': False, 'shape': (1,), }") +
                       std::string(16, 0));
  };
  EXPECT_THAT(with_descr("'<U3'"), AllOf(HasSubstr("bad.npy: dtype '<U3' (strings)"), HasSubstr("not supported")));
  EXPECT_THAT(with_descr("'|S3'"), HasSubstr("(strings)"));
  EXPECT_THAT(with_descr("'|O'"), HasSubstr("(Python objects)"));
  EXPECT_THAT(with_descr("'<c8'"), HasSubstr("(complex numbers)"));
  EXPECT_THAT(with_descr("'<M8[s]'"), HasSubstr("(dates)"));
  EXPECT_THAT(with_descr("'<f16'"), HasSubstr("'<f16'"));
  EXPECT_THAT(with_descr("'|V3'"), HasSubstr("'|V3'"));
  EXPECT_THAT(with_descr("[('a', '<f4')]"), HasSubstr("structured"));
}

TEST_F(Npy, BrokenFiles) {
  const std::string good = *[&] {
    EXPECT_TRUE(write_npy(folder_ / "good.npy", Tensor::zeros(DType::f32, {2, 3})));
    return read_file(folder_ / "good.npy", 1000);
  }();
  EXPECT_EQ(npy_message(good), "(read)");
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_THAT(npy_message(good.substr(0, length)), HasSubstr("bad.npy")) << length;
  EXPECT_THAT(npy_message(good + "x"), HasSubstr("but 25 after its header"));
  EXPECT_THAT(npy_message("PK\x03\x04 something"), HasSubstr("not in .npy format"));

  const auto with_shape = [this](const std::string& shape, char major = 1) {
    return npy_message(header("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n", major) + "1234");
  };
  EXPECT_EQ(with_shape("()"), "(read)");
  EXPECT_EQ(with_shape("(1L,)", 2), "(read)");
  EXPECT_THAT(with_shape("(1152921504606846976,)"), HasSubstr("2^48"));
  EXPECT_THAT(with_shape("(1099511627776,)"), HasSubstr("but 4 after its header"));
  EXPECT_THAT(with_shape("(-1,)"), HasSubstr("negative"));
  EXPECT_THAT(with_shape("(4294967296, 4294967296)"), HasSubstr("2^48"));
  EXPECT_THAT(with_shape("(99999999999999999999,)"), HasSubstr("no 64-bit number"));
  EXPECT_THAT(with_shape("(1"), HasSubstr("damaged"));
  EXPECT_THAT(with_shape("[1]"), HasSubstr("damaged"));
  EXPECT_THAT(with_shape("()", 4), HasSubstr("version 4"));
  EXPECT_THAT(npy_message(header("{'descr': '<f4', 'shape': (1,)}") + "1234"), HasSubstr("a key is missing"));
  EXPECT_THAT(npy_message(header("{'descr': '<f4', 'descr': '<f4'}") + "1234"), HasSubstr("repeated key"));
  std::string long_header = header("", 2);
  long_header[8] = long_header[9] = long_header[10] = long_header[11] = '\xff';
  EXPECT_THAT(npy_message(long_header), HasSubstr("header of 4294967295 bytes"));
}

// Writes one member with libzip.
void write_zip(const fs::path& path, const std::string& name, const std::string& bytes, int method) {
  int error = 0;
  zip_t* zip = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error);
  ASSERT_NE(zip, nullptr);
  zip_source_t* source = zip_source_buffer(zip, bytes.data(), bytes.size(), 0);
  const auto index = zip_file_add(zip, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  ASSERT_GE(index, 0);
  ASSERT_EQ(zip_set_file_compression(zip, static_cast<zip_uint64_t>(index), method, 0), 0);
  ASSERT_EQ(zip_close(zip), 0);
}

TEST_F(Npy, HostileArchives) {
  const fs::path path = folder_ / "bad.npz";
  write(path, "");
  EXPECT_THAT(npz_message(path), HasSubstr("bad.npz"));
  write(path, "this is no zip file");
  EXPECT_THAT(npz_message(path), AllOf(HasSubstr("bad.npz"), HasSubstr("zip")));
  EXPECT_THAT(npz_message(folder_ / "absent.npz"), HasSubstr("No such file"));
  EXPECT_THAT(npz_message(folder_), HasSubstr("folder"));

  const Tensor tensor = Tensor::zeros(DType::f32, {4});
  const std::string array = npy_header(tensor) + std::string(16, '\0');
  write_zip(path, "note.txt", "hello", ZIP_CM_STORE);
  EXPECT_THAT(npz_message(path), HasSubstr("'note.txt' is no .npy array"));
  write_zip(path, "x.npy", array.substr(0, array.size() - 1), ZIP_CM_DEFLATE);
  EXPECT_THAT(npz_message(path), AllOf(HasSubstr("array 'x'"), HasSubstr("but 15 after its header")));
  write_zip(path, "x.npy", header("{'descr': '<U1', 'fortran_order': False, 'shape': (1,), }"), ZIP_CM_STORE);
  EXPECT_THAT(npz_message(path), AllOf(HasSubstr("array 'x'"), HasSubstr("(strings)")));
  // A bomb: 64 MB of zeros behind a header that asks for 16 bytes.
  write_zip(path, "x.npy", npy_header(tensor) + std::string(64 << 20, '\0'), ZIP_CM_DEFLATE);
  EXPECT_THAT(npz_message(path), HasSubstr("but 67108864 after its header"));

  // A directory that claims more than deflate can give, or a stored member larger than the file.
  write_zip(path, "x.npy", array, ZIP_CM_STORE);
  std::string bytes = *read_file(path, 1 << 20);
  const std::size_t central = bytes.rfind("PK\x01\x02");
  ASSERT_NE(central, std::string::npos);
  std::string edited = bytes;
  for (const std::size_t offset : {central + 20, central + 24})  // compressed and uncompressed size
    edited.replace(offset, 4, std::string("\0\0\0\x70", 4));
  write(path, edited);
  EXPECT_THAT(npz_message(path), HasSubstr("bad.npz"));
  EXPECT_NE(npz_message(path), "(read)");

  // Damage is seen by the checksum.
  edited = bytes;
  edited[bytes.find(array) + array.size() - 1] ^= 1;
  write(path, edited);
  EXPECT_THAT(npz_message(path), AllOf(HasSubstr("array 'x'"), HasSubstr("CRC")));
}

TEST_F(Npy, MutatedArchivesNeverCrash) {
  const fs::path path = folder_ / "fuzz.npz";
  std::map<std::string, Tensor> tensors = {{"a", Tensor::zeros(DType::f32, {2, 3})},
                                           {"b", Tensor::zeros(DType::i8, {5})}};
  ASSERT_TRUE(write_npz(path, tensors));
  const std::string stored = *read_file(path, 1 << 20);
  write_zip(path, "x.npy", npy_header(tensors["a"]) + std::string(24, '\0'), ZIP_CM_DEFLATE);
  const std::string deflated = *read_file(path, 1 << 20);
  int read = 0;
  constexpr int kCount = 3000;
  for (std::uint64_t seed = 0; seed < kCount; ++seed) {
    Rng rng(seed);
    std::string bytes = rng.chance(0.5) ? stored : deflated;
    for (std::int64_t k = rng.integer(1, 4); k > 0; --k)
      bytes[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(bytes.size()) - 1))] =
          static_cast<char>(rng.pick(std::vector<int>{0, 1, 0x7F, 0x80, 0xFF, static_cast<int>(rng.integer(0, 255))}));
    if (rng.chance(0.2))
      bytes.resize(static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(bytes.size()))));
    write(path, bytes);
    const auto result = read_npz(path);
    if (result)
      ++read;
    else
      EXPECT_THAT(result.error().message, HasSubstr("fuzz.npz")) << "seed " << seed;
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, kCount);
}

}  // namespace
}  // namespace opdiff
