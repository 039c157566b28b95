// Frames over a socket pair, cut into every kind of piece.
#include "workers/wire.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace opdiff {
namespace {

using ::testing::HasSubstr;

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    a.reset(ends[0]);
    b.reset(ends[1]);
  }
  FileDescriptor a, b;
};

Tensor ramp(std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return Tensor::from_doubles(DType::f32, {count}, values);
}

TEST(Wire, AFrameWithItsArena) {
  Pair pair;
  ArenaBuilder builder;
  const Tensor first = ramp(3), second = ramp(5);
  builder.add(first);
  const auto offset = builder.add(second);
  auto arena = make_arena(builder);
  ASSERT_TRUE(arena) << arena.error().message;
  FrameWriter writer({"{\"a\":1}", *std::move(arena)});
  EXPECT_EQ(writer.step(pair.a.get()), true);
  FrameReader reader;
  EXPECT_EQ(reader.step(pair.b.get()), true);
  WireFrame frame = reader.take();
  EXPECT_EQ(frame.body, "{\"a\":1}");
  ASSERT_TRUE(frame.arena);
  EXPECT_TRUE(read_tensor(frame.arena, DType::f32, {5}, static_cast<std::int64_t>(offset))->bit_equal(second));
  // Nobody can change what was sent.
  EXPECT_EQ(mmap(nullptr, 64, PROT_READ | PROT_WRITE, MAP_SHARED, frame.arena.get(), 0), MAP_FAILED);
  EXPECT_NE(ftruncate(frame.arena.get(), 0), 0);
  EXPECT_LT(write(frame.arena.get(), "x", 1), 0);
}

TEST(Wire, LongFramesGoOutInPieces) {
  Pair pair;
  const std::string body(kMaximumFrame, 'x');
  FrameWriter writer({body, {}});
  FrameReader reader;
  int steps = 0;
  bool received = false;
  while (!received) {
    ASSERT_TRUE(writer.done() || writer.step(pair.a.get()).has_value());
    const auto result = reader.step(pair.b.get());
    ASSERT_TRUE(result) << result.error().message;
    received = *result;
    ++steps;
  }
  EXPECT_GT(steps, 1);
  EXPECT_EQ(reader.take().body, body);
}

TEST(Wire, ByteByByte) {
  Pair pair;
  const std::string bytes = std::string("\x05\x00\x00\x00", 4) + "hello";
  FrameReader reader;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(reader.step(pair.b.get()), false);
    ASSERT_EQ(write(pair.a.get(), &bytes[i], 1), 1);
  }
  EXPECT_EQ(reader.step(pair.b.get()), true);
  EXPECT_EQ(reader.take().body, "hello");
}

TEST(Wire, BrokenFrames) {
  {
    Pair pair;
    ASSERT_EQ(write(pair.a.get(), "\x01\x00\x00\x04", 4), 4);
    FrameReader reader;
    const auto result = reader.step(pair.b.get());
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message, HasSubstr("a frame of 67108865 bytes; at most 67108864"));
    EXPECT_FALSE(reader.closed());
  }
  {
    Pair pair;
    ASSERT_EQ(write(pair.a.get(), "\x09\x00\x00\x00{", 5), 5);
    pair.a.reset();
    FrameReader reader;
    const auto result = reader.step(pair.b.get());
    ASSERT_FALSE(result);
    EXPECT_TRUE(reader.closed());
    EXPECT_THAT(result.error().message, HasSubstr("inside a frame"));
  }
  {
    Pair pair;
    pair.b.reset();
    FrameWriter writer({"{}", {}});
    EXPECT_FALSE(writer.step(pair.a.get()));  // and no SIGPIPE
  }
}

TEST(Wire, TensorsOutsideTheirArena) {
  ArenaBuilder builder;
  builder.add(ramp(32));
  const auto arena = make_arena(builder);
  ASSERT_TRUE(arena);
  const auto message = [&](const Shape& shape, std::int64_t offset) {
    const auto tensor = read_tensor(*arena, DType::f32, shape, offset);
    return tensor ? std::string("accepted") : tensor.error().message;
  };
  EXPECT_EQ(message({32}, 0), "accepted");
  EXPECT_EQ(message({0, 7}, 1 << 30), "accepted");  // no bytes, no place
  EXPECT_THAT(message({2000}, 0), HasSubstr("do not lie in shared memory"));
  EXPECT_THAT(message({1}, 1 << 20), HasSubstr("do not lie in shared memory"));
  EXPECT_THAT(message({1}, std::numeric_limits<std::int64_t>::max() - 63), HasSubstr("do not lie in shared memory"));
  EXPECT_THAT(message({1}, -64), HasSubstr("no multiple of 64"));
  EXPECT_THAT(message({1}, 4), HasSubstr("no multiple of 64"));
  EXPECT_NE(message({1ll << 40, 1ll << 40}, 0), "accepted");
  EXPECT_NE(message({-1}, 0), "accepted");
  EXPECT_THAT(read_tensor(FileDescriptor(), DType::f32, {1}, 0).error().message, HasSubstr("no shared memory"));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  FileDescriptor reading(ends[0]), writing(ends[1]);
  EXPECT_THAT(read_tensor(reading, DType::f32, {1}, 0).error().message, HasSubstr("no shared memory"));
}

}  // namespace
}  // namespace opdiff
