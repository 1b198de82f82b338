// SPDX-License-Identifier: Apache-2.0
// Who is turned away when ranks meet: wrong tokens, strangers on the socket, other versions.
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/fault/meeting.h"

namespace meron::test {
namespace {

const char* const kGoodToken = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const char* const kOtherToken = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";

TEST(Tokens, MissingOrMalformedAreRefused) {
  struct {
    const char* token;
    const char* says;
  } const cases[] = {
      {nullptr, "meron run"},
      {"", "0 characters instead of 64"},
      {"1234", "4 characters instead of 64"},
      {"zz112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", "hexadecimal"},
      {"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00", "66 characters"},
  };
  for (const auto& each : cases) {
    Open open = open_of(2, kSecond);
    open.adjust = [&](int, meron_context_options& options) { options.token = each.token; };
    Job job(1, [&](int rank, Report&) {
      unsetenv("MERON_TOKEN");
      unsetenv("MERON_TOKEN_FD");
      meet(open, rank);
    });
    ASSERT_TRUE(job.wait(5 * kSecond));
    expect_failed(job[0], MERON_E_AUTH, {each.says});
    EXPECT_EQ(nullptr, std::strstr(job[0].message, "00112233")) << "shows the secret";
  }
}

TEST(Tokens, FromTheEnvironmentAndFromADescriptor) {
  for (const bool by_descriptor : {false, true}) {
    Open open = open_of(2);
    open.adjust = [](int, meron_context_options& options) { options.token = nullptr; };
    const std::string token = open.token;
    Job job(2, [&](int rank, Report&) {
      if (by_descriptor) {
        int ends[2];
        if (pipe(ends) != 0) std::abort();
        (void)!write(ends[1], (token + "\n").data(), 65);
        close(ends[1]);
        setenv("MERON_TOKEN_FD", std::to_string(ends[0]).c_str(), 1);
        setenv("MERON_TOKEN", "not this one", 1);
      } else {
        setenv("MERON_TOKEN", token.c_str(), 1);
      }
      meet(open, rank);
    });
    expect_met(job);
  }
}

TEST(Tokens, ADescriptorThatIsNoneIsRefused) {
  for (const char* text : {"", "x", "-1", "7x", "999", "99999999999"}) {
    Open open = open_of(2, kSecond);
    open.adjust = [](int, meron_context_options& options) { options.token = nullptr; };
    Job job(1, [&](int rank, Report&) {
      setenv("MERON_TOKEN_FD", text, 1);
      meet(open, rank);
    });
    ASSERT_TRUE(job.wait(5 * kSecond));
    expect_failed(job[0], MERON_E_AUTH, {"MERON_TOKEN_FD"});
  }
}

// A pipe whose writer keeps its end open: with the token, in two pieces, and without one.
TEST(Tokens, ThroughAPipeThatStaysOpenKeepDeadlines) {
  for (const bool delivers : {true, false}) {
    Open open = open_of(2, kSecond);
    open.adjust = [](int, meron_context_options& options) { options.token = nullptr; };
    const std::string token = open.token;
    Job job(delivers ? 2 : 1, [&](int rank, Report&) {
      int ends[2];
      if (pipe(ends) != 0) std::abort();
      std::jthread writer([&] {
        if (!delivers) return;
        (void)!write(ends[1], token.data(), 30);
        usleep(250'000);
        (void)!write(ends[1], token.data() + 30, 34);
      });
      setenv("MERON_TOKEN_FD", std::to_string(ends[0]).c_str(), 1);
      meet(open, rank);
    });
    if (delivers) {
      expect_met(job);
    } else {
      ASSERT_TRUE(job.wait(5 * kSecond)) << "waits for the pipe";
      expect_failed(job[0], MERON_E_TIMEOUT, {"MERON_TOKEN_FD"});
    }
  }
}

// The same job, another token: the stranger gets an error, and the job waits for the right rank.
TEST(Tokens, WrongOnesAreTurnedAway) {
  Open open = open_of(2);
  open.token = kGoodToken;
  const std::string job_name = fresh_token();
  open.adjust = [&](int, meron_context_options& options) { options.job = job_name.c_str(); };
  Open wrong = open;
  wrong.token = kOtherToken;
  Shared<std::atomic<int>> refused(1);
  Job job(3, [&](int process, Report&) {
    if (process == 2) {
      try {
        meet(wrong, 1);
      } catch (const CallFailed&) {
        refused[0] = 1;
        throw;
      }
      return;
    }
    while (process == 1 && refused[0].load() == 0) sleep_ns(kMilli);
    meet(open, process);
  });
  ASSERT_TRUE(job.wait(20 * kSecond));
  EXPECT_EQ(MERON_OK, job[0].status) << job[0].message;
  EXPECT_EQ(MERON_OK, job[1].status) << job[1].message;
  expect_failed(job[2], MERON_E_AUTH, {"token"});
  EXPECT_EQ(0, job[2].peer);
}

TEST(Tokens, OfRejectedRanksAreCountedForTheWaitingRanks) {
  Open open = open_of(2, kSecond);
  open.token = kGoodToken;
  const std::string job_name = fresh_token();
  open.adjust = [&](int, meron_context_options& options) { options.job = job_name.c_str(); };
  Open wrong = open;
  wrong.token = kOtherToken;
  Job job(2, [&](int rank, Report&) { meet(rank == 0 ? open : wrong, rank); });
  ASSERT_TRUE(job.wait(10 * kSecond));
  expect_failed(job[0], MERON_E_TIMEOUT, {"missing: rank 1", "1 with a wrong token"});
  expect_failed(job[1], MERON_E_AUTH, {"token"});
}

// The names of sockets that begin as Meron's do, from the kernel's list.
std::vector<std::string> meeting_sockets() {
  std::vector<std::string> names;
  std::FILE* const file = std::fopen("/proc/net/unix", "r");
  char line[512];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (const char* at = std::strstr(line, "@meron-")) {
      std::string name = at + 1;
      while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
      names.push_back(name);
    }
  }
  if (file != nullptr) std::fclose(file);
  return names;
}

int connect_to(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof(address.sun_path) - 1));
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const socklen_t bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return fd;
  close(fd);
  return -1;
}

// A stranger who talks nonsense, much of it, or nothing at all, for as long as ranks meet.
TEST(Strangers, OnTheSocketChangeNothing) {
  Random random(test_seed());
  Times met;
  for (int trial = 0; trial < 20; ++trial) {
    const Open open = open_of(3, 8 * kSecond);
    Shared<std::atomic<int>> control(2);
    const uint64_t seed = random.engine();
    Job stranger(1, [&](int, Report& report) {
      Random own(seed);
      std::vector<int> silent;
      while (control[0].load() == 0) {
        for (const std::string& name : meeting_sockets()) {
          if (name.find(open.token) == std::string::npos) continue;  // another job's
          const int fd = connect_to(name);
          if (fd < 0) continue;
          control[1] = 1;
          ++report.numbers[0];
          std::vector<char> noise(static_cast<size_t>(own.below(2000)));
          for (char& byte : noise) byte = static_cast<char>(own.below(256));
          switch (own.below(4)) {
            case 0:
              silent.push_back(fd);  // connected, and says nothing
              break;
            case 1:
              (void)!send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
              silent.push_back(fd);
              break;
            case 2:
              for (int i = 0; i < 20; ++i) (void)!send(fd, noise.data(), 56, MSG_NOSIGNAL);
              close(fd);
              break;
            default:
              close(fd);
          }
          if (silent.size() > 200) {
            for (const int each : silent) close(each);
            silent.clear();
          }
        }
        sleep_ns(kMilli / 4);
      }
    });
    Job job(3, [&](int rank, Report& report) {
      // Long enough for the stranger to arrive first.
      while (rank > 0 && control[1].load() == 0) sleep_ns(kMilli);
      if (rank > 0) sleep_ns((5 + 5 * rank) * kMilli);
      report.times[0] = now_ns();
      meet(open, rank);
      report.times[0] = now_ns() - report.times[0];
    });
    expect_met(job);
    control[0] = 1;
    ASSERT_TRUE(stranger.wait(10 * kSecond));
    EXPECT_GT(stranger[0].numbers[0], 0) << "the stranger never got through";
    met.add(job[2].times[0]);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_LT(met.quantile(1.0), 3 * kSecond);
  met.print("the last rank met its peers after");
}

// As a rank of another version greets: its greeting is the same in all of them.
struct Greeting {
  uint64_t magic = 0x6e6f72656d000002ull;
  uint32_t protocol = 1;
  uint32_t version = 9 << 16 | 8 << 8 | 7;
  int32_t rank = 1;
  int32_t world_size = 3;
  unsigned char token[32];
};

TEST(Versions, ThatDifferAreNamedToAll) {
  for (const uint64_t layout : {0u, 1u}) {
    Open open = open_of(3);
    open.token = kGoodToken;
    const std::string name = fresh_token();
    open.adjust = [&](int, meron_context_options& options) { options.job = name.c_str(); };
    Job job(2, [&](int process, Report&) { meet(open, process == 0 ? 0 : 2); });
    const std::string socket_name = "meron-" + std::to_string(geteuid()) + "-" + name;
    int fd = -1;
    for (int i = 0; i < 5000 && fd < 0; ++i, sleep_ns(kMilli)) fd = connect_to(socket_name);
    ASSERT_GE(fd, 0);
    sleep_ns(50 * kMilli);  // rank 2 has arrived by now
    Greeting greeting;
    greeting.magic += layout;
    for (size_t i = 0; i < sizeof greeting.token; ++i) {
      greeting.token[i] =
          static_cast<unsigned char>(std::stoi(open.token.substr(2 * i, 2), nullptr, 16));
    }
    ASSERT_EQ(static_cast<ssize_t>(sizeof greeting), send(fd, &greeting, sizeof greeting, 0));
    ASSERT_TRUE(job.wait(20 * kSecond));
    close(fd);
    for (int process = 0; process < 2; ++process) {
      expect_failed(job[process], MERON_E_VERSION,
                    {"rank 1 runs Meron 9.8.7", "rank 0 runs", meron_version_string()});
      EXPECT_EQ(1, job[process].peer);
    }
  }
}

// Someone else may hold the job's name without being rank 0: ranks wait until their deadline.
TEST(Strangers, ThatListenUnderTheNameAreNotBelieved) {
  const Open open = open_of(2, 500 * kMilli);
  Shared<std::atomic<int>> listening(1);
  Job job(2, [&](int process, Report& report) {
    if (process == 0) {
      const std::string name = "meron-" + std::to_string(geteuid()) + "-" + open.token;
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::memcpy(address.sun_path + 1, name.data(), name.size());
      const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
      const socklen_t bytes =
          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      if (bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes) != 0) std::abort();
      listen(fd, 4);
      listening[0] = 1;
      const int peer = accept(fd, nullptr, nullptr);
      char garbage[600];
      std::memset(garbage, 0x5a, sizeof garbage);
      (void)!send(peer, garbage, sizeof garbage, MSG_NOSIGNAL);
      sleep_ns(kSecond);
      return;
    }
    while (listening[0].load() == 0) sleep_ns(kMilli);
    report.times[0] = now_ns();
    meet(open, 1);
  });
  ASSERT_TRUE(job.wait(10 * kSecond));
  EXPECT_LT(job[1].status, 0);
  EXPECT_LT(job[1].failed_ns - job[1].times[0], 2 * kSecond);
}

}  // namespace
}  // namespace meron::test
