// SPDX-License-Identifier: Apache-2.0
// The C++ layer over files: what its objects do, and what is thrown.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/capi/hpp/world.h"

namespace meron::test {
namespace {

using testing::HasSubstr;

template <class Object>
constexpr bool kNeverCopied =
    std::is_nothrow_move_constructible_v<Object>&& std::is_nothrow_move_assignable_v<Object> &&
    !std::is_copy_constructible_v<Object> && std::is_nothrow_destructible_v<Object>;
static_assert(kNeverCopied<Io> && kNeverCopied<IoRequest> && kNeverCopied<IoBuffer>);

class IoLayer : public testing::Test {
 protected:
  ~IoLayer() override { std::remove(path_.c_str()); }
  const std::string path_ = testing::TempDir() + "meron-hpp-" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(IoLayer, OptionsStartFromTheInitialValues) {
  const meron_io_options initial = MERON_IO_OPTIONS_INIT;
  const meron_io_options ours = IoOptions{}.raw();
  EXPECT_EQ(0, std::memcmp(&initial, &ours, sizeof initial));
}

TEST_F(IoLayer, ReadsWhatItWrote) {
  Io io = open_io({IoBackend::automatic, 65536, 8, 2});
  std::vector<float> values(10'001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  io.write(path_, values);
  io.write(path_, std::string("abcd"), 4);
  values[1] = 0;
  std::memcpy(&values[1], "abcd", 4);
  float some[3] = {};
  io.read(path_, some, 4);
  EXPECT_EQ(0, std::memcmp(some, &values[1], sizeof some));

  const IoBuffer buffer = io.buffer(values.size() * sizeof(float));
  IoRequest request = io.read_begin(path_, buffer.bytes());
  request.wait();
  EXPECT_TRUE(request.poll());
  EXPECT_EQ(0, std::memcmp(buffer.bytes().data(), values.data(), buffer.bytes().size()));
  request = io.write_begin(path_, buffer.bytes(), 100'000);
  io.wait();
  EXPECT_TRUE(io.wait_for(std::chrono::seconds(1)));
  EXPECT_EQ(0u, io.info().pending);
  EXPECT_EQ(65536u, io.info().block_bytes);
  EXPECT_THAT(io.describe().str(), HasSubstr("64.0 KiB"));
}

TEST_F(IoLayer, ThrowsWhatNamesTheFile) {
  const Io io = open_io();
  std::vector<char> bytes(10);
  const Error none = expect_error(MERON_E_NOT_FOUND, [&] { io.read(path_, bytes); });
  EXPECT_EQ(path_, none.subject());
  io.write(path_, bytes);
  expect_error(MERON_E_IO, [&] { (void)io.read_begin(path_, bytes, 1); });
  expect_error(MERON_E_ARGUMENT, [&] { (void)io.buffer(0); });
  expect_error(MERON_E_ARGUMENT, [&] { io.read(std::string("a\0b", 3), bytes); });
  expect_error(MERON_E_HANDLE, [&] { Io().read(path_, bytes); });
  IoOptions odd;
  odd.block_bytes = 1;
  expect_error(MERON_E_ARGUMENT, [&] { (void)open_io(odd); });
}

TEST_F(IoLayer, ClosesAfterWhatIsUnderWay) {
  std::vector<char> bytes(4 << 20, 'x');
  IoRequest request;
  {
    Io io = open_io();
    request = io.write_begin(path_, bytes);
    io.close();
    expect_error(MERON_E_HANDLE, [&] { io.wait(); });
  }
  request.wait();
  std::ifstream file(path_, std::ios::binary | std::ios::ate);
  EXPECT_EQ(4 << 20, static_cast<int64_t>(file.tellg()));
}

}  // namespace
}  // namespace meron::test
