// SPDX-License-Identifier: Apache-2.0
#include "os/local_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "os/process.h"
#include "tests/unit/os/child_process.h"

namespace meron {
namespace {

using test::Child;

std::string fresh_name() {
  static std::atomic<int> count{0};
  return "meron-test-" + std::to_string(process_id()) + "-" + std::to_string(count++);
}

Deadline soon() {
  return Deadline::after_ms(20);
}
Deadline late() {
  return Deadline::after_ms(10000);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
std::string text_of(const SocketMessage& message) {
  return {reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()};
}

struct Pair {
  UniqueFd listener, client, server;
};

Pair connected() {
  Pair pair;
  const std::string name = fresh_name();
  pair.listener = std::move(listen_abstract(name)).value();
  pair.client = std::move(connect_abstract(name, late())).value();
  pair.server = std::move(accept(pair.listener.get(), late())).value();
  return pair;
}

template <class T>
meron_status code(const Result<T>& result) {
  return result.ok() ? MERON_OK : result.error().code();
}

TEST(LocalSocket, KeepsMessageBounds) {
  const Pair pair = connected();
  const std::string big(kMaxMessageBytes, 'b');
  for (const std::string_view text :
       {std::string_view("one"), std::string_view("2"), std::string_view(big)}) {
    ASSERT_TRUE(send_message(pair.client.get(), bytes_of(text), {}, late()).ok());
  }
  for (const std::string_view text :
       {std::string_view("one"), std::string_view("2"), std::string_view(big)}) {
    auto message = receive_message(pair.server.get(), kMaxMessageBytes, 0, late());
    ASSERT_TRUE(message.ok()) << message.error().info().what;
    EXPECT_EQ(text_of(*message), text);
    EXPECT_TRUE(message->fds.empty());
  }
}

TEST(LocalSocket, PassesDescriptors) {
  const Pair pair = connected();
  std::vector<UniqueFd> files;
  std::vector<int> fds;
  for (size_t i = 0; i < kMaxMessageFds; ++i) {
    files.emplace_back(::memfd_create("socket_test", 0));
    fds.push_back(files.back().get());
    ASSERT_EQ(::write(fds.back(), &i, sizeof i), static_cast<ssize_t>(sizeof i));
  }
  ASSERT_TRUE(send_message(pair.server.get(), bytes_of("files"), fds, late()).ok());
  files.clear();
  auto message = receive_message(pair.client.get(), 100, kMaxMessageFds, late());
  ASSERT_TRUE(message.ok());
  ASSERT_EQ(message->fds.size(), kMaxMessageFds);
  for (size_t i = 0; i < kMaxMessageFds; ++i) {
    size_t content = 0;
    const int fd = message->fds[i].get();
    ASSERT_EQ(::pread(fd, &content, sizeof content, 0), static_cast<ssize_t>(sizeof content));
    EXPECT_EQ(content, i);
    EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
  }
}

TEST(LocalSocket, DropsMessagesOverTheBoundAndClosesTheirDescriptors) {
  const Pair pair = connected();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const int two[] = {writer.get(), writer.get()};
  ASSERT_TRUE(send_message(pair.client.get(), bytes_of("too long"), {}, late()).ok());
  ASSERT_TRUE(send_message(pair.client.get(), bytes_of("fds"), two, late()).ok());
  ASSERT_TRUE(send_message(pair.client.get(), bytes_of("fds"), two, late()).ok());
  ASSERT_TRUE(send_message(pair.client.get(), bytes_of("good"), {}, late()).ok());
  writer.reset();
  EXPECT_EQ(code(receive_message(pair.server.get(), 7, 0, late())), MERON_E_IO);
  EXPECT_EQ(code(receive_message(pair.server.get(), 7, 1, late())), MERON_E_IO);
  EXPECT_EQ(code(receive_message(pair.server.get(), 7, 0, late())), MERON_E_IO);
  auto good = receive_message(pair.server.get(), 7, 0, late());
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(text_of(*good), "good");
  char byte;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);  // the end: no writer is left open
}

TEST(LocalSocket, RefusesWhatCannotBeSent) {
  const Pair pair = connected();
  const std::string over(kMaxMessageBytes + 1, 'x');
  const std::vector<int> fds(kMaxMessageFds + 1, 0);
  const int fd = pair.client.get();
  EXPECT_EQ(code(send_message(fd, {}, {}, late())), MERON_E_ARGUMENT);
  EXPECT_EQ(code(send_message(fd, bytes_of(over), {}, late())), MERON_E_ARGUMENT);
  EXPECT_EQ(code(send_message(fd, bytes_of("x"), fds, late())), MERON_E_ARGUMENT);
  EXPECT_EQ(code(send_message(-1, bytes_of("x"), {}, late())), MERON_E_IO);
  EXPECT_EQ(code(receive_message(fd, 0, 0, late())), MERON_E_ARGUMENT);
  EXPECT_EQ(code(receive_message(fd, SIZE_MAX, 0, late())), MERON_E_ARGUMENT);
  EXPECT_EQ(code(receive_message(fd, 1, SIZE_MAX, late())), MERON_E_ARGUMENT);
}

TEST(LocalSocket, EveryWaitEndsAtItsDeadline) {
  const Pair pair = connected();
  EXPECT_EQ(code(accept(pair.listener.get(), soon())), MERON_E_TIMEOUT);
  EXPECT_EQ(code(receive_message(pair.client.get(), 10, 0, soon())), MERON_E_TIMEOUT);
  EXPECT_EQ(code(connect_abstract(fresh_name(), soon())), MERON_E_TIMEOUT);
  const std::string big(kMaxMessageBytes, 'b');
  Status sent = Ok{};
  for (int i = 0; i < 1000 && sent.ok(); ++i) {
    sent = send_message(pair.client.get(), bytes_of(big), {}, soon());
  }
  EXPECT_EQ(code(sent), MERON_E_TIMEOUT);
  const int64_t begin = now_ns();
  EXPECT_EQ(code(receive_message(pair.client.get(), 10, 0, soon())), MERON_E_TIMEOUT);
  EXPECT_GE(now_ns() - begin, 20 * kNanosPerMilli);
  EXPECT_LT(now_ns() - begin, 5 * kNanosPerSecond);
}

TEST(LocalSocket, NoticesThatThePeerIsGone) {
  Pair pair = connected();
  ASSERT_TRUE(send_message(pair.server.get(), bytes_of("last words"), {}, late()).ok());
  pair.server.reset();
  auto last = receive_message(pair.client.get(), 100, 0, late());
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(text_of(*last), "last words");
  EXPECT_EQ(code(receive_message(pair.client.get(), 100, 0, late())), MERON_E_PEER_CLOSED);
  // SIGPIPE would end the test here.
  EXPECT_EQ(code(send_message(pair.client.get(), bytes_of("x"), {}, late())), MERON_E_PEER_CLOSED);
}

// The kernel reports the reset before the message that came ahead of it.
TEST(LocalSocket, ReceivesWhatWasSentBeforeACloseWithUnreadData) {
  Pair pair = connected();
  ASSERT_TRUE(send_message(pair.client.get(), bytes_of("unread"), {}, late()).ok());
  ASSERT_TRUE(send_message(pair.server.get(), bytes_of("last"), {}, late()).ok());
  pair.server = {};
  auto message = receive_message(pair.client.get(), 16, 0, late());
  ASSERT_TRUE(message.ok()) << message.error().info().what;
  EXPECT_EQ(text_of(*message), "last");
  EXPECT_EQ(code(receive_message(pair.client.get(), 16, 0, late())), MERON_E_PEER_CLOSED);
}

TEST(LocalSocket, WaitsForTheListenerAndKnowsWhoConnects) {
  const std::string name = fresh_name();
  Child child([&] {
    auto fd = connect_abstract(name, late());
    CHILD_EXPECT(fd.ok());
    auto credentials = peer_credentials(fd->get());
    CHILD_EXPECT(credentials.ok() && credentials->pid == ::getppid());
    auto answer = receive_message(fd->get(), 100, 1, late());
    CHILD_EXPECT(answer.ok() && text_of(*answer) == "hello" && answer->fds.size() == 1);
    CHILD_EXPECT(::write(answer->fds[0].get(), "from the child", 14) == 14);
    return 0;
  });
  ::usleep(20000);
  auto listener = listen_abstract(name);
  ASSERT_TRUE(listener.ok());
  auto fd = accept(listener->get(), late());
  ASSERT_TRUE(fd.ok());
  const auto credentials = peer_credentials(fd->get());
  ASSERT_TRUE(credentials.ok());
  EXPECT_EQ(credentials->pid, child.pid());
  EXPECT_EQ(credentials->uid, effective_uid());
  const UniqueFd file(::memfd_create("socket_test", 0));
  const int fds[] = {file.get()};
  ASSERT_TRUE(send_message(fd->get(), bytes_of("hello"), fds, late()).ok());
  EXPECT_EQ(child.wait(), 0);
  char text[15] = {};
  EXPECT_EQ(::pread(file.get(), text, 14, 0), 14);
  EXPECT_STREQ(text, "from the child");
}

TEST(LocalSocket, NamesAreExclusiveAndVanishWithTheirOwner) {
  const std::string name = fresh_name();
  {
    auto first = listen_abstract(name);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(code(listen_abstract(name)), MERON_E_DUPLICATE);
    // The whole name counts, so a prefix is another one.
    EXPECT_TRUE(listen_abstract(name + "0").ok());
  }
  EXPECT_TRUE(listen_abstract(name).ok());
  EXPECT_EQ(code(listen_abstract("")), MERON_E_ARGUMENT);
  EXPECT_EQ(code(listen_abstract(std::string(kMaxSocketName + 1, 'n'))), MERON_E_ARGUMENT);
  EXPECT_TRUE(listen_abstract(fresh_name() + std::string(kMaxSocketName - 40, 'n')).ok());
}

TEST(LocalSocket, IsClosedOnExec) {
  const Pair pair = connected();
  for (const int fd : {pair.listener.get(), pair.client.get(), pair.server.get()}) {
    EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
  }
}

}  // namespace
}  // namespace meron
