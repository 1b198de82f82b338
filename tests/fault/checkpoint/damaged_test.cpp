// SPDX-License-Identifier: Apache-2.0
// Files of checkpoints are damaged: a bit is flipped, a file is shortened, lengthened, removed, or
// comes from another save. A load names the file or a tensor of it, or its result is exact.
#include <fcntl.h>
#include <unistd.h>

#include "tests/fault/checkpoint/campaign.h"

namespace meron::test {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void replace_content(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// A complete checkpoint, in its own folder.
struct Source {
  SavedModel model;
  uint64_t step = 1;
  std::string folder;      // of checkpoints
  std::string checkpoint;  // its directory
  std::vector<std::string> files;

  std::string path(const std::string& file) const { return checkpoint + "/" + file; }
};

class DamagedFiles : public testing::Test {
 protected:
  // Saved by 1 to 3 ranks, in 16 and 32 bits, with one and with several blocks.
  void SetUp() override {
    for (int i = 0; i < 8; ++i) {
      Source source;
      source.model = {i == 7, i % 2 == 1};
      source.step = static_cast<uint64_t>(100 + i);
      source.folder = scratch_.path() + "/" + std::to_string(i);
      const int ranks = 1 + i % 3;
      const Open open = world_of(ranks);
      Job job(ranks, [&](int rank, Report&) {
        SteppedSession session(open, rank, source.model);
        session.fill(source.step);
        session.save(source.folder, step_name(source.step), source.step);
        session.close();
      });
      ASSERT_TRUE(job.wait(60 * kSecond));
      ASSERT_EQ(MERON_OK, job[0].status) << job[0].message;
      source.checkpoint = source.folder + "/" + step_name(source.step);
      for (const auto& entry : fs::directory_iterator(source.checkpoint)) {
        source.files.push_back(entry.path().filename().string());
      }
      std::sort(source.files.begin(), source.files.end());
      ASSERT_TRUE(load_anew(source.folder, 1, source.model).exact);
      sources_.push_back(source);
    }
  }

  // Loads it by name and counts. `how` and `where` say what was done to `file`.
  void judge(const Source& source, const std::string& file, const std::string& how,
             const std::string& where, Tally& tally) {
    SCOPED_TRACE(how + " of " + file + " at " + where + " in checkpoint " +
                 std::to_string(source.step));
    const Loaded loaded = load_anew(source.folder, 1, source.model, step_name(source.step));
    ++tally["trials"];
    if (loaded.exact) {
      EXPECT_EQ(loaded.step, source.step) << "another step was loaded as good";
      ++tally["harmless: " + place_of(file)];
      harmless_.insert(how + " at " + where);
      return;
    }
    ASSERT_LT(loaded.status, 0) << "loaded as good, and it is not: " << loaded.words;
    EXPECT_TRUE(loaded.status == MERON_E_CORRUPT || loaded.status == MERON_E_PARSE ||
                loaded.status == MERON_E_NOT_FOUND || loaded.status == MERON_E_VERSION ||
                loaded.status == MERON_E_ARGUMENT)
        << loaded.status << ": " << loaded.words;
    const bool named = loaded.words.find(file) != std::string::npos ||
                       loaded.words.find("u0.") != std::string::npos ||
                       loaded.words.find("u1.") != std::string::npos;
    EXPECT_TRUE(named) << "neither file nor tensor is named: " << loaded.words;
    ++tally["found: " + place_of(file)];
  }
  static std::string place_of(const std::string& file) {
    if (file == "meron.json") return "manifest";
    return file.rfind("values", 0) == 0 ? "values" : "states";
  }

  // Half of the damage hits the manifest and the headers, although these have few bytes.
  uint64_t draw_offset(Random& random, uint64_t bytes) const {
    const bool head = random.below(3) == 0;
    return random.engine() % std::max<uint64_t>(head ? std::min<uint64_t>(bytes, 4096) : bytes, 1);
  }
  std::string draw_file(Random& random, const Source& source) const {
    return random.below(3) == 0 ? "meron.json" : random.pick(source.files);
  }

  Scratch scratch_;
  std::vector<Source> sources_;
  std::set<std::string> harmless_;
};

TEST_F(DamagedFiles, AFlippedBitIsFoundAndNamed) {
  Random random(test_seed());
  Tally tally("bit flips");
  const int trials = trials_of(10'000);
  for (int number = 0; number < trials && !HasFailure(); ++number) {
    const Source& source = random.pick(sources_);
    const std::string file = draw_file(random, source), path = source.path(file);
    const uint64_t offset = draw_offset(random, fs::file_size(path));
    const int bit = random.below(8);
    const auto flip = [&] {
      const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
      unsigned char byte = 0;
      ASSERT_EQ(1, pread(fd, &byte, 1, static_cast<off_t>(offset)));
      byte = static_cast<unsigned char>(byte ^ (1u << bit));
      ASSERT_EQ(1, pwrite(fd, &byte, 1, static_cast<off_t>(offset)));
      close(fd);
    };
    flip();
    judge(source, file, "bit " + std::to_string(bit), std::to_string(offset), tally);
    flip();
  }
  for (const std::string& each : harmless_) std::printf("harmless: %s\n", each.c_str());
}

TEST_F(DamagedFiles, AFileOfAnotherLengthIsFoundAndNamed) {
  Random random(test_seed() + 1);
  Tally tally("truncations");
  const int trials = trials_of(5000);
  for (int number = 0; number < trials && !HasFailure(); ++number) {
    const Source& source = random.pick(sources_);
    const std::string file = draw_file(random, source), path = source.path(file);
    const std::string before = content_of(path);
    const uint64_t length =
        random.below(8) == 0 ? before.size() - 1 : draw_offset(random, before.size());
    const int how = random.below(10);
    if (how == 0) {
      fs::remove(path);
    } else if (how == 1) {
      replace_content(path,
                      before + std::string(1 + static_cast<size_t>(random.below(5000)), '\0'));
    } else {
      fs::resize_file(path, length);
    }
    judge(source, file,
          how == 0   ? "removal"
          : how == 1 ? "lengthening"
                     : "truncation",
          std::to_string(length), tally);
    replace_content(path, before);
  }
  for (const std::string& each : harmless_) std::printf("harmless: %s\n", each.c_str());
}

// Of the same model and world, so that names and sizes are the same.
TEST_F(DamagedFiles, FilesOfAnotherSaveAreFound) {
  Tally tally("files of another save");
  for (const Source& source : sources_) {
    const std::string folder = scratch_.path() + "/other";
    const int ranks = static_cast<int>((source.files.size() - 1) / 2);
    const Open open = world_of(ranks);
    {
      Job job(ranks, [&](int rank, Report&) {
        SteppedSession session(open, rank, source.model);
        session.fill(source.step + 50);
        session.save(folder, step_name(source.step), source.step);
        session.close();
      });
      ASSERT_TRUE(job.wait(60 * kSecond));
    }
    for (const std::string& file : source.files) {
      if (file == "history.json") continue;  // a load by name does not read it
      const std::string before = content_of(source.path(file));
      replace_content(source.path(file),
                      content_of(folder + "/" + step_name(source.step) + "/" + file));
      const Loaded loaded = load_anew(source.folder, 1, source.model, step_name(source.step));
      EXPECT_FALSE(loaded.exact) << file;
      EXPECT_LT(loaded.status, 0) << file << ": " << loaded.words;
      replace_content(source.path(file), before);
      ++tally["trials"];
    }
    fs::remove_all(folder);
  }
}

}  // namespace
}  // namespace meron::test
