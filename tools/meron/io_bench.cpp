// SPDX-License-Identifier: Apache-2.0
// `meron io-bench`: what a drive gives to states on tier nvme, measured through the engine that
// moves them, and the settings with which it gives most.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/human_bytes.h"
#include "io/io_engine.h"
#include "tools/meron/commands.h"
#include "tools/meron/drive.h"
#include "tools/meron/failure.h"
#include "tools/meron/picture.h"
#include "tools/meron/text.h"
#include "tools/meron/update_rate.h"

namespace meron::tools {
namespace {

using Json = nlohmann::ordered_json;
using Backend = IoOptions::Backend;

constexpr std::array<uint32_t, 3> kBlocks = {256 << 10, 1 << 20, 4 << 20};
constexpr std::array<uint32_t, 4> kDepths = {4, 8, 32, 128};
constexpr std::array kThreads = {1, 2, 4, 8};
constexpr uint64_t kLeastSize = 1 << 20;
// Of two settings that are as fast, the one that has less under way.
constexpr double kAsFast = 0.98;

constexpr const char* kIoBenchFooter =
    R"(DIR is a folder on the drive. A file without a name is made there, of --size; it is gone when the
command ends, also when it is killed, and nothing else in DIR is touched. It is written once before
anything is measured: the first write to new room takes longer than all that follow.

Then it is read and written in sequence, past the page cache, with each block size (bytes of a
request) and depth (requests under way) through io_uring, and with threads, which do the same where
io_uring is forbidden, as in many containers. A measurement ends with the file, or after --seconds.
1 GB is 10^9 bytes.

Best is what needs the least time to read and write the same bytes, as an optimizer step does; of
settings within 2 % of it, the one that keeps the fewest bytes under way. `threads` is the best of the
threads; it has no effect where there is io_uring. The results are printed as "nvme" of a plan, to
which the tier is added, and as DeepSpeed's "aio" (versions before 0.16 call intra_op_parallelism
thread_count); meron.zero reads both. --save writes these two objects to a file, without a name to
meron-nvme.json in DIR, where meron.zero looks for it ("ratio": "auto").

At last it is read and written at the same time, and AdamW updates 8 million elements in memory: what a
plan's "rates" are for. By them `meron plan` predicts an optimizer step, and "fraction": "auto" puts as
much of the states on the drive as does not make a step longer.

Run it while nothing else uses the drive, and with a --size beyond the cache of the drive itself.
--plot starts python3, which needs matplotlib.

Examples:
  meron io-bench /local
  meron io-bench /local --size 8GiB --json drive.json --plot drive.png
  meron io-bench /local --save
  meron plan --parameters 7B --layers 32 -n 2 --nvme /local/meron-nvme.json)";

struct IoBenchOptions {
  std::string directory;
  uint64_t size = 1 << 30;
  double seconds = 5.0;
  std::string json, plot, save;
};

// Further rates for a plan, measured with the best setting.
struct Rates {
  uint64_t both = 0;    // bytes a second each way while as much is read as is written
  uint64_t update = 0;  // elements a second
};

// One line that each call overwrites, if stderr is a terminal.
class Progress {
 public:
  ~Progress() { clear(); }
  void show(const std::string& text) {
    if (!seen_) return;
    fmt::print(stderr, "\r{:<{}}", text, width_);
    std::fflush(stderr);
    width_ = text.size();
  }

  void clear() {
    if (seen_) std::fprintf(stderr, "\r%*s\r", static_cast<int>(width_), "");
  }

 private:
  const bool seen_ = isatty(STDERR_FILENO) == 1;
  size_t width_ = 0;
};

std::vector<Setting> settings(bool uring) {
  std::vector<Setting> all;
  for (const uint32_t block : kBlocks) {
    for (const uint32_t depth : kDepths) {
      if (uring) all.push_back({.backend = Backend::uring, .block = block, .depth = depth});
    }
  }
  for (const uint32_t block : kBlocks) {
    for (const int threads : kThreads) {
      all.push_back({.backend = Backend::threads, .block = block, .threads = threads});
    }
  }
  return all;
}

const Measurement* best_of(const std::vector<Measurement>& measured, Backend backend) {
  double most = 0.0;
  for (const Measurement& each : measured) {
    if (each.setting.backend == backend) most = std::max(most, each.both());
  }
  const Measurement* best = nullptr;
  for (const Measurement& each : measured) {
    if (each.setting.backend != backend || each.both() < kAsFast * most) continue;
    const auto under_way = [](const Setting& s) { return s.requests() * s.block; };
    if (best == nullptr || under_way(each.setting) < under_way(best->setting)) best = &each;
  }
  return best;
}

// Settings for a plan, and for a configuration of DeepSpeed.
Json best_settings(const Measurement& fastest, int of_threads, const Rates& rates,
                   const std::string& directory) {
  const Setting& best = fastest.setting;
  Json out;
  // A plan may be read elsewhere.
  out["nvme"] = {{"path", std::filesystem::canonical(directory).string()},
                 {"block", best.block},
                 {"depth", best.depth},
                 {"threads", of_threads},
                 {"rates",
                  {{"read", fastest.read.whole()},
                   {"write", fastest.write.whole()},
                   {"both", rates.both},
                   {"update", rates.update}}}};
  out["aio"] = {{"block_size", best.block},
                {"queue_depth", best.depth},
                {"intra_op_parallelism", of_threads},
                {"single_submit", false},
                {"overlap_events", true}};
  return out;
}

Json json_of(const Rate& rate) {
  return {{"bytes", rate.bytes}, {"seconds", rate.seconds}, {"gb_per_second", rate.gigabytes()}};
}

Json json_of(const Measurement& measured) {
  const Setting& setting = measured.setting;
  Json out = {{"backend", setting.uring() ? "io_uring" : "threads"}, {"block", setting.block}};
  out[setting.uring() ? "depth" : "threads"] = setting.requests();
  out["read"] = json_of(measured.read);
  out["write"] = json_of(measured.write);
  return out;
}

std::string table_of(const std::vector<Measurement>& measured) {
  std::vector<std::vector<std::string>> rows = {
      {"backend", "block", "under way", "read GB/s", "write GB/s", "both GB/s"}};
  for (const Measurement& each : measured) {
    rows.push_back(
        {each.setting.uring() ? "io_uring" : "threads", human_bytes(each.setting.block),
         fmt::format("{}", each.setting.requests()), fmt::format("{:.2f}", each.read.gigabytes()),
         fmt::format("{:.2f}", each.write.gigabytes()), fmt::format("{:.2f}", each.both())});
  }
  return in_columns(rows, 1);
}

// With a master: 12 bytes to and fro of each element.
std::string share_of(const Rates& rates) {
  const double share = static_cast<double>(rates.both) / (12.0 * static_cast<double>(rates.update));
  return share >= 1.0 ? std::string("all") : fmt::format("{:.0f} %", 100.0 * share);
}

// Before anything is measured, which takes a while.
void check_writable(const std::string& path) {
  if (path.empty()) return;
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat found {};
  const bool there = stat(path.c_str(), &found) == 0;
  if (there && S_ISFIFO(found.st_mode)) {
    throw Failure(fmt::format("cannot write {}: it is a pipe, which may have no reader", path));
  }
  if (access(there ? path.c_str() : folder.c_str(), W_OK) != 0) {
    throw system_failure(fmt::format("cannot write {}", path), errno);
  }
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text << '\n';
  file.close();
  if (!file) throw system_failure(fmt::format("cannot write {}", path), errno);
}

int io_bench(IoBenchOptions options) {
  if (!options.plot.empty()) check_picture_name(options.plot);
  if (options.size < kLeastSize) {
    throw Failure("--size: give 1MiB or more, for example 4GiB", kUsageError);
  }
  if (!(options.seconds > 0.0 && options.seconds <= 3600.0)) {
    throw Failure("--seconds: give more than 0, and 3600 at most", kUsageError);
  }
  check_writable(options.json);
  check_writable(options.save);
  options.size = options.size / kLeastSize * kLeastSize;
  const auto ring = IoEngine::create({.backend = Backend::uring});
  const std::vector<Setting> all = settings(ring.ok());

  Progress progress;
  progress.show(fmt::format("writing {} for the first time", human_bytes(options.size)));
  const Drive drive(options.directory, options.size);
  std::vector<Measurement> measured;
  for (const Setting& setting : all) {
    progress.show(fmt::format("{}/{}: {}", measured.size() + 1, all.size(), setting.text()));
    measured.push_back(drive.measure(setting, options.seconds));
  }
  const Measurement* const threads = best_of(measured, Backend::threads);
  const Measurement* const uring = best_of(measured, Backend::uring);
  const Measurement& fastest = *(uring != nullptr ? uring : threads);
  progress.show(fmt::format("both ways at once: {}", fastest.setting.text()));
  const Rate both = drive.both(fastest.setting, options.seconds);
  progress.show("updating in memory");
  const Rates rates{.both = both.whole(), .update = update_rate()};
  progress.clear();

  const Json best = best_settings(fastest, threads->setting.threads, rates, options.directory);
  Json out = {{"directory", options.directory},
              {"size", options.size},
              {"direct", drive.file().direct()},
              {"io_uring", ring.ok()}};
  for (const Measurement& each : measured) out["measurements"].push_back(json_of(each));
  out["both"] = json_of(both);
  out["update"] = {{"elements_per_second", rates.update}};
  out["best"] = best;

  fmt::print("{}: {}, read and written\n\n{}\n", options.directory, human_bytes(options.size),
             table_of(measured));
  if (!ring.ok()) fmt::print("There is no io_uring here: {}\n", ring.error().info().what);
  if (!drive.file().direct()) {
    fmt::print("Memory answers, not the drive alone, for {}: the rates say little.\n",
               drive.file().why_buffered());
  }
  fmt::print(
      "Both ways at once: {:.2f} GB/s each. AdamW in memory: {:.0f} million elements a second.\n"
      "So {} of an optimizer's f32 states can lie there without a longer step (fraction "
      "\"auto\").\n\n",
      both.gigabytes(), static_cast<double>(rates.update) * 1e-6, share_of(rates));
  fmt::print("In a plan:\n  \"nvme\": {}\nFor DeepSpeed:\n  \"aio\": {}\n", best["nvme"].dump(),
             best["aio"].dump());
  if (!options.save.empty()) write_text(options.save, best.dump(2));
  if (!options.json.empty()) write_text(options.json, out.dump(2));
  if (options.plot.empty()) return kSuccess;
  std::fflush(stdout);  // before anything that python3 says
  draw_io_bench(out.dump(), options.plot);
  return kSuccess;
}

}  // namespace

Subcommand add_io_bench(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "io-bench", "Measure a drive, and find the best settings of tier nvme for it");
  app->footer(kIoBenchFooter);
  auto options = std::make_shared<IoBenchOptions>();
  app->add_option("directory", options->directory, "a folder on the drive")
      ->required()
      ->option_text("DIR");
  app->add_option("--size", options->size, "of the file that is read and written (1GiB)")
      ->transform(CLI::AsSizeValue(false))
      ->option_text("BYTES");
  app->add_option("--seconds", options->seconds, "after which a measurement ends at the latest (5)")
      ->type_name("S");
  app->add_option("--json", options->json, "write all rates there")->type_name("FILE");
  app->add_option("--save", options->save,
                  "write the best settings there (DIR/meron-nvme.json), as \"nvme\" and \"aio\"")
      ->type_name("[FILE]")
      ->expected(0, 1);
  app->add_option("--plot", options->plot, "draw rates over depth (or FILE.pdf, FILE.svg)")
      ->type_name("FILE.png");
  return {app, [options, app] {
            if (app->count("--save") > 0 && options->save.empty()) {
              options->save = options->directory + "/meron-nvme.json";
            }
            return io_bench(*options);
          }};
}

}  // namespace meron::tools
