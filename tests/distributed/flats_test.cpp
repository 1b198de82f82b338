// SPDX-License-Identifier: Apache-2.0
// Gathers into flats of the caller's: the same bytes as a gather into its params, on the host and
// on a device, under every kind of plan. The unit has flats of 16 and 32 bits, some frozen, params
// without elements, and a flat that has no others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/distributed/device_trainer.h"
#include "tests/distributed/one_param.h"

namespace meron::test {
namespace {

struct Tensor {
  const char* name;
  std::vector<int64_t> shape;
  meron_dtype dtype;
  uint32_t frozen;
};

const std::vector<Tensor> kTensors = {
    {"weight", {37, 13}, MERON_F32, 0}, {"half", {1111}, MERON_BF16, 0},
    {"empty", {0, 4}, MERON_BF16, 0},   {"bias", {700}, MERON_F32, 0},
    {"ids", {70}, MERON_F32, 1},        {"scalar", {}, MERON_BF16, 0},
    {"nothing", {3, 0}, MERON_F16, 1},  {"table", {9, 9}, MERON_BF16, 1}};

struct ExpectedFlat {
  meron_dtype dtype;
  uint32_t frozen;
  uint64_t elements, bytes;
};

// Each param begins at a multiple of 32 elements.
const std::vector<ExpectedFlat> kFlats = {{MERON_F32, 0, 512 + 704, 4 * 1216},
                                          {MERON_BF16, 0, 1120 + 32, 2 * 1152},
                                          {MERON_F32, 1, 96, 4 * 96},
                                          {MERON_F16, 1, 0, 0},
                                          {MERON_BF16, 1, 96, 2 * 96}};
const std::vector<std::pair<uint64_t, uint64_t>> kPlaces = {{0, 0}, {1, 0},    {1, 1120}, {0, 512},
                                                            {2, 0}, {1, 1120}, {3, 0},    {4, 0}};

meron_param_info info_of(meron_param param) {
  meron_param_info info = MERON_PARAM_INFO_INIT;
  CALL(meron_param_get_info, &info, param);
  return info;
}

meron_flat_info flat_of(meron_unit unit, uint64_t index) {
  meron_flat_info info = MERON_FLAT_INFO_INIT;
  CALL(meron_unit_flat, &info, unit, index);
  return info;
}

// Bytes of the host, or of a device.
class Room {
 public:
  Room(const TrainersDevice* device, uint64_t bytes, uint64_t offset = 0)
      : device_(device), bytes_(bytes), offset_(offset) {
    if (device != nullptr) {
      memory_ = device->allocate(bytes + offset + 1);
      device->fill(memory_, 0x5a, bytes + offset + 1);
    } else {
      host_.assign(bytes + offset + 1, 0x5a);
      memory_ = host_.data();
    }
  }
  ~Room() {
    if (device_ != nullptr) device_->release(memory_);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  unsigned char* data() const { return static_cast<unsigned char*>(memory_) + offset_; }
  std::vector<unsigned char> read() const {
    std::vector<unsigned char> seen(bytes_ + 1);
    if (device_ != nullptr) {
      device_->copy(seen.data(), data(), seen.size());
    } else {
      std::memcpy(seen.data(), data(), seen.size());
    }
    require(seen.back() == 0x5a, "the byte behind is untouched");
    seen.pop_back();
    return seen;
  }

 private:
  const TrainersDevice* device_;
  uint64_t bytes_, offset_;
  std::vector<unsigned char> host_;
  void* memory_ = nullptr;
};
using Rooms = std::vector<std::unique_ptr<Room>>;

struct Model {
  explicit Model(meron_context context) {
    for (const Tensor& tensor : kTensors) {
      meron_param_desc desc = MERON_PARAM_DESC_INIT;
      desc.name = tensor.name;
      desc.shape = tensor.shape.data();
      desc.dims = static_cast<uint32_t>(tensor.shape.size());
      desc.dtype = tensor.dtype;
      desc.frozen = tensor.frozen;
      CALL(meron_param_register, &params.emplace_back(), context, &desc);
    }
    CALL(meron_unit_create, &unit, context, "u", params.data(), params.size());
  }

  void write(float factor) const {
    meron_future update{};
    CALL(meron_update_begin, &update, &unit, 1);
    CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
    for (size_t p = 0; p < params.size(); ++p) {
      std::vector<float> values(info_of(params[p]).count);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = factor * static_cast<float>((i * 7 + p) % 251) - 3;
      }
      CALL(meron_update_write, update, params[p], values.data(), values.size(), MERON_F32);
    }
    CALL(meron_update_publish, update);
  }

  Rooms rooms_for_params(const TrainersDevice* device) const {
    Rooms rooms;
    for (const meron_param param : params) {
      const meron_param_info info = info_of(param);
      rooms.push_back(std::make_unique<Room>(device, info.count * meron_dtype_size(info.dtype)));
    }
    return rooms;
  }
  Rooms rooms_for_flats(const TrainersDevice* device, uint64_t offset = 0) const {
    Rooms rooms;
    for (uint64_t f = 0; f < kFlats.size(); ++f) {
      rooms.push_back(std::make_unique<Room>(device, flat_of(unit, f).bytes, offset));
    }
    return rooms;
  }

  std::vector<meron_param> params;
  meron_unit unit{};
};

meron_future begin_into(const Model& model, const std::vector<meron_destination>& params,
                        const std::vector<meron_flat_destination>& flats, void* stream = nullptr) {
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  options.mode = MERON_GATHER_INTO;
  options.destinations = params.data();
  options.destination_count = params.size();
  options.flats = flats.data();
  options.flat_count = flats.size();
  options.stream = stream;
  meron_future gather{};
  CALL(meron_gather_begin, &gather, &model.unit, 1, &options);
  CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
  return gather;
}

std::vector<meron_destination> destinations(const Model& model, const Rooms& rooms) {
  std::vector<meron_destination> all;
  for (size_t p = 0; p < rooms.size(); ++p) {
    const meron_param_info info = info_of(model.params[p]);
    all.push_back({model.params[p], rooms[p]->data(), info.count * meron_dtype_size(info.dtype)});
  }
  return all;
}

std::vector<meron_flat_destination> flat_destinations(const Model& model, const Rooms& rooms) {
  std::vector<meron_flat_destination> all;
  for (uint64_t f = 0; f < rooms.size(); ++f) {
    all.push_back({model.unit, f, rooms[f]->data(), flat_of(model.unit, f).bytes});
  }
  return all;
}

// The bytes of a param in the flats.
std::vector<unsigned char> part_of(const Rooms& flats, meron_param param) {
  const meron_param_info info = info_of(param);
  const std::vector<unsigned char> all = flats[info.flat]->read();
  const size_t size = meron_dtype_size(info.dtype);
  const auto first = all.begin() + static_cast<ptrdiff_t>(info.flat_offset * size);
  return {first, first + static_cast<ptrdiff_t>(info.count * size)};
}

// Gathers into flats that are on `device`, or in memory of the host, and compares them.
void check_flats(const Model& model, const TrainersDevice* device, uint64_t offset = 0) {
  void* const stream = device != nullptr ? device->stream() : nullptr;
  const Rooms params = model.rooms_for_params(nullptr);
  const Rooms flats = model.rooms_for_flats(device, offset);
  CALL(meron_future_release, begin_into(model, destinations(model, params), {}));
  const meron_future gather = begin_into(model, {}, flat_destinations(model, flats), stream);
  for (size_t p = 0; p < params.size(); ++p) {
    const meron_param_info info = info_of(model.params[p]);
    require(part_of(flats, model.params[p]) == params[p]->read(), kTensors[p].name);
    meron_view view{};
    CALL(meron_gather_view, &view, gather, model.params[p]);
    const uint64_t before = info.flat_offset * meron_dtype_size(info.dtype);
    require(view.data == flats[info.flat]->data() + before, "a view is within the flat");
    require(view.writable == 1 && view.count == info.count && view.dtype == info.dtype, "a view");
    const bool on_host = device == nullptr || kFlats[info.flat].bytes == 0;
    require((view.device == MERON_DEVICE_HOST) == on_host, "the memory it is in");
  }
  CALL(meron_future_release, gather);
}

void check_layout(const Model& model) {
  meron_unit_info unit = MERON_UNIT_INFO_INIT;
  CALL(meron_unit_get_info, &unit, model.unit);
  require(unit.flats == kFlats.size(), "the number of flats");
  for (uint64_t f = 0; f < unit.flats; ++f) {
    const meron_flat_info flat = flat_of(model.unit, f);
    require(flat.dtype == kFlats[f].dtype && flat.frozen == kFlats[f].frozen, "a flat");
    require(flat.elements == kFlats[f].elements && flat.bytes == kFlats[f].bytes, "its size");
  }
  for (size_t p = 0; p < model.params.size(); ++p) {
    const meron_param_info info = info_of(model.params[p]);
    require(info.flat == kPlaces[p].first && info.flat_offset == kPlaces[p].second, "a place");
  }
}

struct Case {
  const char* name;
  World world;
};

World world_of(const char* transport, int ranks, const char* plan, int node = 0) {
  World world{transport, ranks, plan};
  world.node = node;
  return world;
}

const Case kCases[] = {
    {"zero0_on_1", world_of("self", 1, "zero0")},
    {"zero0_on_2", world_of("shm", 2, "zero0")},
    {"zero0_on_3", world_of("shm", 3, "zero0")},
    {"zero1_on_1", world_of("self", 1, "zero1")},
    {"zero1_on_2", world_of("shm", 2, "zero1")},
    {"zero1_on_3", world_of("local", 3, "zero1")},
    {"zero2_on_1", world_of("self", 1, "zero2")},
    {"zero2_on_2", world_of("shm", 2, "zero2")},
    {"zero2_on_3", world_of("shm", 3, "zero2")},
    {"zero3_on_1", world_of("self", 1, "zero3")},
    {"zero3_on_2", world_of("shm", 2, "zero3")},
    {"zero3_on_3", world_of("local", 3, "zero3")},
    {"zero3_by_sockets", world_of("sockets", 3, "zero3")},
    {"hpz_in_nodes", world_of("cluster", 4, "hpz(2)", 2)},
    {"int8", world_of("shm", 4, "zeropp(2)")},
    {"int8_in_nodes", world_of("cluster", 4, "zeropp(2)", 2)},
    {"int4_by_differences",
     world_of(
         "shm", 2,
         R"j({"preset": "hpz(1)", "param": {"codec": {"kind": "int4", "difference": true}}})j")},
    {"frozen_int8", world_of("shm", 2, R"j({"preset": "zero3", "param": {"frozen": "int8"}})j")},
    {"nvme",
     world_of("shm", 2,
              R"j({"preset": "zero3", "param": {"tier": "nvme"}, "nvme": {"path": "."}})j")}};

class Flats : public testing::TestWithParam<Case> {};

TEST_P(Flats, HaveTheBytesOfTheirParams) {
  EXPECT_TRUE(run_world(GetParam().world, [](int, meron_context context) {
    const Model model(context);
    check_layout(model);
    for (const float factor : {1.0f, 0.25f, -2.0f}) {
      model.write(factor);
      check_flats(model, nullptr);
    }
  }));
}

INSTANTIATE_TEST_SUITE_P(Plans, Flats, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Of a device, which the values are copied to, reside on, or are gathered on by all devices.
class FlatsOnADevice : public testing::TestWithParam<Case> {};

TEST_P(FlatsOnADevice, HaveTheBytesOfTheirParams) {
  World world = GetParam().world;
  world.device = kDevice;
  if (world.devices && !emulated()) GTEST_SKIP() << "needs a device for each rank";
  ::setenv("MERON_EMULATED_DEVICE", world.devices ? "count=4" : "shared=1", 1);
  EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
    const TrainersDevice device(world.devices ? rank : 0);
    const Model model(context);
    for (const float factor : {1.0f, -2.0f}) {
      model.write(factor);
      check_flats(model, &device);
      check_flats(model, &device, 1);  // which no kernel writes
      check_flats(model, nullptr);
    }
  }));
  ::unsetenv("MERON_EMULATED_DEVICE");
}

World with_devices(World world) {
  world.devices = true;
  return world;
}

constexpr const char* kResident = R"({"preset": "zero3", "param": {"tier": "device"}})";
const Case kDeviceCases[] = {
    {"zero0", world_of("shm", 2, "zero0")},
    {"zero3", world_of("shm", 2, "zero3")},
    {"zero3_by_sockets", world_of("sockets", 3, "zero3")},
    {"nvme",
     world_of("shm", 2,
              R"j({"preset": "zero3", "param": {"tier": "nvme"}, "nvme": {"path": "."}})j")},
    {"resident", world_of("self", 1, kResident)},
    {"resident_on_joined_devices", with_devices(world_of("local", 2, kResident))}};

INSTANTIATE_TEST_SUITE_P(Plans, FlatsOnADevice, testing::ValuesIn(kDeviceCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FlatsTest, MixWithParamsInMemoryOfBothKinds) {
  World world = world_of("shm", 2, "zero3");
  world.device = kDevice;
  EXPECT_TRUE(run_world(world, [](int, meron_context context) {
    const TrainersDevice device;
    const Model model(context);
    model.write(1);
    const Rooms expected = model.rooms_for_params(nullptr);
    CALL(meron_future_release, begin_into(model, destinations(model, expected), {}));
    const Rooms flats = model.rooms_for_flats(&device);
    const Rooms params = model.rooms_for_params(nullptr);
    // The trained flats on the device; of the frozen ones a single param on the host.
    const std::vector<meron_flat_destination> all = flat_destinations(model, flats);
    const std::vector<meron_destination> each = destinations(model, params);
    const meron_future gather = begin_into(model, {each[7]}, {all[1], all[0]}, device.stream());
    for (const size_t p : {0, 1, 2, 3, 5}) {
      require(part_of(flats, model.params[p]) == expected[p]->read(), kTensors[p].name);
    }
    require(params[7]->read() == expected[7]->read(), kTensors[7].name);
    meron_view view{};
    require(meron_gather_view(&view, gather, model.params[4], nullptr) == MERON_E_ARGUMENT,
            "neither the param nor its flat was named");
    CALL(meron_future_release, gather);
  }));
}

// A rank copies from its peers all elements that it does not hold, padding included.
TEST(FlatsTest, CountAllTheirBytesThatAreOfOtherRanks) {
  constexpr int kRanks = 3;
  Shared<uint64_t> copied(kRanks);
  ASSERT_TRUE(run_world(world_of("shm", kRanks, "zero3"), [&](int rank, meron_context context) {
    const Model model(context);
    model.write(1);
    const Rooms flats = model.rooms_for_flats(nullptr);
    const uint64_t before = stats_of(context).gather_copied_bytes;
    CALL(meron_future_release, begin_into(model, {}, flat_destinations(model, flats)));
    copied[static_cast<size_t>(rank)] = stats_of(context).gather_copied_bytes - before;
  }));
  uint64_t bytes = 0, all = 0;
  for (const ExpectedFlat& flat : kFlats) bytes += flat.bytes;
  for (size_t rank = 0; rank < kRanks; ++rank) all += copied[rank];
  EXPECT_EQ(all, (kRanks - 1) * bytes);
}

// A struct of before the flats: what is behind its end is the caller's.
TEST(FlatsTest, AnOlderCallersOptionsHaveNone) {
  EXPECT_TRUE(run_world(world_of("self", 1, "zero3"), [](int, meron_context context) {
    const Model model(context);
    const Rooms params = model.rooms_for_params(nullptr);
    const std::vector<meron_destination> all = destinations(model, params);
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.struct_size = offsetof(meron_gather_options, flats);
    options.mode = MERON_GATHER_INTO;
    options.destinations = all.data();
    options.destination_count = all.size();
    options.flats = reinterpret_cast<const meron_flat_destination*>(1);
    options.flat_count = 7;
    meron_future gather{};
    CALL(meron_gather_begin, &gather, &model.unit, 1, &options);
    finish(gather);
  }));
}

struct Refused {
  meron_status status;
  std::string message, subject;
};

// Spoils a gather of all flats and some params, and returns its error.
template <class Spoil>
Refused refused(const Model& model, const Rooms& rooms, Spoil spoil) {
  std::vector<meron_flat_destination> flats = flat_destinations(model, rooms);
  std::vector<meron_destination> params;
  spoil(flats, params);
  meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
  options.mode = MERON_GATHER_INTO;
  options.destinations = params.data();
  options.destination_count = params.size();
  options.flats = flats.data();
  options.flat_count = flats.size();
  meron_future gather{};
  meron_error* error = nullptr;
  const meron_status status = meron_gather_begin(&gather, &model.unit, 1, &options, &error);
  const Refused found{status, meron_error_message(error), meron_error_subject(error)};
  meron_error_free(error);
  for (const auto& room : rooms) {
    for (const unsigned char byte : room->read()) require(byte == 0x5a, "nothing is written");
  }
  return found;
}

void require_text(const Refused& found, meron_status status, const char* text,
                  const char* subject) {
  require(found.status == status && found.message.find(text) != std::string::npos &&
              found.subject == subject,
          (found.message + " of " + found.subject).c_str());
}

TEST(FlatsTest, AWrongDestinationIsNamedAndNothingIsWritten) {
  EXPECT_TRUE(run_world(world_of("self", 1, "zero3"), [](int, meron_context context) {
    const Model model(context);
    model.write(1);
    const OneParam other(context, 8, false, "p", "other");
    const Rooms rooms = model.rooms_for_flats(nullptr);
    float four[2] = {};
    using Flats = std::vector<meron_flat_destination>;
    using Params = std::vector<meron_destination>;
    require_text(refused(model, rooms, [](Flats& flats, Params&) { flats[1].bytes -= 2; }),
                 MERON_E_ARGUMENT, "flat 1 of unit 'u' takes 2304 bytes, its destination has 2302",
                 "u");
    require_text(refused(model, rooms, [](Flats& flats, Params&) { flats[4].data = nullptr; }),
                 MERON_E_ARGUMENT, "the destination of flat 4 of unit 'u' is NULL", "u");
    require_text(refused(model, rooms, [](Flats& flats, Params&) { flats[4].flat = 5; }),
                 MERON_E_ARGUMENT, "unit 'u' has 5 flats, so there is none of index 5", "u");
    require_text(refused(model, rooms, [](Flats& flats, Params&) { flats.push_back(flats[2]); }),
                 MERON_E_DUPLICATE, "flat 2 of unit 'u' has two destinations", "u");
    require_text(refused(model, rooms, [&](Flats& flats, Params&) { flats[0].unit = other.unit; }),
                 MERON_E_ARGUMENT,
                 "a flat of unit 'other' has a destination, but the unit is not gathered", "other");
    require_text(refused(model, rooms,
                         [&](Flats&, Params& params) {
                           params.push_back({model.params[5], four, 2});
                         }),
                 MERON_E_DUPLICATE,
                 "param 'scalar' has a destination, and so has flat 1 of unit 'u', which it is in",
                 "scalar");
    check_flats(model, nullptr);
  }));
}

}  // namespace
}  // namespace meron::test
