// SPDX-License-Identifier: Apache-2.0
// Files that are written and read block by block, in a directory on a disk.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "saved.h"

namespace meron::test {

class BlockFiles : public OnDisk {
 protected:
  std::shared_ptr<checkpoint::Staging> staging(uint64_t block = 16 << 10, size_t blocks = 3) const {
    return make_staging(block, blocks, {.block = 8192, .backend = GetParam()});
  }
  std::string at(const std::string& name) const { return directory_.path() + "/" + name; }

  Content content(const std::string& name) const {
    std::ifstream file(at(name), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    const auto* const data = reinterpret_cast<const std::byte*>(text.data());
    return {data, data + text.size()};
  }
  // Writes `content` as file `name`, with the checksums that the writer gives.
  checkpoint::File write(const std::string& name, const Content& content,
                         uint64_t block_bytes) const {
    const auto crc = write_content(staging(), at(name), content, block_bytes);
    EXPECT_TRUE(crc.ok()) << text_of(crc.ok() ? Status(Ok{}) : Status(crc.error()));
    return {
        .name = name, .bytes = content.size(), .crc = crc.ok() ? *crc : std::vector<uint32_t>()};
  }
};

}  // namespace meron::test
