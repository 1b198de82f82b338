// SPDX-License-Identifier: Apache-2.0
// Notes between ranks of the emulated device's collectives.
#include "modules/emulated/wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

namespace meron::emulated {
namespace {

struct Pair {
  Descriptor one, other;
};

Pair connected() {
  std::array<int, 2> made{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, made.data()),
            0);
  return {Descriptor(made[0]), Descriptor(made[1])};
}

TEST(EmulatedWire, NothingIsHeardBeforeANoteAndAnEndAfterTheClose) {
  Pair pair = connected();
  Note note;
  Descriptor none;
  EXPECT_EQ(receive_note(pair.one, &note, &none), Heard::kNothing);
  EXPECT_EQ(send_note(pair.other, note_of(Note::kHello, 1, 2)), 0);
  EXPECT_EQ(receive_note(pair.one, &note, &none), Heard::kNote);
  pair.other.reset();
  EXPECT_EQ(receive_note(pair.one, &note, &none), Heard::kEnd);
  EXPECT_EQ(receive_note(pair.one, &note, &none), Heard::kEnd);
}

// The kernel reports the reset before the note that came ahead of it.
TEST(EmulatedWire, TheLastNoteIsHeardBeforeACloseWithUnreadNotes) {
  Pair pair = connected();
  EXPECT_EQ(send_note(pair.one, note_of(Note::kHello, 0, 2)), 0);
  EXPECT_EQ(send_note(pair.other, note_of(Note::kLeft, 1, 2)), 0);
  pair.other.reset();
  Note note;
  Descriptor none;
  ASSERT_EQ(receive_note(pair.one, &note, &none), Heard::kNote);
  EXPECT_EQ(note.kind, Note::kLeft);
  EXPECT_EQ(receive_note(pair.one, &note, &none), Heard::kEnd);
}

}  // namespace
}  // namespace meron::emulated
