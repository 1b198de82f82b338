// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/model_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/meron/engine_error.h"
#include "tools/meron/failure.h"
#include "tools/meron/planning/model_config.h"
#include "tools/meron/planning/safetensors_model.h"
#include "tools/meron/unique_fd.h"

namespace meron::tools {
namespace {

constexpr uint64_t kLargestText = 256u << 20;
constexpr uint64_t kLargestHeader = 100'000'000;  // as the safetensors format has it
constexpr uint64_t kLengthField = 8;
constexpr double kLargestCount = 1e18;

struct InputFile {
  UniqueFd fd;
  uint64_t size = 0;
};

InputFile open_file(const std::string& path) {
  InputFile file;
  file.fd = UniqueFd(open(
      path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));  // a pipe would be waited for
  if (!file.fd) throw system_failure("cannot open " + path, errno);
  struct stat status {};
  if (fstat(file.fd.get(), &status) != 0) throw system_failure("cannot read " + path, errno);
  if (!S_ISREG(status.st_mode)) throw Failure(path + " is not a file");
  file.size = static_cast<uint64_t>(status.st_size);
  return file;
}

// `size` bytes from the file's begin; fewer only if the file has shrunk meanwhile, which is an
// error.
std::string read_head(const InputFile& file, const std::string& path, uint64_t size) {
  std::string bytes(size, '\0');
  uint64_t done = 0;
  while (done < size) {
    const ssize_t got =
        pread(file.fd.get(), bytes.data() + done, size - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw system_failure("cannot read " + path, errno);
    if (got == 0) throw Failure(fmt::format("{} became shorter while it was read", path));
    done += static_cast<uint64_t>(got);
  }
  return bytes;
}

}  // namespace

uint64_t parse_count(const std::string& text) {
  const Failure wrong(
      fmt::format("'{}' is no count: write it as 350M, 7B, 1.5e9 or 124000000 (K, M, B and T are "
                  "powers of 1,000)",
                  text),
      kUsageError);
  const char* const end = text.data() + text.size();
  uint64_t whole = 0;
  if (const auto [stop, code] = std::from_chars(text.data(), end, whole);
      code == std::errc() && stop == end) {
    return whole;
  }
  double value = 0;
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || end - stop > 1) throw wrong;
  if (stop != end) {
    switch (std::toupper(static_cast<unsigned char>(*stop))) {
      case 'K':
        value *= 1e3;
        break;
      case 'M':
        value *= 1e6;
        break;
      case 'B':
      case 'G':
        value *= 1e9;
        break;
      case 'T':
        value *= 1e12;
        break;
      default:
        throw wrong;
    }
  }
  if (!(value >= 0 && value <= kLargestCount)) throw wrong;
  return static_cast<uint64_t>(std::llround(value));
}

std::string model_of_size(uint64_t parameters, int64_t layers, const std::string& dtype) {
  const nlohmann::ordered_json model = {
      {"parameters", parameters}, {"layers", layers}, {"dtype", dtype}};
  return model.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

namespace {

using Json = nlohmann::ordered_json;

std::string model_of_one_file(const std::string& path) {
  const InputFile file = open_file(path);
  if (file.size < kLengthField) {
    throw Failure(
        fmt::format("{} has {} bytes: too short for a safetensors file", path, file.size));
  }
  const std::string length_field = read_head(file, path, kLengthField);
  uint64_t length = 0;  // little-endian
  for (size_t i = kLengthField; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(length_field[i]);
  }
  if (length > kLargestHeader) {
    throw Failure(
        fmt::format("{} is no safetensors file: its header would have {} bytes, and the "
                    "format allows {}",
                    path, length, kLargestHeader));
  }
  if (length > file.size - kLengthField) {
    throw Failure(fmt::format("{} is cut off: its header has {} bytes, the whole file {}", path,
                              length, file.size));
  }
  const std::string head = read_head(file, path, kLengthField + length);
  return to_json(must(planning::model_from_safetensors(head, file.size), path), -1);
}

// The files that an index names, each once, in the order of their names.
std::set<std::string> files_of_index(const std::string& path) {
  // Not ordered: that looks a key up by going through all of them.
  using Sorted = nlohmann::json;
  const Sorted index =
      Sorted::parse(read_text(path, "an index of safetensors files in JSON"), nullptr, false);
  const Sorted map = index.is_object() ? index.value("weight_map", Sorted()) : Sorted();
  if (!map.is_object() || map.empty()) {
    throw Failure(
        fmt::format("{} is no index of safetensors files: it has no \"weight_map\" from "
                    "tensors to files",
                    path));
  }
  std::set<std::string> files;
  for (const auto& [tensor, file] : map.items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : std::string();
    // Of the folder itself: an index is no way to other files.
    if (name.empty() || name.find('/') != std::string::npos || !name.ends_with(".safetensors")) {
      throw Failure(
          fmt::format("{}: the file of tensor '{}' is {}, which is no safetensors file beside it",
                      path, tensor, file.dump(-1, ' ', true, Sorted::error_handler_t::replace)));
    }
    files.insert(name);
  }
  return files;
}

// Parts of a unit in several files become one unit.
std::string model_of_index(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  Json units = Json::array();
  std::map<std::string, size_t> places;
  size_t tensors = 0;
  for (const std::string& file : files_of_index(path)) {
    Json model = Json::parse(model_of_one_file(folder + file));
    for (Json& unit : model["units"]) {
      for (Json& tensor : unit["tensors"]) tensor["name"] = fmt::format("t{}", tensors++);
      const auto [place, fresh] = places.try_emplace(unit["name"], units.size());
      if (fresh) {
        units.push_back(std::move(unit));
        continue;
      }
      Json& list = units[place->second]["tensors"];
      for (Json& tensor : unit["tensors"]) list.push_back(std::move(tensor));
    }
  }
  return Json{{"units", std::move(units)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The first of `names` that a folder has; the path itself if it is no folder.
std::string file_in(const std::string& path, std::initializer_list<const char*> names,
                    const char* advice) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  for (const char* const name : names) {
    const std::filesystem::path file = std::filesystem::path(path) / name;
    if (std::filesystem::exists(file, ignored)) return file.string();
  }
  throw Failure(fmt::format("{} is a folder without {}: {}", path, *names.begin(), advice));
}

}  // namespace

std::string model_of_json(const std::string& path) {
  const std::string file =
      file_in(path, {"config.json"},
              "give a config.json of Hugging Face, or --safetensors and a file of weights");
  const std::string text = read_text(file, "a model in JSON");
  return to_json(must(planning::parse_model_or_config(text), file), -1);
}

std::string model_of_safetensors(const std::string& path) {
  const std::string file = file_in(path, {"model.safetensors", "model.safetensors.index.json"},
                                   "give a file of weights, or --model and a config.json");
  return file.ends_with(".json") ? model_of_index(file) : model_of_one_file(file);
}

uint64_t parse_memory(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr double kKi = 1024;
  constexpr std::array kUnits = {Unit{"", 1},
                                 Unit{"B", 1},
                                 Unit{"KiB", kKi},
                                 Unit{"MiB", kKi * kKi},
                                 Unit{"GiB", kKi * kKi * kKi},
                                 Unit{"TiB", kKi * kKi * kKi * kKi},
                                 Unit{"kB", 1e3},
                                 Unit{"MB", 1e6},
                                 Unit{"GB", 1e9},
                                 Unit{"TB", 1e12}};
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code == std::errc() && value >= 0) {
    std::string_view rest(stop, static_cast<size_t>(end - stop));
    while (rest.starts_with(' ')) rest.remove_prefix(1);
    for (const Unit& unit : kUnits) {
      if (rest == unit.name && value * unit.bytes <= kLargestCount) {
        return static_cast<uint64_t>(std::llround(value * unit.bytes));
      }
    }
  }
  throw Failure(
      fmt::format("'{}' is no size of memory: write it as 80GiB, 512MiB, 64GB or in bytes", text),
      kUsageError);
}

std::string read_text(const std::string& path, const char* what) {
  const InputFile file = open_file(path);
  if (file.size == 0) throw Failure(fmt::format("{} is empty: it should hold {}", path, what));
  if (file.size > kLargestText) {
    throw Failure(fmt::format("{} has {} bytes, {} at most {}: is it the right file?", path,
                              file.size, what, kLargestText));
  }
  return read_head(file, path, file.size);
}

}  // namespace meron::tools
