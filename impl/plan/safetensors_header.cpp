// SPDX-License-Identifier: Apache-2.0
// The header is read as a stream of events: it may have 100 MB, and a tree of it would have many
// times that.
#include "plan/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "plan/json_text.h"
#include "plan/text.h"

namespace meron {
namespace {

struct SafetensorsDType {
  std::string_view name;
  uint32_t bytes;
};
constexpr std::array<SafetensorsDType, 15> kSafetensorsDTypes = {{{"F64", 8},
                                                                  {"F32", 4},
                                                                  {"F16", 2},
                                                                  {"BF16", 2},
                                                                  {"I64", 8},
                                                                  {"I32", 4},
                                                                  {"I16", 2},
                                                                  {"I8", 1},
                                                                  {"U64", 8},
                                                                  {"U32", 4},
                                                                  {"U16", 2},
                                                                  {"U8", 1},
                                                                  {"BOOL", 1},
                                                                  {"F8_E4M3", 1},
                                                                  {"F8_E5M2", 1}}};

constexpr auto kSafetensorsDTypeNames = [] {
  std::array<std::string_view, kSafetensorsDTypes.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kSafetensorsDTypes[i].name;
  return names;
}();

Error refused(std::string what,
              std::string advice = "the file is damaged: fetch or write it anew") {
  return Error(MERON_E_PARSE, std::move(what), std::move(advice)).on("safetensors header");
}

// Receives the events of the parser. A handler returns false to stop, with the reason in `error_`.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string_view json, const SafetensorsReading& reading)
      : json_(json), reading_(&reading) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is not whole or too large");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      entry_.shape.push_back(value);
      if (const auto elements = element_count(entry_.shape); !elements) {
        return fail(elements.error().info().what);
      }
      return true;
    }
    if (place_ == Place::offsets) {
      if (offsets_ == 2) return fail("data_offsets has more than two numbers");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
      return true;
    }
    return unexpected("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      *metadata_value_ = value;
      return true;
    }
    if (place_ != Place::tensor || field_ != Field::dtype) return unexpected("a string");
    const auto& taken = reading_->dtypes;
    if (std::find(taken.begin(), taken.end(), value) != taken.end()) {
      entry_.dtype = value;
      return true;
    }
    error_ = Error(MERON_E_UNSUPPORTED,
                   fmt::format("tensor {} has dtype {}, which Meron does not hold",
                               in_quotes(entry_.name), in_quotes(value)),
                   std::string(reading_->advice))
                 .on("safetensors header");
    return false;
  }

  bool key(string_t& value) override {
    switch (place_) {
      case Place::top:
        return begin_tensor(value);
      case Place::tensor:
        return begin_field(value);
      default:
        return begin_metadata(value);
    }
  }

  bool start_object(size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = in_metadata_ ? Place::metadata : Place::tensor;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      if (fields_seen_ != kAllFields) return fail("dtype, shape or data_offsets is missing");
      header_.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::tensor || field_ == Field::dtype) return unexpected("an array");
    place_ = field_ == Field::shape ? Place::shape : Place::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2) return fail("data_offsets has not two numbers");
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& exception) override {
    error_ = malformed_json(json_, position, last_token, exception.what()).on("safetensors header");
    return false;
  }

  std::optional<Error>& error() { return error_; }
  SafetensorsHeader& header() { return header_; }

 private:
  enum class Place : uint8_t { outside, top, metadata, tensor, shape, offsets };
  enum class Field : uint8_t { dtype = 1, shape = 2, offsets = 4 };
  static constexpr unsigned kAllFields = 7;

  bool fail(std::string_view what) {
    error_ =
        refused(entry_.name.empty() ? std::string(what)
                                    : fmt::format("tensor {}: {}", in_quotes(entry_.name), what));
    return false;
  }

  bool unexpected(std::string_view what) {
    switch (place_) {
      case Place::outside:
        return fail(fmt::format("the header is {}, not an object", what));
      case Place::metadata:
        return fail(fmt::format("__metadata__ holds {}, not only strings", what));
      case Place::top:
        return fail(fmt::format("{} where an object was expected", what));
      case Place::shape:
      case Place::offsets:
        return fail(fmt::format("{} where a size was expected", what));
      case Place::tensor:
        break;
    }
    return fail(fmt::format("{} is {}",
                            field_ == Field::dtype   ? "dtype"
                            : field_ == Field::shape ? "shape"
                                                     : "data_offsets",
                            what));
  }

  bool begin_tensor(const std::string& name) {
    entry_ = {};
    if (!names_.insert(name).second) {
      return fail(fmt::format("the key {} is given twice", in_quotes(name)));
    }
    in_metadata_ = name == "__metadata__";
    if (in_metadata_) return true;
    if (const Status valid = check_name(name, reading_->name_bytes); !valid) {
      return fail(fmt::format("tensor {}: {}", in_quotes(name), valid.error().info().what));
    }
    entry_.name = name;
    fields_seen_ = 0;
    return true;
  }

  bool begin_metadata(const std::string& name) {
    const auto [place, added] = header_.metadata.try_emplace(name);
    if (!added)
      return fail(fmt::format("the key {} of __metadata__ is given twice", in_quotes(name)));
    metadata_value_ = &place->second;
    return true;
  }

  bool begin_field(const std::string& name) {
    if (name == "dtype") {
      field_ = Field::dtype;
    } else if (name == "shape") {
      field_ = Field::shape;
    } else if (name == "data_offsets") {
      field_ = Field::offsets;
    } else {
      return fail(fmt::format("unknown key {}", in_quotes(name)));
    }
    const auto bit = static_cast<unsigned>(field_);
    if ((fields_seen_ & bit) != 0) return fail(fmt::format("{} is given twice", name));
    fields_seen_ |= bit;
    return true;
  }

  std::string_view json_;
  const SafetensorsReading* reading_;
  Place place_ = Place::outside;
  bool in_metadata_ = false;  // the object that begins next is "__metadata__"
  Field field_ = Field::dtype;
  unsigned fields_seen_ = 0;
  int offsets_ = 0;
  SafetensorsEntry entry_;
  std::string* metadata_value_ = nullptr;  // of the key that was read last
  SafetensorsHeader header_;
  std::unordered_set<std::string> names_;
  std::optional<Error> error_;
};

Result<SafetensorsHeader> read_header(std::string_view json, const SafetensorsReading& reading) {
  HeaderReader reader(json, reading);
  const bool read = nlohmann::json::sax_parse(json.data(), json.data() + json.size(), &reader);
  if (read) return std::move(reader.header());
  if (reader.error()) return std::move(*reader.error());
  return refused("the header is not JSON");
}

// The tensors' bytes must fill the data exactly, in some order.
Status check_offsets(std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  uint64_t filled = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::string name = in_quotes(entry.name);
    if (entry.begin > entry.end || entry.end > data_bytes) {
      return refused(
          fmt::format("tensor {}: bytes {} to {} are not within the file's {} bytes of data", name,
                      entry.begin, entry.end, data_bytes));
    }
    if (entry.begin != filled) {
      return refused(fmt::format(
          "tensor {} begins at byte {} of the data, where byte {} was expected: {}", name,
          entry.begin, filled, entry.begin < filled ? "tensors overlap" : "there is a hole"));
    }
    MERON_ASSIGN(const uint64_t elements, element_count(entry.shape));
    const uint64_t bytes =
        elements * safetensors_element_bytes(entry.dtype);  // at most 8 * kMaxElements
    if (entry.end - entry.begin != bytes) {
      return refused(fmt::format("tensor {}: its shape needs {} bytes, its data_offsets give {}",
                                 name, bytes, entry.end - entry.begin));
    }
    filled = entry.end;
  }
  if (filled != data_bytes) {
    return refused(
        fmt::format("the tensors fill {} of the file's {} bytes of data", filled, data_bytes));
  }
  return Ok{};
}

}  // namespace

uint32_t safetensors_element_bytes(std::string_view dtype) {
  for (const SafetensorsDType& known : kSafetensorsDTypes) {
    if (dtype == known.name) return known.bytes;
  }
  return 0;
}

std::span<const std::string_view> safetensors_dtypes() {
  return kSafetensorsDTypeNames;
}

Result<uint64_t> safetensors_head_bytes(std::string_view first, uint64_t file_size) {
  if (first.size() < kSafetensorsLengthBytes || file_size < kSafetensorsLengthBytes) {
    return refused("the file is too short to be a safetensors file");
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kSafetensorsLengthBytes; ++i) {
    length |= uint64_t{static_cast<unsigned char>(first[i])} << (8 * i);
  }
  if (length > kMaxSafetensorsHeader) {
    return refused(fmt::format("the header is said to have {} bytes, more than the limit of {}",
                               length, kMaxSafetensorsHeader),
                   "check that this is a safetensors file");
  }
  if (length > file_size - kSafetensorsLengthBytes) {
    return refused(fmt::format("the header is said to have {} bytes, but the file has only {}",
                               length, file_size));
  }
  return kSafetensorsLengthBytes + length;
}

Result<SafetensorsHeader> read_safetensors_header(std::string_view head, uint64_t file_size,
                                                  const SafetensorsReading& reading) {
  MERON_ASSIGN(const uint64_t head_bytes, safetensors_head_bytes(head, file_size));
  if (head.size() < head_bytes) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("{} bytes were given, but length and header have {}", head.size(),
                             head_bytes),
                 "pass the length and the whole header")
        .on("safetensors header");
  }
  const std::string_view json =
      head.substr(kSafetensorsLengthBytes, head_bytes - kSafetensorsLengthBytes);
  if (!json.starts_with('{')) return refused("the header does not begin with {");
  MERON_ASSIGN(SafetensorsHeader header, read_header(json, reading));
  MERON_TRY(check_offsets(header.entries, file_size - head_bytes));
  header.data_begin = head_bytes;
  return header;
}

}  // namespace meron
