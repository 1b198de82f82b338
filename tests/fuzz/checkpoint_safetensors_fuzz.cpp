// SPDX-License-Identifier: Apache-2.0
// As plan_safetensors_fuzz.cpp: the input is a header without its length field, and how much data
// follows is taken from the header's own largest offset.
#include "checkpoint/safetensors.h"

#include "checkpoint/piece_name.h"
#include "plan_fuzz.h"
#include "safetensors_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace meron;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (const auto raw = checkpoint::parse_safetensors(input, size); !raw) require_good_error(raw);

  const SafetensorsInput file = safetensors_input(input);
  const Result<SafetensorsHeader> header = checkpoint::parse_safetensors(file.head, file.bytes);
  if (!header) {
    require_good_error(header);
    return 0;
  }
  for (const SafetensorsEntry& entry : header->entries) {
    const checkpoint::PieceName piece = checkpoint::parse_piece_name(entry.name);
    const auto range = piece.range.value_or(checkpoint::PieceName::Range{});
    const checkpoint::PieceName again = checkpoint::parse_piece_name(
        checkpoint::piece_name(piece.kind, piece.name, range.begin, range.end, !piece.range));
    require(again.kind == piece.kind && again.name == piece.name &&
                (!piece.range || again.range == piece.range),
            "the name of a piece restores the piece");
  }
  const Result<std::string> composed =
      checkpoint::compose_safetensors(header->entries, header->metadata);
  require(composed.ok(), "a header that was read can be composed");
  const Result<SafetensorsHeader> again = checkpoint::parse_safetensors(
      *composed, composed->size() + (file.bytes - header->data_begin));
  require(again.ok() && again->entries == header->entries && again->metadata == header->metadata,
          "a header survives the way to bytes and back");
  return 0;
}
