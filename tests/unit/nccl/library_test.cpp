// SPDX-License-Identifier: Apache-2.0
// Which copy of NCCL the module takes, and which it refuses. Once one is taken it stays, in this
// process: the cases of what is refused come before, in this order.
#include "fake.h"
#include "modules/nccl/nccl_abi.h"

namespace meron {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

std::string refused() {
  const auto library = open_collectives("nccl");
  if (library.ok()) return "it was not refused";
  EXPECT_EQ(library.error().code(), MERON_E_UNSUPPORTED);
  EXPECT_EQ(probe_nccl().reason, library.error().info().what);
  return library.error().info().what;
}

TEST(NcclLibraryTest, OneThatIsNotThereOrNoLibraryIsNamed) {
  ::setenv("MERON_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  EXPECT_THAT(refused(), HasSubstr("/nowhere/libnccl.so.2"));
  EXPECT_THAT(refused(), HasSubstr("MERON_NCCL_LIBRARY"));
  ::setenv("MERON_NCCL_LIBRARY", "libm.so.6", 1);
  EXPECT_THAT(refused(), HasSubstr("is not NCCL"));
}

TEST(NcclLibraryTest, OneThatIsTooOldIsNamed) {
  ::setenv("MERON_NCCL_LIBRARY", FAKE_NCCL, 1);
  const LoadedCopy fake(FAKE_NCCL);
  fake.set("version", 21702);
  EXPECT_THAT(refused(), HasSubstr("2.17.2"));
  EXPECT_THAT(refused(), HasSubstr(FAKE_NCCL));
  EXPECT_THAT(refused(), HasSubstr("2.18"));
  fake.set("reset", 0);
}

TEST(NcclLibraryTest, SomeVersionsAreUnsafe) {
  EXPECT_FALSE(nccl::aborts_unsafely(22707));
  EXPECT_FALSE(nccl::aborts_unsafely(22802));
  EXPECT_TRUE(nccl::aborts_unsafely(22803));
  EXPECT_TRUE(nccl::aborts_unsafely(22808));
  EXPECT_FALSE(nccl::aborts_unsafely(22809));
}

TEST(NcclLibraryTest, TwoCopiesAreNamed) {
  const LoadedCopy one(FAKE_NCCL), other(FAKE_OLD_NCCL);
  EXPECT_THAT(refused(), HasSubstr(FAKE_NCCL));
  EXPECT_THAT(refused(), HasSubstr(FAKE_OLD_NCCL));
  EXPECT_THAT(refused(), HasSubstr("let all of it use one"));
}

TEST(NcclLibraryTest, TheOneInTheProcessIsTaken) {
  ::setenv("MERON_NCCL_LIBRARY", FAKE_OLD_NCCL, 1);
  const LoadedCopy brought(FAKE_NCCL);
  const auto library = open_collectives("nccl");
  ASSERT_TRUE(library.ok()) << library.error().info().what;
  EXPECT_EQ((*library)->version(), "2.28.9");
  EXPECT_EQ((*library)->path(), FAKE_NCCL);
  EXPECT_THAT(probe_nccl().summary, EndsWith(FAKE_NCCL));
  EXPECT_TRUE(probe_nccl().reason.empty());
}

// A framework may load its own at any time.
TEST(NcclLibraryTest, ASecondOneThatComesLaterIsRefusedWhileItIsThere) {
  ::setenv("MERON_NCCL_LIBRARY", FAKE_NCCL, 1);
  const auto library = open_collectives("nccl").value();
  {
    const LoadedCopy other(FAKE_OLD_NCCL);
    EXPECT_THAT(refused(), HasSubstr(FAKE_OLD_NCCL));
    const auto begun = library->begin(CommunicatorId{}, 1, 0, -1, 1s);
    EXPECT_EQ(begun.error().code(), MERON_E_UNSUPPORTED);
    EXPECT_THAT(begun.error().info().what, HasSubstr("two copies of NCCL"));
  }
  EXPECT_TRUE(open_collectives("nccl").ok());
}

}  // namespace
}  // namespace meron
