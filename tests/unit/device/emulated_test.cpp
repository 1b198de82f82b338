// SPDX-License-Identifier: Apache-2.0
// What the engine relies on of a device, shown on the emulated one: order on a stream, none between
// streams but by events, memory that goes back in a stream's order, and failures that are told.
#include <gmock/gmock.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "device/device.h"
#include "os/mapping.h"
#include "os/memory_file.h"

namespace meron {
namespace {

// The module that the test is linked with, and that the engine opens.
extern "C" meron_status meron_backend_query(uint32_t abi, meron_backend* out,
                                            meron_backend_failure* failure);

const meron_device_table& emulated_device_table() {
  static const meron_device_table* const table = [] {
    meron_backend backend{};
    backend.struct_size = sizeof(backend);
    EXPECT_EQ(meron_backend_query(MERON_BACKEND_ABI, &backend, nullptr), MERON_OK);
    return backend.device;
  }();
  return *table;
}

using testing::HasSubstr;

class EmulatedTest : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("MERON_EMULATED_DEVICE"); }

  static std::shared_ptr<Device> open(const char* settings = nullptr, int32_t index = 0) {
    if (settings != nullptr) ::setenv("MERON_EMULATED_DEVICE", settings, 1);
    auto device = Device::open("emulated", emulated_device_table(), index);
    EXPECT_TRUE(device.ok());
    return device.ok() ? std::move(device).value() : nullptr;
  }
  // Memory of whole pages that the device has pinned.
  struct Pinned {
    explicit Pinned(Device& device)
        : file(MemoryFile::create("pinned", kBytes).value()),
          mapping(Mapping::map_file(file.fd(), kBytes, Access::read_write).value()),
          range(device.pin(mapping.data(), kBytes, nullptr)) {
      EXPECT_TRUE(static_cast<bool>(range));
    }
    static constexpr uint64_t kBytes = 1 << 16;
    MemoryFile file;
    Mapping mapping;
    PinnedRange range;
  };
};

// The address on the bus, by which processes detect that they share a device.
TEST_F(EmulatedTest, EachProcessHasDevicesOfItsOwnUnlessTheyAreShared) {
  const std::string bus = open("count=2", 1)->info().bus;
  EXPECT_THAT(bus, HasSubstr(std::to_string(::getpid()) + ":1"));
  EXPECT_NE(bus, std::string(open("count=2", 0)->info().bus));
  EXPECT_EQ(std::string(open("shared=1", 0)->info().bus), "emulated 0");
}

TEST_F(EmulatedTest, CopiesGoThereAndBackInTheOrderOfAStream) {
  const auto device = open();
  auto stream = device->create_stream(false).value();
  auto memory = device->allocate(Pinned::kBytes, stream.get(), "a test").value();
  Pinned from(*device), to(*device);
  std::memset(from.mapping.data(), 7, Pinned::kBytes);
  ASSERT_TRUE(device->copy(memory.data(), from.mapping.data(), Pinned::kBytes, stream.get()).ok());
  ASSERT_TRUE(device->fill(memory.data(), 9, 10, stream.get()).ok());
  ASSERT_TRUE(device->copy(to.mapping.data(), memory.data(), Pinned::kBytes, stream.get()).ok());
  ASSERT_TRUE(device->synchronize(stream.get()).ok());
  EXPECT_EQ(to.mapping.data()[9], std::byte{9});
  EXPECT_EQ(to.mapping.data()[10], std::byte{7});
}

TEST_F(EmulatedTest, AnEventOrdersTwoStreams) {
  const auto device = open("delay=2000");
  auto first = device->create_stream(false).value(), second = device->create_stream(true).value();
  auto memory = device->allocate(64, first.get(), "a test").value();
  ASSERT_TRUE(device->fill(memory.data(), 1, 64, first.get()).ok());
  const auto event = device->record(first.get());
  ASSERT_TRUE(event.ok());
  EXPECT_FALSE(*event->come());
  ASSERT_TRUE(device->wait(second.get(), *event).ok());
  ASSERT_TRUE(device->fill(memory.data(), 2, 32, second.get()).ok());
  ASSERT_TRUE(device->synchronize(second.get()).ok());
  EXPECT_TRUE(*event->come());
  EXPECT_EQ(memory.data()[0], std::byte{2});
  EXPECT_EQ(memory.data()[63], std::byte{1});
}

TEST_F(EmulatedTest, WhatIsNotPinnedIsReadBeforeACopyReturns) {
  const auto device = open("delay=2000");
  auto stream = device->create_stream(false).value();
  auto memory = device->allocate(64, stream.get(), "a test").value();
  std::array<uint8_t, 64> from{};
  from.fill(3);
  ASSERT_TRUE(device->copy(memory.data(), from.data(), 64, stream.get()).ok());
  from.fill(4);
  ASSERT_TRUE(device->synchronize(stream.get()).ok());
  EXPECT_EQ(memory.data()[63], std::byte{3});
}

TEST_F(EmulatedTest, AStreamTellsWhenItHasComeSoFar) {
  const auto device = open("delay=1000");
  auto stream = device->create_stream(false).value();
  auto memory = device->allocate(64, stream.get(), "a test").value();
  std::atomic<int> told{0};
  ASSERT_TRUE(device->fill(memory.data(), 1, 64, stream.get()).ok());
  ASSERT_TRUE(
      device
          ->notify(
              stream.get(), [](void* user) { ++*static_cast<std::atomic<int>*>(user); }, &told)
          .ok());
  ASSERT_TRUE(device->synchronize(stream.get()).ok());
  EXPECT_EQ(told, 1);
}

// Of a device that counts how often it is asked whether an event has come.
std::atomic<int> asked{0};

TEST_F(EmulatedTest, EventsOfAStreamComeInOrderAndAreAskedForOnce) {
  static meron_device_table counting;
  counting = emulated_device_table();
  counting.event_query = [](void* device, void* event, meron_backend_failure* failure) {
    ++asked;
    return emulated_device_table().event_query(device, event, failure);
  };
  const auto device = Device::open("emulated", counting, 0).value();
  const auto stream = device->create_stream(false).value();
  const auto other = device->create_stream(false).value();
  auto memory = device->allocate(64, stream.get(), "a test").value();
  std::vector<DeviceEvent> events;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(device->fill(memory.data(), 1, 64, stream.get()).ok());
    events.push_back(device->record(stream.get()).value());
  }
  ASSERT_TRUE(device->synchronize(stream.get()).ok());
  asked = 0;
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    EXPECT_TRUE(event->come().value());
  }
  EXPECT_EQ(asked, 1);

  // Recorded again, an event means what was asked of the stream until then; on another stream it is
  // one of that stream's.
  events[0] = device->record(stream.get(), std::move(events[0])).value();
  ASSERT_TRUE(device->synchronize(stream.get()).ok());
  EXPECT_TRUE(events[0].come().value());
  EXPECT_EQ(asked, 2);
  events[0] = device->record(other.get(), std::move(events[0])).value();
  ASSERT_TRUE(device->synchronize(other.get()).ok());
  EXPECT_TRUE(events[0].come().value());
  EXPECT_EQ(asked, 3);
}

TEST_F(EmulatedTest, WhatIsBehindAnEventThatHasNotComeIsNotAskedFor) {
  StreamEvents events;
  const uint64_t first = events.record(), second = events.record(), third = events.record();
  EXPECT_FALSE(events.known(first).has_value());
  events.note(second, false);
  EXPECT_FALSE(events.known(first).has_value()) << "it may have come";
  while (const std::optional<bool> known = events.known(third)) EXPECT_FALSE(*known);
  EXPECT_FALSE(events.known(second).has_value()) << "asked again, after a moment";
  events.note(second, true);
  EXPECT_EQ(events.known(first), std::optional(true));
  EXPECT_EQ(events.known(second), std::optional(true));
  EXPECT_FALSE(events.known(third).has_value());
}

TEST_F(EmulatedTest, MemoryIsCountedAndGoesBackInTheOrderOfItsStream) {
  const auto device = open("memory=1000");
  auto stream = device->create_stream(false).value();
  auto memory = device->allocate(600, stream.get(), "a test").value();
  const auto more = device->allocate(600, stream.get(), "the gathered values of unit 'x'");
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code(), MERON_E_NO_MEMORY);
  EXPECT_THAT(more.error().info().what, HasSubstr("unit 'x'"));
  EXPECT_THAT(more.error().info().what, HasSubstr("400 B of 1000 B are free"));
  memory.reset();
  EXPECT_TRUE(device->allocate(600, stream.get(), "a test").ok());
}

TEST_F(EmulatedTest, TheTrainersAllocatorIsAsked) {
  struct Log {
    std::vector<void*> given, taken;
  };
  const auto log = std::make_shared<Log>();
  const auto room = std::make_shared<std::array<std::byte, 256>>();
  DeviceAllocator allocator;
  allocator.allocate = [=](uint64_t bytes, void*) -> void* {
    if (bytes > room->size()) return nullptr;
    log->given.push_back(room->data());
    return room->data();
  };
  allocator.release = [=](void* data, uint64_t, void*) { log->taken.push_back(data); };
  const auto device =
      Device::open("emulated", emulated_device_table(), 0, std::move(allocator)).value();
  { const auto memory = device->allocate(256, nullptr, "a test").value(); }
  EXPECT_EQ(log->given, log->taken);
  EXPECT_EQ(log->given.size(), 1u);
  const auto refused = device->allocate(257, nullptr, "a test");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), MERON_E_NO_MEMORY);
  EXPECT_THAT(refused.error().info().what, HasSubstr("the trainer's allocator"));
}

TEST_F(EmulatedTest, MemoryAndStreamsOfAnotherDeviceAreToldApart) {
  const auto device = open("count=2", 0);
  const auto other = open(nullptr, 1);
  auto stream = other->create_stream(false).value();
  const auto memory = other->allocate(64, stream.get(), "a test").value();
  const auto held = device->holds(memory.data() + 63, "the gradient of 'x'");
  ASSERT_FALSE(held.ok());
  EXPECT_EQ(held.error().code(), MERON_E_ARGUMENT);
  EXPECT_THAT(held.error().info().what, HasSubstr("lies on device emulated:1"));
  EXPECT_TRUE(*other->holds(memory.data() + 63, "x"));
  EXPECT_FALSE(*other->holds(memory.data() + 64, "x"));
  EXPECT_EQ(device->check_stream(stream.get()).error().code(), MERON_E_ARGUMENT);
  EXPECT_TRUE(other->check_stream(stream.get()).ok());
  EXPECT_TRUE(device->check_stream(nullptr).ok());
}

TEST_F(EmulatedTest, ABrokenDeviceIsNamedByEveryCallFromThenOn) {
  const auto device = open("break=2");
  auto stream = device->create_stream(false).value();
  auto memory = device->allocate(64, stream.get(), "a test").value();
  ASSERT_TRUE(device->fill(memory.data(), 1, 64, stream.get()).ok());
  ASSERT_TRUE(device->fill(memory.data(), 2, 64, stream.get()).ok());
  const Status failed = device->synchronize(stream.get());
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code(), MERON_E_DEVICE);
  EXPECT_THAT(failed.error().info().what, HasSubstr("emulated:0"));
  EXPECT_EQ(memory.data()[0], std::byte{1});
  EXPECT_EQ(device->record(stream.get()).error().code(), MERON_E_DEVICE);
  EXPECT_EQ(device->allocate(1, stream.get(), "x").error().code(), MERON_E_DEVICE);
}

TEST_F(EmulatedTest, SettingsThatAreNotUnderstoodAreNamed) {
  for (const char* text : {"colour=3", "delay", "delay=fast", "delay=1;"}) {
    ::setenv("MERON_EMULATED_DEVICE", text, 1);
    const auto device = Device::open("emulated", emulated_device_table(), 0);
    ASSERT_FALSE(device.ok()) << text;
    EXPECT_THAT(device.error().info().what, HasSubstr("MERON_EMULATED_DEVICE")) << text;
  }
}

TEST_F(EmulatedTest, OnlyWholePagesArePinnedAndOnce) {
  const auto device = open();
  Pinned pinned(*device);
  std::string refused;
  EXPECT_FALSE(static_cast<bool>(device->pin(pinned.mapping.data(), Pinned::kBytes, &refused)));
  EXPECT_THAT(refused, HasSubstr("already"));
  EXPECT_FALSE(static_cast<bool>(device->pin(pinned.mapping.data() + 1, 4096, &refused)));
}

}  // namespace
}  // namespace meron
