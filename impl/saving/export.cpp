// SPDX-License-Identifier: Apache-2.0
#include "saving/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <utility>

#include "base/no_memory.h"
#include "checkpoint/commit.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/range_writer.h"
#include "kernels/cpu/accumulate.h"
#include "saving/export_names.h"

namespace meron {
namespace {

// Until the directory of rank 0 is seen by another host.
constexpr int64_t kExportVisibleNs = 30'000'000'000;

// This rank's shard of a param: elements of its flat. The first one is element `first` of the
// param.
struct OwnShard {
  Range range;
  uint64_t first = 0;
};

std::map<const Param*, OwnShard> own_shards(std::span<const UnitState> units) {
  std::map<const Param*, OwnShard> shards;
  for (const UnitState& unit : units) {
    for (size_t f = 0; f < unit.unit().flats().size(); ++f) {
      const State values{f, StateKind::values, unit.unit().flats()[f].desc.dtype};
      const Range range = unit.saved(values);
      for (const ParamSpan& span : unit.spans(values, range)) {
        const uint64_t begin = range.begin + span.offset;
        shards.emplace(span.param, OwnShard{{begin, begin + span.count}, span.first});
      }
    }
  }
  return shards;
}

kernels::Type type_of(std::string_view dtype) {
  if (dtype == "BF16") return kernel_type(DType::bf16);
  return kernel_type(dtype == "F16" ? DType::f16 : DType::f32);
}

// This rank's ranges of a file, written in pieces.
class PartWriter {
 public:
  PartWriter(Exchange& exchange, const ExportList& list)
      : exchange_(exchange), list_(list), read_(kExportPiece), converted_(kExportPiece) {}

  // The elements of `tensor` from `first` on, which are in the unit's range.
  Status write_param(checkpoint::RangeWriter& file, const checkpoint::ModelFile::Place& place,
                     const OwnShard& shard) {
    const ExportSource& source = list_.sources[place.tensor];
    return write(file, place, shard.first, shard.range.size(),
                 [&](uint64_t at, uint64_t count) -> Result<const std::byte*> {
                   const uint64_t begin = shard.range.begin + at;
                   MERON_TRY(exchange_.read(*source.unit, source.state, {begin, begin + count},
                                            read_.data()));
                   return static_cast<const std::byte*>(read_.data());
                 });
  }
  Status write_data(checkpoint::RangeWriter& file, const checkpoint::ModelFile::Place& place) {
    const ExportSource& source = list_.sources[place.tensor];
    const uint64_t width = checkpoint::element_bytes(list_.tensors[place.tensor].dtype);
    const uint64_t from_width = checkpoint::element_bytes(source.dtype);
    return write(file, place, 0, place.bytes / width,
                 [&](uint64_t at, uint64_t) -> Result<const std::byte*> {
                   return source.data + at * from_width;
                 });
  }

 private:
  template <class Read>
  Status write(checkpoint::RangeWriter& file, const checkpoint::ModelFile::Place& place,
               uint64_t first, uint64_t count, const Read& read) {
    const std::string& from = list_.sources[place.tensor].dtype;
    const std::string& to = list_.tensors[place.tensor].dtype;
    const uint64_t width = checkpoint::element_bytes(to);
    const uint64_t piece =
        kExportPiece / std::max<uint64_t>(width, checkpoint::element_bytes(from));
    for (uint64_t at = 0, now = 0; at < count; at += now) {
      const uint64_t offset = place.offset + (first + at) * width;
      now = std::min(piece, count - at);
      // Partial pages may be slow to write: only the ends of a shard are.
      if (now < count - at) now = checkpoint::end_at_page(offset, now, width);
      MERON_ASSIGN(const std::byte* data, read(at, now));
      if (from != to) {
        kernels::convert(converted_.data(), type_of(to), data, type_of(from), now);
        data = converted_.data();
      }
      MERON_TRY(file.write({data, now * width}, offset));
    }
    return Ok{};
  }

  Exchange& exchange_;
  const ExportList& list_;
  std::vector<std::byte> read_, converted_;
};

Status write_own(Exchange& exchange, std::span<const UnitState> units, const ExportList& list,
                 const checkpoint::ModelLayout& layout, const std::string& directory) {
  const std::map<const Param*, OwnShard> shards = own_shards(units);
  PartWriter writer(exchange, list);
  for (const checkpoint::ModelFile& file : layout.files) {
    std::optional<checkpoint::RangeWriter> open;
    const auto opened = [&]() -> Status {
      if (open) return Ok{};
      MERON_ASSIGN(open, checkpoint::RangeWriter::open(directory + "/" + file.name));
      return Ok{};
    };
    for (const checkpoint::ModelFile::Place& place : file.places) {
      const ExportSource& source = list.sources[place.tensor];
      if (source.unit == nullptr) {
        if (exchange.rank() != 0 || place.bytes == 0) continue;
        MERON_TRY(opened());
        MERON_TRY(writer.write_data(*open, place));
      } else if (const auto shard = shards.find(source.param); shard != shards.end()) {
        MERON_TRY(opened());
        MERON_TRY(writer.write_param(*open, place, shard->second));
      }
    }
    if (open) MERON_TRY(open->sync());
  }
  return Ok{};
}

// Rank 0's broadcast: its directory, the generation of names, its tensors.
struct Begun {
  std::string directory;
  uint32_t generation = 1;
  std::vector<ExportedTensor> tensors;
};

std::string to_text(const Begun& begun) {
  return fmt::format("{}\n{}{}{}", begun.generation, begun.directory, '\0', to_text(begun.tensors));
}

Begun parse_begun(std::string_view text) {
  Begun begun;
  const size_t line = text.find('\n'), cut = text.find('\0');
  std::from_chars(text.data(), text.data() + line, begun.generation);
  begun.directory = text.substr(line + 1, cut - line - 1);
  begun.tensors = parse_exported(text.substr(cut + 1));
  return begun;
}

}  // namespace

Status export_model(Exchange& exchange, std::span<const UnitState> units,
                    const ExportOptions& options) {
  const bool first = exchange.rank() == 0;
  std::unique_ptr<checkpoint::ModelExport> files;  // of rank 0: abandoned unless published
  ExportList list;
  checkpoint::ModelLayout layout;
  const auto begin = [&]() -> Result<std::string> {
    MERON_ASSIGN(const std::vector<ExportedTensor> tensors, options.tensors);
    MERON_ASSIGN(list, list_exported(units, tensors, options));
    // Before anything is made.
    MERON_TRY(checkpoint::lay_out_model(list.tensors, options.max_file_bytes));
    MERON_ASSIGN(files, checkpoint::ModelExport::begin(options.folder, options.overwrite));
    Begun begun{.directory = files->directory(), .generation = 1, .tensors = tensors};
    MERON_ASSIGN(layout, files->lay_out(list.tensors, options.max_file_bytes, &begun.generation));
    MERON_TRY(files->make_files(layout));
    return to_text(begun);
  };
  MERON_ASSIGN(const std::string text, share(exchange, first ? catch_no_memory(begin)
                                                             : Result<std::string>(std::string())));
  const Begun begun = parse_begun(text);
  const auto join = [&]() -> Status {
    MERON_ASSIGN(list, list_exported(units, begun.tensors, options));
    MERON_ASSIGN(layout,
                 checkpoint::lay_out_model(list.tensors, options.max_file_bytes, begun.generation));
    return checkpoint::Saving::join(begun.directory, kExportVisibleNs);
  };
  MERON_TRY(agree(exchange, first ? Status(Ok{}) : catch_no_memory(join)));
  MERON_TRY(agree(exchange, catch_no_memory([&] {
                    return write_own(exchange, units, list, layout, begun.directory);
                  })));
  const auto publish = [&] { return files->publish(layout); };
  return agree(exchange, first ? catch_no_memory(publish) : Status(Ok{}));
}

}  // namespace meron
