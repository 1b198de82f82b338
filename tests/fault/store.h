// SPDX-License-Identifier: Apache-2.0
// Ranks that find each other by a directory (MERON_STORE), and how that ends.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fault/job.h"

namespace meron::test {

namespace fs = std::filesystem;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "store-XXXXXX").string();
    ASSERT_NE(nullptr, mkdtemp(path.data()));
    directory_ = path;
  }
  void TearDown() override { fs::remove_all(directory_); }

  // As a launcher would start a rank: by variables alone.
  void set(int rank, int ranks, const char* job = "a") const {
    for (const char* name : {"MERON_TOKEN", "MERON_TOKEN_FD", "MERON_NODE", "MERON_HOST"}) {
      unsetenv(name);
    }
    setenv("MERON_STORE", directory_.c_str(), 1);
    setenv("MERON_JOB", job, 1);
    setenv("MERON_RANK", std::to_string(rank).c_str(), 1);
    setenv("MERON_WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  }

  static Open by_environment(int ranks, int64_t timeout_ns = 20 * kSecond) {
    Open open;
    open.ranks = ranks;
    open.timeout_ns = timeout_ns;
    open.adjust = [](int, meron_context_options& options) {
      options.rank = options.world_size = -1;
      options.transport = nullptr;
      options.token = options.job = nullptr;
    };
    return open;
  }
  static void meet(const Open& open, int rank) {
    Session session(open, rank);
    session.barrier();
    session.close();
  }

  fs::path folder(const char* job = "a") const {
    return directory_ / (std::string("meron-") + job);
  }
  fs::path card(int rank) const { return folder() / ("rank-" + std::to_string(rank)); }
  std::string read(const fs::path& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const fs::path& path, const std::string& text) const { std::ofstream(path) << text; }
  // Not for ranks that may meet meanwhile: then it goes, maybe before this has looked.
  void await(const fs::path& path) const {
    const int64_t end = now_ns() + 20 * kSecond;
    while (!fs::exists(path)) {
      ASSERT_LT(now_ns(), end) << path << " does not come";
      sleep_ns(kMilli);
    }
  }
  // Rank 0's description of itself, turned into an answer of rank 1 that has `to` in place of
  // `from`.
  std::string answer_of_rank_1(const std::string& from, const std::string& to) const {
    await(card(0));
    std::string text = read(card(0));
    const auto replace = [&](const std::string& old, const std::string& with) {
      const size_t at = text.find(old);
      ASSERT_NE(std::string::npos, at) << text;
      text.replace(at, old.size(), with);
    };
    replace("\"rank\":0", "\"rank\":1");
    replace("\"number\":\"", "\"number\":\"1");
    replace(from, to);
    return text;
  }
  // Nothing of any job.
  void expect_empty() const { EXPECT_TRUE(fs::is_empty(directory_)) << *fs::begin(list()); }
  fs::recursive_directory_iterator list() const {
    return fs::recursive_directory_iterator(directory_);
  }

  fs::path directory_;
};

inline void expect_met(Job& job) {
  ASSERT_TRUE(job.wait(40 * kSecond)) << "a rank hangs";
  for (int rank = 0; rank < job.ranks(); ++rank) {
    EXPECT_EQ(MERON_OK, job[rank].status) << "process " << rank << ": " << job[rank].message;
  }
}

inline void expect_failed(const Report& report, meron_status status,
                          const std::vector<std::string>& texts) {
  const std::string said = std::string(report.message) + " / " + report.advice;
  SCOPED_TRACE(said);
  EXPECT_EQ(status, report.status) << meron_status_name(report.status);
  for (const std::string& text : texts) EXPECT_NE(std::string::npos, said.find(text)) << text;
}

}  // namespace meron::test
