// SPDX-License-Identifier: Apache-2.0
// One measurement of impl/io, as fio makes one: run.py lets them take turns.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.h"
#include "io/io_engine.h"
#include "io/swap_file.h"
#include "os/fd.h"
#include "os/mapping.h"
#include "os/memory_file.h"

namespace meron::bench {
namespace {

constexpr uint64_t kTicket = 2 << 20;
constexpr size_t kUnderWay = 16;  // tickets: as many bytes as fio has under way

struct Arguments {
  std::string file, directory, memory;
  uint64_t bytes = 1 << 30;
  bool write = false, prewrite = false, threads_backend = false;
  bool no_registering = false;
  int threads = 1, passes = 1;
  uint32_t block = 1 << 20, depth = 32;
};

template <class T>
T take(Result<T> result) {
  if (!result.ok()) {
    const ErrorInfo& info = result.error().info();
    throw std::runtime_error(fmt::format("{}: {}. {}", info.subject, info.what, info.advice));
  }
  return std::move(result).value();
}

// As the engine's arena has it: shared memory, with huge pages where the kernel grants them. That
// of a file in a tmpfs is the same in every run: what the host of a virtual machine does with a
// page differs from page to page.
class Memory {
 public:
  Memory(uint64_t bytes, const std::string& name) {
    const MemoryFile made = take(MemoryFile::create("bench", bytes));
    UniqueFd named;
    if (!name.empty()) named.reset(::open(name.c_str(), O_RDWR | O_CLOEXEC));
    mapping_ =
        take(Mapping::map_file(named.valid() ? named.get() : made.fd(), bytes, Access::read_write));
    take(mapping_.populate(0, bytes));
  }
  std::byte* data() const { return const_cast<std::byte*>(mapping_.data()); }
  uint64_t size() const { return mapping_.size(); }

 private:
  Mapping mapping_;
};

// Time that the kernel and this program used, of all threads.
struct CpuTime {
  double user = 0, system = 0;

  static CpuTime now() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return {.user = seconds(usage.ru_utime), .system = seconds(usage.ru_stime)};
  }
};

struct Pass {
  double seconds = 0, user = 0, system = 0;
};

Pass pass(IoEngine& engine, const std::shared_ptr<IoFile>& file, std::byte* memory,
          const Arguments& arguments) {
  const CpuTime before = CpuTime::now();
  const int64_t begin = now_ns();
  std::deque<std::shared_ptr<IoTicket>> under_way;
  const auto end_first = [&] {
    (void)under_way.front()->wait(-1);
    take(under_way.front()->status());
    under_way.pop_front();
  };
  uint64_t number = 0;
  for (uint64_t at = 0; at < arguments.bytes; at += kTicket, ++number) {
    if (under_way.size() == kUnderWay) end_first();
    std::byte* const data = memory + number % kUnderWay * kTicket;
    const uint64_t bytes = std::min(kTicket, arguments.bytes - at);
    under_way.push_back(arguments.write ? engine.write(file, at, data, bytes)
                                        : engine.read(file, at, data, bytes));
  }
  while (!under_way.empty()) end_first();
  const CpuTime after = CpuTime::now();
  return {.seconds = static_cast<double>(now_ns() - begin) * 1e-9,
          .user = after.user - before.user,
          .system = after.system - before.system};
}

// Checks that the measured transfers move the right bytes.
void check(IoEngine& engine, const std::shared_ptr<IoFile>& file, const Memory& memory,
           uint64_t bytes) {
  const auto half = std::min<uint64_t>(bytes, memory.size() / 2);
  std::byte* const back = memory.data() + memory.size() / 2;
  const auto finish = [](const std::shared_ptr<IoTicket>& ticket) {
    (void)ticket->wait(-1);
    take(ticket->status());
  };
  finish(engine.write(file, 0, memory.data(), half));
  finish(engine.read(file, 0, back, half));
  if (std::memcmp(memory.data(), back, half) != 0) {
    throw std::runtime_error("what was read is not what was written");
  }
}

void measure(const Arguments& arguments) {
  IoOptions options{
      .block = arguments.block, .depth = arguments.depth, .threads = arguments.threads};
  options.backend =
      arguments.threads_backend ? IoOptions::Backend::threads : IoOptions::Backend::automatic;
  const std::shared_ptr<IoEngine> engine = take(IoEngine::create(options));

  constexpr uint64_t kMemory = kTicket * kUnderWay;
  const Memory memory(kMemory, arguments.memory);
  std::mt19937_64 random;
  for (uint64_t at = 0; at < kMemory; at += sizeof(uint64_t)) {
    const uint64_t drawn = random();
    std::memcpy(memory.data() + at, &drawn, sizeof drawn);
  }
  if (!arguments.no_registering) engine->register_buffer(memory.data(), kMemory);

  std::shared_ptr<IoFile> file;
  std::shared_ptr<SwapFile> swap;
  double prewriting = 0;
  if (arguments.directory.empty()) {
    file = take(engine->add(take(DirectFile::open(arguments.file))));
  } else {
    const int64_t begin = now_ns();
    swap = take(SwapFile::create(engine, arguments.directory,
                                 {.expected = arguments.bytes, .prewrite = arguments.prewrite}));
    take(swap->allocate(arguments.bytes));
    prewriting = static_cast<double>(now_ns() - begin) * 1e-9;
    file = swap->file();
  }
  // Not of a new swap file, whose first pass is what is asked for.
  if (swap == nullptr) check(*engine, file, memory, arguments.bytes);
  std::string passes;
  for (int number = 0; number < arguments.passes; ++number) {
    const Pass done = pass(*engine, file, memory.data(), arguments);
    passes += fmt::format(R"({}{{"seconds": {:.6f}, "user": {:.6f}, "system": {:.6f}}})",
                          number == 0 ? "" : ", ", done.seconds, done.user, done.system);
  }
  std::string notices;
  for (const std::string& notice : engine->take_notices()) notices += notice + ' ';
  fmt::print(R"({{"backend": "{}", "direct": {}, "bytes": {}, "requests": {}, )"
             R"("allocating": {:.6f}, "notices": "{}", "passes": [{}]}})"
             "\n",
             engine->backend(), file->direct(), arguments.bytes, engine->counters().requests,
             prewriting, notices, passes);
}

int main_of(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("One measurement of Meron's storage: prints a line of JSON.");
  auto* const where = app.add_option_group("where")->require_option(1);
  where->add_option("--file", arguments.file, "A file that is there")->check(CLI::ExistingFile);
  where->add_option("--swap", arguments.directory, "A new swap file in this directory");
  app.add_option("--bytes", arguments.bytes, "Of a pass");
  app.add_option("--passes", arguments.passes, "Over the same bytes");
  app.add_flag("--write", arguments.write, "Writes rather than reads");
  app.add_flag("--prewrite", arguments.prewrite, "Writes a new swap file once before");
  app.add_flag("--threads-backend", arguments.threads_backend, "pread and pwrite, no io_uring");
  app.add_flag("--no-registering", arguments.no_registering, "Of the memory");
  app.add_option("--memory", arguments.memory, "A file in a tmpfs to use as memory");
  app.add_option("--threads", arguments.threads, "Of the backend of threads");
  app.add_option("--block", arguments.block, "Bytes of a request");
  app.add_option("--depth", arguments.depth, "Requests under way");
  CLI11_PARSE(app, argc, argv);
  try {
    measure(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_io: {}\n", error.what());
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace meron::bench

int main(int argc, char** argv) {
  return meron::bench::main_of(argc, argv);
}
