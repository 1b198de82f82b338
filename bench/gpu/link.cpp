// SPDX-License-Identifier: Apache-2.0
// The link between the host and a device, as the engine uses it: copies of pinned memory, up on one
// stream and down on another. Prints one JSON object; exits with 77 and a reason where no device
// can be used.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/modules.h"
#include "os/host.h"
#include "os/mapping.h"
#include "os/memory_file.h"

namespace meron::bench {
namespace {

constexpr int kSkipped = 77;

template <class T>
T take(Result<T> result) {
  if (!result.ok()) {
    const ErrorInfo& info = result.error().info();
    throw std::runtime_error(fmt::format("{}. {}", info.what, info.advice));
  }
  return std::move(result).value();
}

// Memory of the host and of the device, and a stream: one direction.
struct Way {
  Way(Device& device, uint64_t bytes_in)
      : bytes(bytes_in),
        file(take(MemoryFile::create("link", bytes))),
        host(take(Mapping::map_file(file.fd(), bytes, Access::read_write))),
        stream(take(device.create_stream(false))),
        memory(take(device.allocate(bytes, stream.get(), "a direction of the link"))) {
    take(host.populate(0, bytes));
    std::memset(host.data(), 1, bytes);
    std::string refused;
    pinned = device.pin(host.data(), bytes, &refused);
    if (!pinned) throw std::runtime_error("memory of the host cannot be pinned: " + refused);
  }
  void ask(Device& device, bool up, uint64_t chunk) {
    for (uint64_t at = 0; at < bytes; at += chunk) {
      const uint64_t size = std::min(chunk, bytes - at);
      std::byte* const here = host.data() + at;
      std::byte* const there = memory.data() + at;
      take(device.copy(up ? there : here, up ? here : there, size, stream.get()));
    }
  }

  const uint64_t bytes;
  MemoryFile file;
  Mapping host;
  DeviceStream stream;
  DeviceMemory memory;
  PinnedRange pinned;
};

double seconds_of(const std::function<void()>& work) {
  const int64_t begin = now_ns();
  work();
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Arguments {
  std::string device = "cuda";
  uint64_t bytes = uint64_t{1} << 30, chunk = uint64_t{32} << 20;
  int repeats = 15;
};

void measure(const Arguments& arguments, const std::shared_ptr<Device>& device) {
  Way up(*device, arguments.bytes), down(*device, arguments.bytes);
  const auto finish = [&](Way& way) { take(device->synchronize(way.stream.get())); };
  // Each in turn: what else the host does then meets all alike.
  std::vector<double> up_seconds, down_seconds, both_seconds;
  for (int turn = 0; turn <= arguments.repeats; ++turn) {
    const double one = seconds_of([&] {
      up.ask(*device, true, arguments.chunk);
      finish(up);
    });
    const double other = seconds_of([&] {
      down.ask(*device, false, arguments.chunk);
      finish(down);
    });
    const double both = seconds_of([&] {
      up.ask(*device, true, arguments.chunk);
      down.ask(*device, false, arguments.chunk);
      finish(up);
      finish(down);
    });
    if (turn == 0) continue;  // warms up
    up_seconds.push_back(one);
    down_seconds.push_back(other);
    both_seconds.push_back(both);
  }
  const double bytes = static_cast<double>(arguments.bytes);
  const double up_rate = bytes / median(up_seconds) * 1e-9;
  const double down_rate = bytes / median(down_seconds) * 1e-9;
  const double both_rate = 2 * bytes / median(both_seconds) * 1e-9;
  fmt::print(R"({{"device": "{}", "bytes": {}, "chunk": {}, "up_gb_per_second": {:.3f}, )"
             R"("down_gb_per_second": {:.3f}, "both_gb_per_second": {:.3f}, )"
             R"("both_of_one_way": {:.3f}}})"
             "\n",
             device->name(), arguments.bytes, arguments.chunk, up_rate, down_rate, both_rate,
             both_rate / ((up_rate + down_rate) / 2));
}

int main_of(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("The link between the host and a device: prints a line of JSON.");
  app.add_option("--device", arguments.device, "As a context names it");
  app.add_option("--bytes", arguments.bytes, "Each way");
  app.add_option("--chunk", arguments.chunk, "Bytes of a copy")->check(CLI::PositiveNumber);
  app.add_option("--repeats", arguments.repeats, "Turns")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  arguments.bytes =
      (arguments.bytes + page_size() - 1) / page_size() * page_size();  // to be pinned
  auto device = open_device(arguments.device);
  if (!device.ok()) {
    fmt::print(stderr, "{}\n", device.error().info().what);
    return kSkipped;
  }
  try {
    measure(arguments, *device);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_gpu_link: {}\n", error.what());
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace meron::bench

int main(int argc, char** argv) {
  return meron::bench::main_of(argc, argv);
}
