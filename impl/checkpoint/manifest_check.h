// SPDX-License-Identifier: Apache-2.0
// Checks that a manifest's values agree. Errors are MERON_E_CORRUPT with the places that the
// parser gives: one JsonValue per file or tensor, in their order. Internal to this folder.
#pragma once

#include <vector>

#include "checkpoint/manifest.h"
#include "plan/json_text.h"

namespace meron::checkpoint {

inline constexpr size_t kMaxFiles = 1 << 18;  // two of each of kMaxPlanRanks ranks, and room
inline constexpr uint64_t kMaxFileBytes = uint64_t{1} << 60;  // sums of two cannot overflow

// Names are unique and none is the manifest's; a rank is on one node; a file has a checksum per
// block, and all files together have at most kMaxBlocks.
Status check_manifest_files(const Manifest& manifest, const std::vector<JsonValue>& places,
                            bool checksums);

// Name and kind are unique; ranks in kinds are within the world; the pieces of each tensor cover
// its elements, ascending, each within its file and aligned (files of others need not be).
Status check_manifest_tensors(const Manifest& manifest, const std::vector<JsonValue>& places,
                              bool aligned);

// From its first piece to its end every byte of a file belongs to one piece. After
// check_manifest_tensors().
Status check_manifest_bytes(const Manifest& manifest, const std::vector<JsonValue>& places);

}  // namespace meron::checkpoint
