// SPDX-License-Identifier: Apache-2.0
// An optimizer step whose parameters lie on a device, and whose states the host has: beside the
// bytes that it has to move alone, and beside the same step with all on the host. Prints one JSON
// object; exits with 77 and a reason where no device can be used.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/meron_rank.h"
#include "device/modules.h"
#include "way.h"

namespace meron::bench {
namespace {

constexpr size_t kUnit = size_t{32} << 20;  // parameters of one, about
constexpr size_t kFewest = 8;               // units, however few parameters there are

struct Model {
  size_t units = 0, elements = 0;  // elements: of each
  explicit Model(size_t parameters)
      : units(std::max(kFewest, parameters / kUnit)), elements((parameters + units - 1) / units) {}
  size_t all() const { return units * elements; }
  uint64_t bytes() const { return all() * sizeof(uint16_t); }
  uint64_t unit_bytes() const { return elements * sizeof(uint16_t); }
};

// Small numbers in bf16 of both signs: what every unit is given for a gradient.
std::vector<uint16_t> gradient_of(const Model& model) {
  std::mt19937 random(1);
  std::vector<uint16_t> values(model.elements);
  for (uint16_t& value : values) {
    // The exponents of 2^-16 to 2^-9.
    const uint32_t bits = random();
    value = static_cast<uint16_t>((bits & 0x807f) | (((127u - 16u) + ((bits >> 8) & 7u)) << 7));
  }
  return values;
}

// One rank that trains bf16 units, by Meron's public headers alone.
class Trainer {
 public:
  // Without a device: all on the host. `gradients`: where those of the units lie, one after the
  // other on a device, else the same one for all.
  Trainer(const Model& model, const std::string& device, uint32_t threads, const void* gradients)
      : model_(model), on_device_(!device.empty()), gradients_(gradients) {
    const std::string plan = on_device_ ? R"({"preset": "zero3", "param": {"tier": "device"}})"
                                        : R"({"preset": "zero3"})";
    meron_plan parsed = {0};
    expect(meron_plan_parse(&parsed, plan.data(), plan.size(), expect.error()));
    meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
    options.rank = 0;
    options.world_size = 1;
    options.transport = "self";
    options.threads = threads;
    options.plan = parsed;
    if (on_device_) options.device = device.c_str();
    expect(meron_context_open(&context_, &options, expect.error()));
    expect(meron_plan_release(parsed, expect.error()));
    const int64_t shape[] = {static_cast<int64_t>(model.elements)};
    for (size_t u = 0; u < model.units; ++u) {
      const std::string name = fmt::format("unit.{}", u);
      meron_param_desc desc = MERON_PARAM_DESC_INIT;
      desc.name = name.c_str();
      desc.shape = shape;
      desc.dims = 1;
      desc.dtype = MERON_BF16;
      meron_param param = {0};
      meron_unit unit = {0};
      expect(meron_param_register(&param, context_, &desc, expect.error()));
      expect(meron_unit_create(&unit, context_, name.c_str(), &param, 1, expect.error()));
      params_.push_back(param);
      units_.push_back(unit);
    }
    expect(
        meron_optimizer_create(&optimizer_, units_.data(), units_.size(), nullptr, expect.error()));
  }
  ~Trainer() { expect(meron_context_close(context_, expect.error())); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // From the last unit to the first, as a backward pass has them.
  void reduce(void* stream) {
    meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
    options.stream = stream;
    for (size_t u = model_.units; u-- > 0;) {
      const char* const data =
          static_cast<const char*>(gradients_) + (on_device_ ? u * model_.unit_bytes() : 0);
      const meron_source source = {params_[u], data, model_.elements, MERON_BF16, 0};
      expect(meron_reduce_begin(nullptr, units_[u], &source, 1, &options, expect.error()));
    }
    expect(meron_reduce_wait(units_.data(), units_.size(), MERON_TIMEOUT_DEFAULT, expect.error()));
  }

  void step() {
    meron_future done = {0};
    expect(meron_optimizer_step_begin(&done, optimizer_, expect.error()));
    wait_and_release(done);
  }

  // Later work on `stream` sees the new values of all units.
  void see_all(void* stream) {
    for (const meron_unit unit : units_) {
      meron_future gather = {0};
      expect(meron_gather_begin(&gather, &unit, 1, nullptr, expect.error()));
      expect(meron_gather_wait_stream(gather, stream, MERON_TIMEOUT_DEFAULT, expect.error()));
      expect(meron_gather_release_on_stream(gather, stream, expect.error()));
    }
  }

  // The host's view of a unit's values.
  std::vector<uint16_t> values(size_t u) {
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    if (on_device_) options.tier = MERON_TIER_HOST;
    meron_future gather = {0};
    expect(meron_gather_begin(&gather, &units_[u], 1, &options, expect.error()));
    expect(meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, expect.error()));
    meron_view view{};
    expect(meron_gather_view(&view, gather, params_[u], expect.error()));
    const auto* const data = static_cast<const uint16_t*>(view.data);
    std::vector<uint16_t> seen(data, data + view.count);
    expect(meron_future_release(gather, expect.error()));
    return seen;
  }

  meron_stats stats() {
    meron_stats stats{};
    stats.struct_size = sizeof(stats);
    expect(meron_context_stats(&stats, context_, expect.error()));
    return stats;
  }

 private:
  const Model& model_;
  const bool on_device_;
  const void* const gradients_;
  meron_context context_ = {0};
  std::vector<meron_param> params_;
  std::vector<meron_unit> units_;
  meron_optimizer optimizer_ = {0};
};

struct Arguments {
  std::string device = "cuda";
  size_t parameters = 1'000'000'000;
  int repeats = 9;
  uint32_t threads = 0;
};

struct Turn {
  double copy, copy_down, update, step, down_and_step;
};

void measure(const Arguments& arguments, const std::shared_ptr<Device>& device) {
  const Model model(arguments.parameters);
  const std::vector<uint16_t> gradient = gradient_of(model);
  const DeviceStream stream = take(device->create_stream(false));
  const DeviceMemory gradients =
      take(device->allocate(model.bytes(), stream.get(), "the gradients"));
  for (size_t u = 0; u < model.units; ++u) {
    take(device->copy(gradients.data() + u * model.unit_bytes(), gradient.data(),
                      model.unit_bytes(), stream.get()));
  }
  take(device->synchronize(stream.get()));
  Trainer host(model, "", arguments.threads, gradient.data());
  Trainer there(model, arguments.device, arguments.threads, gradients.data());

  std::vector<Turn> turns;
  double up_bytes = 0;
  {
    Way up(*device, true, model.bytes()), down(*device, false, model.bytes());
    const auto alone = [&](Way& way) {
      return seconds_of([&] {
        way.ask(model.unit_bytes());
        way.finish();
      });
    };
    // Each in turn: what else the host does then meets all alike.
    for (int number = 0; number <= arguments.repeats; ++number) {
      Turn turn{};
      host.reduce(nullptr);
      turn.update = seconds_of([&] { host.step(); });
      turn.copy = alone(up);
      turn.copy_down = alone(down);
      const uint64_t before = there.stats().device_up_bytes;
      const double reduced = seconds_of([&] { there.reduce(stream.get()); });
      turn.step = seconds_of([&] {
        there.step();
        there.see_all(stream.get());
        take(device->synchronize(stream.get()));
      });
      turn.down_and_step = reduced + turn.step;
      up_bytes = static_cast<double>(there.stats().device_up_bytes - before);
      if (number > 0) turns.push_back(turn);  // the first one warms up
    }
  }
  for (size_t u = 0; u < model.units; ++u) {
    if (there.values(u) != host.values(u)) {
      throw std::runtime_error(
          fmt::format("the values of unit {} differ from those of a step on the host", u));
    }
  }

  const auto middle = [&](auto part) {
    std::vector<double> all;
    for (const Turn& turn : turns) all.push_back(part(turn));
    return median(all);
  };
  fmt::print(
      R"({{"device": "{}", "parameters": {}, "units": {}, "repeats": {}, "copy_seconds": {:.6f}, )"
      R"("copy_down_seconds": {:.6f}, "update_seconds": {:.6f}, "step_seconds": {:.6f}, )"
      R"("down_and_step_seconds": {:.6f}, "step_over_largest": {:.4f}, )"
      R"("up_bytes_per_parameter": {:.4f}}})"
      "\n",
      device->name(), model.all(), model.units, turns.size(),
      middle([](const Turn& turn) { return turn.copy; }),
      middle([](const Turn& turn) { return turn.copy_down; }),
      middle([](const Turn& turn) { return turn.update; }),
      middle([](const Turn& turn) { return turn.step; }),
      middle([](const Turn& turn) { return turn.down_and_step; }),
      middle([](const Turn& turn) { return turn.step / std::max(turn.copy, turn.update); }),
      up_bytes / static_cast<double>(model.all()));
}

int main_of(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("An optimizer step between a host and a device: prints a line of JSON.");
  app.add_option("--device", arguments.device, "As a context names it");
  app.add_option("--parameters", arguments.parameters,
                 "Of the model (1e9); 48 bytes of the host each")
      ->check(CLI::Range(size_t{1000}, size_t{100'000'000'000}));
  app.add_option("--repeats", arguments.repeats, "Turns (9)")->check(CLI::PositiveNumber);
  app.add_option("--threads", arguments.threads, "Of the update (all CPUs)");
  CLI11_PARSE(app, argc, argv);
  auto device = open_device(arguments.device);
  if (!device.ok()) {
    fmt::print(stderr, "{}\n", device.error().info().what);
    return kSkipped;
  }
  try {
    measure(arguments, *device);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_gpu_offload: {}\n", error.what());
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace meron::bench

int main(int argc, char** argv) {
  return meron::bench::main_of(argc, argv);
}
