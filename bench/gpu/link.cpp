// SPDX-License-Identifier: Apache-2.0
// The link between the host and a device, as the engine uses it: copies of pinned memory, up on one
// stream and down on another. Prints one JSON object; exits with 77 and a reason where no device
// can be used.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/modules.h"
#include "way.h"

namespace meron::bench {
namespace {

struct Arguments {
  std::string device = "cuda";
  uint64_t bytes = uint64_t{1} << 30, chunk = uint64_t{32} << 20;
  int repeats = 15;
};

void measure(const Arguments& arguments, const std::shared_ptr<Device>& device) {
  Way up(*device, true, arguments.bytes), down(*device, false, arguments.bytes);
  // Each in turn: what else the host does then meets all alike.
  std::vector<double> up_seconds, down_seconds, both_seconds;
  for (int turn = 0; turn <= arguments.repeats; ++turn) {
    const double one = seconds_of([&] {
      up.ask(arguments.chunk);
      up.finish();
    });
    const double other = seconds_of([&] {
      down.ask(arguments.chunk);
      down.finish();
    });
    const double both = seconds_of([&] {
      up.ask(arguments.chunk);
      down.ask(arguments.chunk);
      up.finish();
      down.finish();
    });
    if (turn == 0) continue;  // warms up
    up_seconds.push_back(one);
    down_seconds.push_back(other);
    both_seconds.push_back(both);
  }
  const double bytes = static_cast<double>(up.bytes());
  const double up_rate = bytes / median(up_seconds) * 1e-9;
  const double down_rate = bytes / median(down_seconds) * 1e-9;
  const double both_rate = 2 * bytes / median(both_seconds) * 1e-9;
  fmt::print(R"({{"device": "{}", "bytes": {}, "chunk": {}, "up_gb_per_second": {:.3f}, )"
             R"("down_gb_per_second": {:.3f}, "both_gb_per_second": {:.3f}, )"
             R"("both_of_one_way": {:.3f}}})"
             "\n",
             device->name(), up.bytes(), arguments.chunk, up_rate, down_rate, both_rate,
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
