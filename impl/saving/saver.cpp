// SPDX-License-Identifier: Apache-2.0
#include "saving/saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <map>
#include <utility>

#include "base/no_memory.h"
#include "checkpoint/block_writer.h"
#include "checkpoint/directory.h"
#include "meron/base.h"
#include "saving/node_folders.h"
#include "saving/save_folder.h"

namespace meron {
namespace {

std::string time_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm time{};
  if (gmtime_r(&now, &time) == nullptr) return "1970-01-01T00:00:00Z";
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", time.tm_year + 1900, time.tm_mon + 1,
                     time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec);
}

uint64_t block_bytes(uint64_t all_bytes) {
  uint64_t block = checkpoint::kMinBlock;
  while (all_bytes / block > checkpoint::kMaxBlocks / 2) block *= 2;
  return block;
}

class FileWriter {
 public:
  FileWriter(Exchange& exchange, checkpoint::BlockWriter& writer, SaveWatch& watch)
      : exchange_(exchange), writer_(writer), watch_(watch) {}

  Status write(const SavedPiece& piece) {
    if (piece.unit == nullptr) return bytes(piece.given->data, piece.bytes);
    const uint64_t size = size_of(piece.state.dtype);
    for (uint64_t at = piece.range.begin; at < piece.range.end;) {
      MERON_ASSIGN(const std::span<std::byte> room, writer_.space((piece.range.end - at) * size));
      const uint64_t count = room.size() / size;  // pieces begin at multiples of it
      MERON_TRY(exchange_.read(*piece.unit, piece.state, {at, at + count}, room.data()));
      MERON_TRY(commit(count * size));
      at += count;
    }
    return Ok{};
  }
  Status bytes(const std::byte* from, uint64_t count) {
    while (count > 0) {
      MERON_ASSIGN(const std::span<std::byte> room, writer_.space(count));
      std::memcpy(room.data(), from, room.size());
      MERON_TRY(commit(room.size()));
      from += room.size();
      count -= room.size();
    }
    return Ok{};
  }

 private:
  Status commit(uint64_t bytes) {
    const uint64_t before = writer_.bytes_written();
    MERON_TRY(writer_.commit(bytes));
    watch_.copied.fetch_add(bytes, std::memory_order_relaxed);
    watch_.written.fetch_add(writer_.bytes_written() - before, std::memory_order_relaxed);
    exchange_.progressed();
    return Ok{};
  }

  Exchange& exchange_;
  checkpoint::BlockWriter& writer_;
  SaveWatch& watch_;
};

// Reports each unit as copied when its last piece is, and those that have none at once.
class UnitsLeft {
 public:
  UnitsLeft(Exchange& exchange, std::span<const UnitState> units, std::span<const SavedFile> files)
      : exchange_(exchange) {
    for (const SavedFile& file : files) {
      for (const SavedPiece& piece : file.pieces) ++pieces_[piece.unit];
    }
    for (const UnitState& unit : units) {
      if (pieces_.count(&unit) == 0) exchange.copied(unit);
    }
  }
  void took(const SavedPiece& piece) {
    if (piece.unit != nullptr && --pieces_[piece.unit] == 0) exchange_.copied(*piece.unit);
  }

 private:
  Exchange& exchange_;
  std::map<const UnitState*, uint64_t> pieces_;
};

// A rank's checksums, file after file.
Result<std::vector<uint32_t>> write_files(Exchange& exchange, std::span<const UnitState> units,
                                          std::span<const SavedFile> files,
                                          const std::string& directory, uint64_t block,
                                          const SaveOptions& options,
                                          const std::shared_ptr<checkpoint::Staging>& staging,
                                          const std::function<void()>& copied) {
  SaveWatch& watch = *options.watch;
  uint64_t total = 0;
  for (const SavedFile& file : files) total += file.bytes;
  watch.total.store(total);
  UnitsLeft left(exchange, units, files);
  std::vector<std::unique_ptr<checkpoint::BlockWriter>> writers;
  for (const SavedFile& file : files) {
    const checkpoint::WriterOptions writing = {.total_bytes = file.bytes,
                                               .block_bytes = block,
                                               .timeout_ns = options.timeout_ns,
                                               .cancelled = &watch.cancelled};
    MERON_ASSIGN(auto writer,
                 checkpoint::BlockWriter::create(staging, directory + "/" + file.name, writing));
    FileWriter to(exchange, *writer, watch);
    MERON_TRY(to.bytes(reinterpret_cast<const std::byte*>(file.head.data()), file.head.size()));
    for (const SavedPiece& piece : file.pieces) {
      MERON_TRY(to.write(piece));
      left.took(piece);
    }
    writers.push_back(std::move(writer));
  }
  copied();
  std::vector<uint32_t> checksums;
  for (const auto& writer : writers) {
    MERON_ASSIGN(const std::vector<uint32_t> of_file, writer->finish());
    checksums.insert(checksums.end(), of_file.begin(), of_file.end());
    exchange.progressed();
  }
  watch.written.store(total);
  return checksums;
}

using FileBytes = std::array<uint64_t, 2>;  // of one rank's files, in their order

struct World {
  std::vector<std::vector<SavedFile>> files;  // by rank; on others than rank 0, their own alone
  std::vector<FileBytes> sizes;               // by rank
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const FileBytes& of_rank : sizes) sum += of_rank[0] + of_rank[1];
    return sum;
  }
  uint64_t most_blocks(uint64_t block) const {
    uint64_t most = 0;
    for (const auto& [first, second] : sizes) {
      most = std::max(most, (first + block - 1) / block + (second + block - 1) / block);
    }
    return most;
  }
};

Result<World> world_of(const SaveLayout& layout, const Exchange& exchange, const std::string& id) {
  World world;
  world.files.resize(static_cast<size_t>(exchange.size()));
  for (int r = 0; r < exchange.size(); ++r) {
    if (exchange.rank() != 0 && exchange.rank() != r) continue;
    MERON_ASSIGN(world.files[static_cast<size_t>(r)], layout.files(static_cast<uint32_t>(r), id));
  }
  return world;
}

Status share_sizes(Exchange& exchange, World& world) {
  FileBytes own{};
  const auto& files = world.files[static_cast<size_t>(exchange.rank())];
  for (size_t i = 0; i < files.size(); ++i) own[i] = files[i].bytes;
  world.sizes.resize(world.files.size());
  return exchange.gather(reinterpret_cast<const std::byte*>(&own), sizeof(own),
                         reinterpret_cast<std::byte*>(world.sizes.data()));
}

Result<checkpoint::Manifest> manifest_of(const SaveLayout& layout, const World& world,
                                         const std::string& id, uint64_t block,
                                         const SaveOptions& options,
                                         std::span<const uint32_t> checksums, uint64_t stride) {
  checkpoint::Manifest manifest;
  manifest.id = id;
  manifest.name = options.target.name;
  manifest.step = options.step;
  manifest.origin.created = time_text();
  manifest.origin.writer =
      fmt::format("meron {}.{}.{}", MERON_VERSION_MAJOR, MERON_VERSION_MINOR, MERON_VERSION_PATCH);
  manifest.origin.world = static_cast<uint32_t>(world.files.size());
  const std::vector<uint32_t> nodes = node_numbers(options.target.nodes);
  if (!nodes.empty()) manifest.origin.nodes = *std::max_element(nodes.begin(), nodes.end()) + 1;
  manifest.origin.plan = options.plan;
  manifest.block_bytes = block;
  manifest.complete =
      !options.what.values_only && !options.what.skip_frozen && !options.what.some_units;
  manifest.optimizers =
      options.what.values_only ? std::vector<checkpoint::Optimizer>() : options.optimizers;
  for (const checkpoint::Optimizer& optimizer : manifest.optimizers) {
    const bool decays = std::any_of(optimizer.groups.begin(), optimizer.groups.end(),
                                    [](const auto& group) { return group.lr_decay != 0; });
    if (decays || !optimizer.param_steps.empty()) manifest.version = 2;
  }
  MERON_TRY(layout.describe(world.files, &manifest));
  std::vector<uint64_t> used(world.files.size(), 0);
  for (checkpoint::File& file : manifest.files) {
    if (!nodes.empty()) file.node = nodes[file.rank];
    const uint64_t blocks = (file.bytes + block - 1) / block;
    const auto from =
        checksums.begin() + static_cast<ptrdiff_t>(file.rank * stride + used[file.rank]);
    file.crc.assign(from, from + static_cast<ptrdiff_t>(blocks));
    used[file.rank] += blocks;
  }
  return manifest;
}

Status check_not_cancelled(const SaveOptions& options) {
  if (!options.watch->cancelled.load()) return Ok{};
  return Error(MERON_E_CANCELLED, "the save was cancelled", "save again when you need one")
      .on(options.target.name);
}

// True if `entries` have a checkpoint of a later step in the line of `last`.
bool went_on(const std::vector<checkpoint::Entry>& entries, const checkpoint::History& last,
             const std::string& name) {
  return std::any_of(entries.begin(), entries.end(), [&](const checkpoint::Entry& entry) {
    return entry.history.lineage == last.lineage && entry.step > last.step && entry.id != last.id &&
           entry.name != name;
  });
}

// A save continues the line of the run's last checkpoint. A run without one begins a line, and so
// does a run that has loaded an older step, or counts its steps anew.
Result<checkpoint::History> history_of(const SaveOptions& options, const std::string& id) {
  const RunHistory& run = *options.run;
  std::vector<checkpoint::Entry> entries;
  if (run.loaded || !run.values.id.empty()) {
    MERON_ASSIGN(entries, checkpoint::list(options.target.root));
  }
  const bool values_here =
      !run.values.id.empty() && std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
        return entry.id == run.values.id;
      });
  const checkpoint::History& last = values_here ? run.values : run.last;
  checkpoint::History out{
      .id = id,
      .parent = last.id,
      .lineage = last.id.empty() ? id : last.lineage,
      .step = options.step,
      .saved_ns = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                            std::chrono::system_clock::now().time_since_epoch())
                                            .count())};
  const bool loaded = run.loaded || values_here;
  const bool counts_anew = options.step < last.step;
  if (loaded && (counts_anew || went_on(entries, last, options.target.name))) out.lineage = id;
  return out;
}

}  // namespace

Status save(Exchange& exchange, std::span<const UnitState> units, const SaveOptions& options,
            const std::shared_ptr<checkpoint::Staging>& staging,
            const std::function<void()>& copied) {
  struct Copied {
    const std::function<void()>& call;
    bool due = true;
    void now() {
      if (std::exchange(due, false)) call();
    }
    ~Copied() { now(); }
  } at_end{copied};
  Result<std::string> extra(std::string("{}"));
  if (!options.extra.empty()) extra = checkpoint::object_text(options.extra, "extra");
  auto own = extra.ok() ? options.tensors : extra.error();
  if (const Status named = options.what.names.check(units); !named.ok()) own = named.error();
  MERON_ASSIGN(const auto given, share_given(exchange, std::move(own), [&](const auto& all) {
                 return SaveLayout(units, all, options.what).check();
               }));
  const SaveLayout layout(units, given, options.what);
  MERON_ASSIGN(SaveFolder folder, SaveFolder::begin(exchange, options.target, options.warn));
  auto world = catch_no_memory([&] { return world_of(layout, exchange, folder.id()); });
  MERON_TRY(agree(exchange, world.ok() ? Status(Ok{}) : Status(world.error())));
  MERON_TRY(share_sizes(exchange, *world));
  const uint64_t block = block_bytes(world->bytes());
  const auto& files = world->files[static_cast<size_t>(exchange.rank())];
  const auto written = catch_no_memory([&] {
    return write_files(exchange, units, files, folder.directory(), block, options, staging,
                       [&] { at_end.now(); });
  });
  at_end.now();
  MERON_TRY(agree(exchange, written.ok() ? check_not_cancelled(options) : Status(written.error())));

  const uint64_t stride = world->most_blocks(block);
  std::vector<uint32_t> own_checksums(*written),
      all_checksums(stride * static_cast<uint64_t>(exchange.size()));
  own_checksums.resize(stride);
  if (stride > 0) {
    MERON_TRY(exchange.gather(reinterpret_cast<const std::byte*>(own_checksums.data()), stride * 4,
                              reinterpret_cast<std::byte*>(all_checksums.data())));
  }
  const auto manifest = [&]() -> Result<checkpoint::Manifest> {
    if (exchange.rank() != 0) return checkpoint::Manifest();
    MERON_ASSIGN(checkpoint::Manifest out,
                 manifest_of(layout, *world, folder.id(), block, options, all_checksums, stride));
    out.extra = *extra;
    return out;
  };
  const auto history = [&]() -> Result<std::string> {
    if (exchange.rank() != 0 || !options.run) return std::string();
    MERON_ASSIGN(const checkpoint::History out, history_of(options, folder.id()));
    return to_json(out);
  };
  MERON_ASSIGN(const std::string history_text, share(exchange, catch_no_memory(history)));
  MERON_TRY(folder.commit(exchange, catch_no_memory(manifest), history_text));
  if (history_text.empty()) return Ok{};
  MERON_ASSIGN(options.run->last, checkpoint::parse_history(history_text));
  options.run->loaded = false;
  if (options.run->last.parent == options.run->values.id) options.run->values = {};
  return Ok{};
}

}  // namespace meron
