// SPDX-License-Identifier: Apache-2.0
// The names of tensors in the files of a checkpoint, and of those files.
//
//   w                    all of the values of tensor w, with w's shape
//   w[0:512]             its elements 0 to 511, row-major
//   exp_avg:w            all of another kind of state of w
//   exp_avg:w[512:1024]  elements 512 to 1023 of it
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace meron::checkpoint {

inline constexpr size_t kMaxPieceName = 640;  // bytes: kind, range and a name of kMaxNameBytes
inline constexpr size_t kMaxStateKey = 64;    // bytes behind "state."
inline constexpr size_t kMaxFileName = 255;   // bytes, what file systems take

struct PieceName {
  struct Range {
    uint64_t begin = 0, end = 0;
    bool operator==(const Range&) const = default;
  };

  std::string kind;
  std::string name;
  std::optional<Range> range;  // none: the complete tensor

  bool operator==(const PieceName&) const = default;
};

// The kinds of Tensor::kind. The number behind "residual." and "extra." has no leading zeros; the
// key behind "state." has letters a to z, digits and underscores.
bool valid_kind(std::string_view kind);

// Different pieces have different names, and parse_piece_name() restores kind and name of all. If
// the name of a complete tensor reads like that of another piece, kind and range are written out.
std::string piece_name(std::string_view kind, std::string_view name, uint64_t begin, uint64_t end,
                       bool complete);

// Every text is the name of a piece: one without a known kind is of "values".
PieceName parse_piece_name(std::string_view text);

// One component of a path: 1 to kMaxFileName bytes of printable UTF-8, without slashes and not
// hidden, so that it cannot leave its directory. The error has code and advice, and no subject.
Status check_file_name(std::string_view name);

}  // namespace meron::checkpoint
