// SPDX-License-Identifier: Apache-2.0
// modules/nccl/nccl_abi.h against NVIDIA's own header, where there is one.
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "modules/nccl/nccl_abi.h"

namespace meron::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(sizeof(Result) == sizeof(ncclResult_t));
static_assert(static_cast<int>(kSuccess) == static_cast<int>(ncclSuccess));
static_assert(static_cast<int>(kUnhandledCudaError) == static_cast<int>(ncclUnhandledCudaError));
static_assert(static_cast<int>(kSystemError) == static_cast<int>(ncclSystemError));
static_assert(static_cast<int>(kInternalError) == static_cast<int>(ncclInternalError));
static_assert(static_cast<int>(kInvalidArgument) == static_cast<int>(ncclInvalidArgument));
static_assert(static_cast<int>(kInvalidUsage) == static_cast<int>(ncclInvalidUsage));
static_assert(static_cast<int>(kRemoteError) == static_cast<int>(ncclRemoteError));
static_assert(static_cast<int>(kInProgress) == static_cast<int>(ncclInProgress));
static_assert(kUint8 == static_cast<int>(ncclUint8) && sizeof(ncclDataType_t) == sizeof(int));
static_assert(kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(version_code(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH) == NCCL_VERSION_CODE);

// The library reads Config::size bytes: their fields have the same offsets as its own.
static_assert(offsetof(Config, traffic_class) <= sizeof(ncclConfig_t));
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(Config, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));

#if NCCL_VERSION_CODE >= 22800
static_assert(kCopyEnginePolicy == NCCL_CTA_POLICY_ZERO);
static_assert(kSymmetricWindow == NCCL_WIN_COLL_SYMMETRIC);
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(Config, traffic_class) == offsetof(ncclConfig_t, trafficClass));
static_assert(offsetof(Config, comm_name) == offsetof(ncclConfig_t, commName));
static_assert(offsetof(Config, collnet_enable) == offsetof(ncclConfig_t, collnetEnable));
static_assert(offsetof(Config, cta_policy) == offsetof(ncclConfig_t, CTAPolicy));
static_assert(offsetof(Config, shrink_share) == offsetof(ncclConfig_t, shrinkShare));
static_assert(offsetof(Config, nvls_ctas) == offsetof(ncclConfig_t, nvlsCTAs));
static_assert(offsetof(Config, channels_per_peer) == offsetof(ncclConfig_t, nChannelsPerNetPeer));
static_assert(offsetof(Config, nvlink_centric) == offsetof(ncclConfig_t, nvlinkCentricSched));
#endif

TEST(NcclHeaderTest, AConfigBeginsAsTheirs) {
  const Config ours;
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_LE(ours.version, theirs.version);
  EXPECT_EQ(ours.blocking, theirs.blocking);
  EXPECT_EQ(ours.cga_cluster_size, theirs.cgaClusterSize);
  EXPECT_EQ(ours.min_ctas, theirs.minCTAs);
  EXPECT_EQ(ours.max_ctas, theirs.maxCTAs);
  EXPECT_EQ(ours.net_name, theirs.netName);
  EXPECT_EQ(ours.split_share, theirs.splitShare);
}

// Each has as many parameters of the same sizes, in the same order, of integers and pointers alike.
template <class Ours, class Theirs>
constexpr bool is_alike =
    std::is_pointer_v<Ours>&& std::is_pointer_v<Theirs>
        ? true
        : sizeof(Ours) == sizeof(Theirs) && std::is_class_v<Ours> == std::is_class_v<Theirs>;

template <class Ours, class... Own, class Theirs, class... Their>
constexpr bool same(Ours (*)(Own...), Theirs (*)(Their...)) {
  if constexpr (sizeof...(Own) != sizeof...(Their)) {
    return false;
  } else {
    return is_alike<Ours, Theirs> && (is_alike<Own, Their> && ...);
  }
}

constexpr Functions kNone{};
static_assert(same(kNone.GetVersion, decltype(&ncclGetVersion){}));
static_assert(same(kNone.GetUniqueId, decltype(&ncclGetUniqueId){}));
static_assert(same(kNone.CommInitRankConfig, decltype(&ncclCommInitRankConfig){}));
static_assert(same(kNone.CommFinalize, decltype(&ncclCommFinalize){}));
static_assert(same(kNone.CommDestroy, decltype(&ncclCommDestroy){}));
static_assert(same(kNone.CommAbort, decltype(&ncclCommAbort){}));
static_assert(same(kNone.CommGetAsyncError, decltype(&ncclCommGetAsyncError){}));
static_assert(same(kNone.GetErrorString, decltype(&ncclGetErrorString){}));
static_assert(same(kNone.GetLastError, decltype(&ncclGetLastError){}));
static_assert(same(kNone.AllGather, decltype(&ncclAllGather){}));
static_assert(same(kNone.Send, decltype(&ncclSend){}));
static_assert(same(kNone.Recv, decltype(&ncclRecv){}));
static_assert(same(kNone.GroupStart, decltype(&ncclGroupStart){}));
static_assert(same(kNone.GroupEnd, decltype(&ncclGroupEnd){}));
#if NCCL_VERSION_CODE >= 21900
static_assert(same(kNone.CommRegister, decltype(&ncclCommRegister){}));
static_assert(same(kNone.CommDeregister, decltype(&ncclCommDeregister){}));
#endif
#if NCCL_VERSION_CODE >= 22800
static_assert(same(kNone.MemAlloc, decltype(&ncclMemAlloc){}));
static_assert(same(kNone.MemFree, decltype(&ncclMemFree){}));
static_assert(same(kNone.CommWindowRegister, decltype(&ncclCommWindowRegister){}));
static_assert(same(kNone.CommWindowDeregister, decltype(&ncclCommWindowDeregister){}));
#endif

}  // namespace
}  // namespace meron::nccl
