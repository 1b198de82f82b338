// SPDX-License-Identifier: Apache-2.0
// For tests that need another process, or a process whose limits they may spoil.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

namespace meron::test {

// A forked child that runs `body`, a function that returns the child's exit status. Killed and
// reaped when it goes out of scope, and killed when the test's process ends.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) {
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(body());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    kill(SIGKILL);
    wait();
  }

  pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  // The exit status, or 1000 + the signal that ended it.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0) {
      if (errno != EINTR) return -1;
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

template <class Body>
int run_in_child(Body body) {
  return Child(std::move(body)).wait();
}

// In a child: the first condition that does not hold ends it with the line's number (modulo 199,
// plus 1) as its status, so that the parent's failure message leads here.
#define CHILD_EXPECT(condition)                                                                  \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      std::fprintf(stderr, "%s:%d: in the child: not so: %s\n", __FILE__, __LINE__, #condition); \
      return __LINE__ % 199 + 1;                                                                 \
    }                                                                                            \
  } while (0)

// From now on the system call fails with `error` in this process; if `third` is given, only calls
// with that third argument.
inline bool deny_syscall(long number, int error, std::optional<uint32_t> third = {}) {
  const sock_filter load_number = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
  const sock_filter load_third =
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 2 * sizeof(uint64_t));
  const sock_filter refuse =
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error));
  const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  // Continues if the loaded value is `value`, else skips `count` instructions.
  const auto unless = [](uint32_t value, uint8_t count) -> sock_filter {
    return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count);
  };
  std::vector<sock_filter> code = {load_number};
  if (third) {
    code.insert(code.end(),
                {unless(static_cast<uint32_t>(number), 3), load_third, unless(*third, 1)});
  } else {
    code.push_back(unless(static_cast<uint32_t>(number), 1));
  }
  code.insert(code.end(), {refuse, allow});
  const sock_fprog program = {.len = static_cast<unsigned short>(code.size()),
                              .filter = code.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace meron::test
