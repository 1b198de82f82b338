// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tools/meron/failure.h"

namespace meron::tools {
namespace {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Pipe make_pipe(int rank) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw system_failure(fmt::format("cannot make a pipe for rank {} (see `ulimit -n`)", rank),
                         errno);
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// A descriptor of its own per rank, so that one rank's reading does not move another's position.
// The contents are sealed: a rank cannot change them.
UniqueFd make_token_file(const std::string& token, int rank) {
  UniqueFd file(memfd_create("meron-token", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const auto size = static_cast<ssize_t>(token.size());
  if (!file || write(file.get(), token.data(), token.size()) != size ||
      lseek(file.get(), 0, SEEK_SET) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)) {
    throw system_failure(fmt::format("cannot pass the job's token to rank {}", rank), errno);
  }
  return file;
}

void set_environment(const RankCommand& command, int rank, int token_fd) {
  const auto set = [](const char* name, int value) {
    setenv(name, std::to_string(value).c_str(), 1);
  };
  set("MERON_RANK", rank);
  set("MERON_WORLD_SIZE", command.world_size);
  set("MERON_LOCAL_RANK", rank);
  set("MERON_LOCAL_WORLD_SIZE", command.world_size);
  set("MERON_TOKEN_FD", token_fd);
  set("MERON_BOARD_FD", command.board_fd);
  unsetenv("MERON_TOKEN");  // another job's
  // torchrun's, which scripts and libraries read.
  set("RANK", rank);
  set("WORLD_SIZE", command.world_size);
  set("LOCAL_RANK", rank);
  set("LOCAL_WORLD_SIZE", command.world_size);
  if (command.master_port != 0) {
    set("MASTER_PORT", command.master_port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
  } else {
    unsetenv("MASTER_PORT");
    unsetenv("MASTER_ADDR");
  }
  // With it, torch.distributed would wait for the agent of an outer torchrun at MASTER_PORT.
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  // Each rank's numeric libraries would else take all of the host's cores.
  const int threads = static_cast<int>(std::thread::hardware_concurrency()) / command.world_size;
  setenv("OMP_NUM_THREADS", std::to_string(std::max(threads, 1)).c_str(), 0);
}

// In the child, up to exec. Returns only if something fails, with errno set.
void become_rank(const RankCommand& command, int rank, pid_t supervisor, int token_fd, int output,
                 int errors) {
  // The second line closes the gap in which the supervisor could have died before the first.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
  if (getppid() != supervisor) _exit(kRuntimeError);
  if (setpgid(0, command.process_group) != 0) _exit(kRuntimeError);  // the launcher has ended

  if (rank != 0) {  // standard input has one reader
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) return;
  }
  if (output >= 0 && dup2(output, STDOUT_FILENO) < 0) return;
  if (errors >= 0 && dup2(errors, STDERR_FILENO) < 0) return;
  // The two descriptors that survive exec.
  if (fcntl(token_fd, F_SETFD, 0) != 0 || fcntl(command.board_fd, F_SETFD, 0) != 0) return;
  set_environment(command, rank, token_fd);
  if (sigprocmask(SIG_SETMASK, &command.signal_mask, nullptr) != 0) return;

  std::vector<char*> words;
  words.reserve(command.words.size() + 1);
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
}

bool is_python(const std::string& program) {
  return program.ends_with(".py") && access(program.c_str(), R_OK) == 0;
}

// Advice for a program that is a script, or a file of this folder.
std::string how_to_run(const std::string& program) {
  if (is_python(program)) {
    return fmt::format("; for a script write the interpreter: python3 {}", program);
  }
  if (program.find('/') != std::string::npos) {
    struct stat status {};
    const bool is_file = stat(program.c_str(), &status) == 0 && S_ISREG(status.st_mode);
    return is_file ? fmt::format("; `chmod +x {}` makes it executable", program) : std::string();
  }
  const bool here = access(("./" + program).c_str(), X_OK) == 0;
  return here ? fmt::format("; ./{} would run the one in this folder", program) : std::string();
}

Failure exec_failure(const std::string& program, int error) {
  if (error == ENOENT && program.find('/') == std::string::npos) {
    return Failure(
        fmt::format("the program '{}' was not found in PATH{}", program, how_to_run(program)),
        kNotFound);
  }
  if (error == ENOENT) {
    const bool exists = access(program.c_str(), F_OK) == 0;
    return Failure(exists ? fmt::format("'{}' names an interpreter in its first line that does not "
                                        "exist",
                                        program)
                          : fmt::format("the program '{}' does not exist", program),
                   kNotFound);
  }
  if (error == EMFILE || error == ENFILE) {
    return system_failure(fmt::format("cannot start '{}' (see `ulimit -n`)", program), error);
  }
  const std::string how = error == EACCES || error == ENOEXEC ? how_to_run(program) : "";
  return Failure(
      fmt::format("the program '{}' cannot be run: {}{}", program, std::strerror(error), how),
      kNotExecutable);
}

}  // namespace

std::string make_token() {
  std::array<unsigned char, 32> secret;
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    throw system_failure("cannot draw random bytes for the job's token", errno);
  }
  std::string digits;
  for (const unsigned char byte : secret) digits += fmt::format("{:02x}", byte);
  return digits;
}

RankProcess start_rank(const RankCommand& command, int rank) {
  RankProcess process;
  process.rank = rank;
  const UniqueFd token = make_token_file(command.token, rank);
  Pipe output, errors;
  if (command.capture_output) {
    output = make_pipe(rank);
    errors = make_pipe(rank);
  }
  // A successful exec closes it. If exec fails, the child writes errno into it.
  Pipe report = make_pipe(rank);

  const pid_t supervisor = getpid();
  process.pid = fork();
  if (process.pid < 0) {
    throw system_failure(fmt::format("cannot start rank {} of {}", rank, command.world_size),
                         errno);
  }
  if (process.pid == 0) {
    become_rank(command, rank, supervisor, token.get(), output.write.get(), errors.write.get());
    const int reason = errno;
    [[maybe_unused]] const ssize_t written = write(report.write.get(), &reason, sizeof reason);
    _exit(kNotFound);
  }
  report.write.reset();
  int reason = 0;
  ssize_t received;
  do {
    received = read(report.read.get(), &reason, sizeof reason);
  } while (received < 0 && errno == EINTR);
  if (received == static_cast<ssize_t>(sizeof reason)) {
    waitpid(process.pid, nullptr, 0);
    throw exec_failure(command.words[0], reason);
  }
  process.output = std::move(output.read);
  process.errors = std::move(errors.read);
  return process;
}

}  // namespace meron::tools
