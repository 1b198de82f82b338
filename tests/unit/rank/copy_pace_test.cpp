// SPDX-License-Identifier: Apache-2.0
#include "rank/copy_pace.h"

#include <gtest/gtest.h>

namespace meron {
namespace {

int64_t time_now = 0;
int64_t fake_now() {
  return time_now;
}

// A machine on which each way takes so many nanoseconds per KiB.
struct Machine {
  int64_t stored, streamed;
  CopyPace pace{fake_now};
  int64_t late = 0;  // delay of the next copy by other work

  CopyPace::Way copy(uint64_t bytes) {
    CopyPace::Way taken = CopyPace::stored;
    pace.run(bytes, [&](CopyPace::Way way) {
      taken = way;
      const int64_t each = way == CopyPace::stored ? stored : streamed;
      time_now += each * static_cast<int64_t>(bytes >> 10) + late;
    });
    return taken;
  }
  // Number of `copies` that were stored.
  int stored_of(int copies, uint64_t bytes) {
    int count = 0;
    for (int i = 0; i < copies; ++i) count += copy(bytes) == CopyPace::stored ? 1 : 0;
    return count;
  }
};

constexpr uint64_t kSize = 256 << 10;

TEST(CopyPace, TakesTheWayThatIsFaster) {
  Machine near{.stored = 20, .streamed = 60}, far{.stored = 250, .streamed = 50};
  for (Machine* machine : {&near, &far}) machine->stored_of(8, kSize);
  EXPECT_EQ(near.stored_of(100, kSize), 100);
  EXPECT_EQ(far.stored_of(100, kSize), 0);
}

TEST(CopyPace, SizesDoNotDecideForEachOther) {
  Machine machine{.stored = 20, .streamed = 60};
  machine.stored_of(20, kSize);
  const auto of_large_copies = [&] { std::swap(machine.stored, machine.streamed); };
  of_large_copies();
  machine.stored_of(8, 64 << 20);
  EXPECT_EQ(machine.stored_of(50, 64 << 20), 0);
  of_large_copies();
  EXPECT_EQ(machine.stored_of(50, kSize), 50);
}

TEST(CopyPace, AnInterruptionChangesNothing) {
  Machine machine{.stored = 20, .streamed = 60};
  machine.stored_of(8, kSize);
  machine.late = 1'000'000;
  machine.copy(kSize);
  machine.late = 0;
  EXPECT_EQ(machine.stored_of(50, kSize), 50);
}

TEST(CopyPace, TheFirstTouchOfMemoryIsNoMeasure) {
  Machine machine{.stored = 2000, .streamed = 600};
  machine.stored_of(4, kSize);
  machine.stored = 20, machine.streamed = 60;
  machine.stored_of(4, kSize);
  EXPECT_EQ(machine.stored_of(50, kSize), 50);
}

TEST(CopyPace, NoticesThatAnotherWayIsFasterNow) {
  Machine machine{.stored = 20, .streamed = 60};
  machine.stored_of(20, kSize);
  std::swap(machine.stored, machine.streamed);
  machine.stored_of(2000, kSize);
  EXPECT_LE(machine.stored_of(256, kSize), 2);
}

TEST(CopyPace, SmallCopiesAreMadeAsThoseThatAreMeasured) {
  Machine machine{.stored = 20, .streamed = 60};
  EXPECT_EQ(machine.stored_of(50, 4096), 0) << "nothing is known yet";
  machine.stored_of(8, 40 << 10);
  const int64_t before = time_now;
  EXPECT_EQ(machine.stored_of(50, 4096), 50);
  EXPECT_GT(time_now, before);
}

}  // namespace
}  // namespace meron
