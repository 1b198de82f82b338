// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>

#include "operations.h"

namespace conformance {
namespace {

// A folder of the case, the same for all ranks. Rank 0 empties it before its first use, and removes
// it with the session.
struct Folder : Object {
  Folder(std::string path_in, bool owns_in) : path(std::move(path_in)), owns(owns_in) { remove(); }
  ~Folder() override { remove(); }
  void release() override {}
  void remove() const {
    std::error_code ignored;
    if (owns) std::filesystem::remove_all(path, ignored);
  }
  const std::string path;
  const bool owns;
};

std::string use_folder(Session& session, const Statement& statement) {
  const char* temporary = std::getenv("TMPDIR");
  const std::string path = std::string(temporary != nullptr ? temporary : "/tmp") + "/meron-" +
                           session.setup.job + "-" + session.name + "-" + session.plan + "-" +
                           statement.get("folder");
  const std::string name = "folder " + path;
  if (!session.has(name)) {
    session.keep(name, std::make_unique<Folder>(path, session.setup.rank == 0));
  }
  return path;
}

// An optional text, which must outlive its use.
struct OptionalText {
  OptionalText(const Statement& statement, const std::string& key)
      : given(statement.has(key)), text(statement.get(key, "")) {}
  const char* get() const { return given ? text.c_str() : nullptr; }
  const bool given;
  std::string text;
};

uint32_t flag(const Statement& statement, const std::string& key) {
  return static_cast<uint32_t>(statement.number(key, 0));
}
uint64_t whole(const Statement& statement, const std::string& key) {
  return static_cast<uint64_t>(statement.number(key, 0));
}

std::vector<meron_optimizer> optimizers_of(Session& session, const Statement& statement) {
  std::vector<meron_optimizer> handles;
  if (!statement.has("optimizers")) return handles;
  for (const std::string& each : statement.list("optimizers")) {
    handles.push_back(session.find<Optimizer>(each).handle);
  }
  return handles;
}

std::vector<meron_unit> units_of(Session& session, const Statement& statement) {
  std::vector<meron_unit> handles;
  if (!statement.has("units")) return handles;
  for (const std::string& each : statement.list("units")) {
    handles.push_back(session.find<Unit>(each).handle);
  }
  return handles;
}

const char* safetensors_name(meron_dtype dtype) {
  return dtype == MERON_F32 ? "F32" : dtype == MERON_BF16 ? "BF16" : "F16";
}

// The tensor that `tensor=` gives: this rank's part of it, or nothing.
struct Given : Object {
  void release() override {}
  std::string name, kind;
  uint64_t shape = 0;
  std::vector<std::byte> data;
  meron_checkpoint_tensor raw{};
  uint64_t count = 0;  // of tensors: 0 or 1
};

std::unique_ptr<Given> given_of(Session& session, const Statement& statement) {
  auto given = std::make_unique<Given>();
  call(meron_checkpoint_tensor_init, &given->raw, sizeof given->raw);
  if (!statement.has("tensor")) return given;
  const bool split = flag(statement, "split") == 1;
  const auto rank = static_cast<uint64_t>(session.setup.rank);
  const auto world = static_cast<uint64_t>(session.setup.world);
  if (!split && rank != 0) return given;
  given->name = statement.get("tensor");
  given->kind = statement.get("kind", "");
  given->shape = static_cast<uint64_t>(to_integer(statement.get("count")));
  const meron_dtype dtype = dtype_of(statement.get("dtype"));
  const uint64_t begin = split ? given->shape * rank / world : 0;
  const uint64_t end = split ? given->shape * (rank + 1) / world : given->shape;
  given->data = stored(session.values(statement.get("with")), dtype, end - begin, begin);
  given->count = 1;
  meron_checkpoint_tensor& raw = given->raw;
  raw.name = given->name.c_str();
  raw.kind = given->kind.empty() ? nullptr : given->kind.c_str();
  raw.dtype = safetensors_name(dtype);
  raw.dims = 1;
  raw.shape = &given->shape;
  raw.begin = begin;
  raw.count = end - begin;
  raw.data = given->data.data();
  return given;
}

void save_checkpoint(Session& session, const Statement& statement) {
  const std::vector<meron_optimizer> optimizers = optimizers_of(session, statement);
  const std::vector<meron_unit> units = units_of(session, statement);
  const OptionalText extra(statement, "extra"), mapping(statement, "mapping");
  auto given = given_of(session, statement);
  meron_checkpoint_save_options options{};
  call(meron_checkpoint_save_options_init, &options, sizeof options);
  options.values_only = flag(statement, "values_only");
  options.skip_frozen = flag(statement, "skip_frozen");
  options.per_node = flag(statement, "per_node");
  options.overwrite = flag(statement, "overwrite");
  options.step = whole(statement, "step");
  options.keep = whole(statement, "keep");
  options.extra = extra.get();
  options.mapping = mapping.get();
  options.optimizers = optimizers.data();
  options.optimizer_count = optimizers.size();
  options.tensors = &given->raw;
  options.tensor_count = given->count;
  options.units = units.data();
  options.unit_count = units.size();
  meron_future future{};
  call(meron_checkpoint_save_begin, &future, session.current().handle,
       use_folder(session, statement).c_str(), statement.name.c_str(),
       static_cast<const meron_checkpoint_save_options*>(&options));
  // The memory of its tensor stays as long as the case.
  if (statement.has("future")) {
    session.keep("tensor of " + statement.get("future"), std::move(given));
  }
  finish_or_keep(session, statement, future);
}

void wait_copied(Session& session, const Statement& statement) {
  check_ended(statement,
              call(meron_checkpoint_wait_copied, session.current().handle, timeout_of(statement)));
}

void save_progress(Session& session, const Statement& statement) {
  meron_checkpoint_progress progress{};
  progress.struct_size = sizeof progress;
  call(meron_checkpoint_get_progress, &progress, session.current().handle);
  check_equal("saving", progress.saving, statement.number("saving", progress.saving));
  check(progress.copied <= progress.total && progress.written <= progress.total,
        "more is done than there is");
  if (!statement.has("done")) return;
  check(progress.total > 0, "nothing was to be written");
  check(progress.copied == progress.total, "not all is copied");
  check(progress.written == progress.total, "not all is written");
}

std::string claimed_of(const Statement& statement) {
  std::string lines;
  if (!statement.has("claimed")) return lines;
  for (const std::string& name : statement.list("claimed")) lines += name + "\n";
  return lines;
}

void load_checkpoint(Session& session, const Statement& statement) {
  const std::vector<meron_optimizer> optimizers = optimizers_of(session, statement);
  const std::vector<meron_unit> units = units_of(session, statement);
  const OptionalText name(statement, "checkpoint"), mapping(statement, "mapping");
  const std::string claimed = claimed_of(statement);
  meron_checkpoint_load_options options{};
  call(meron_checkpoint_load_options_init, &options, sizeof options);
  options.lenient = flag(statement, "lenient");
  options.values_only = flag(statement, "values_only");
  options.rank0_only = flag(statement, "rank0_only");
  options.per_node = flag(statement, "per_node");
  options.mapping = mapping.get();
  options.claimed = claimed.empty() ? nullptr : claimed.c_str();
  options.optimizers = optimizers.data();
  options.optimizer_count = optimizers.size();
  options.units = units.data();
  options.unit_count = units.size();
  meron_checkpoint made{};
  call(meron_checkpoint_load, &made, session.current().handle,
       use_folder(session, statement).c_str(), name.get(),
       static_cast<const meron_checkpoint_load_options*>(&options));
  session.keep(statement.name, std::make_unique<Checkpoint>(made));
}

void checkpoint_open(Session& session, const Statement& statement) {
  const OptionalText name(statement, "checkpoint");
  meron_checkpoint made{};
  call(meron_checkpoint_open, &made, use_folder(session, statement).c_str(), name.get());
  session.keep(statement.name, std::make_unique<Checkpoint>(made));
}

void checkpoint_is(Session& session, const Statement& statement) {
  meron_checkpoint_info info{};
  info.struct_size = sizeof info;
  call(meron_checkpoint_get_info, &info, session.find<Checkpoint>(statement.name).handle);
  const std::pair<const char*, uint64_t> fields[] = {{"step", info.step},
                                                     {"world", info.world},
                                                     {"missing", info.missing},
                                                     {"unexpected", info.unexpected}};
  for (const auto& [name, value] : fields) {
    const auto seen = static_cast<double>(value);
    check_equal(name, seen, statement.number(name, seen));
  }
}

meron_checkpoint_text_kind text_kind_of(const std::string& name) {
  if (name == "path") return MERON_CHECKPOINT_TEXT_PATH;
  if (name == "extra") return MERON_CHECKPOINT_TEXT_EXTRA;
  if (name == "missing") return MERON_CHECKPOINT_TEXT_MISSING;
  if (name == "unexpected") return MERON_CHECKPOINT_TEXT_UNEXPECTED;
  if (name == "manifest") return MERON_CHECKPOINT_TEXT_MANIFEST;
  throw Malformed{"unknown text '" + name + "'"};
}

void checkpoint_text(Session& session, const Statement& statement) {
  const char* text = nullptr;
  call(meron_checkpoint_text, &text, session.find<Checkpoint>(statement.name).handle,
       text_kind_of(statement.get("text")));
  check_has(text, statement);
}

void checkpoint_read(Session& session, const Statement& statement) {
  const meron_dtype dtype = dtype_of(statement.get("dtype"));
  const auto count = static_cast<uint64_t>(to_integer(statement.get("count")));
  const uint64_t begin = whole(statement, "begin");
  const OptionalText kind(statement, "kind");
  std::vector<std::byte> data(count * meron_dtype_size(dtype));
  call(meron_checkpoint_read, static_cast<void*>(data.data()), uint64_t{data.size()},
       session.find<Checkpoint>(statement.name).handle, kind.get(), statement.get("tensor").c_str(),
       begin, count);
  session.check_data(statement, dtype, data.data(), count, begin);
}

void checkpoint_list(Session& session, const Statement& statement) {
  char* text = nullptr;
  call(meron_checkpoint_list, &text, use_folder(session, statement).c_str());
  const std::string list = text;
  meron_string_free(text);
  check_has(list, statement);
  double count = 0;
  for (size_t at = 0; (at = list.find("\"step\"", at)) != list.npos; ++at) ++count;
  check_equal("the number of checkpoints", count, statement.number("count", count));
}

void checkpoint_remove(Session& session, const Statement& statement) {
  call(meron_checkpoint_remove, use_folder(session, statement).c_str(), statement.name.c_str());
}

void checkpoint_write(Session& session, const Statement& statement) {
  const OptionalText extra(statement, "extra");
  const auto given = given_of(session, statement);
  meron_checkpoint_write_options options{};
  call(meron_checkpoint_write_options_init, &options, sizeof options);
  options.overwrite = flag(statement, "overwrite");
  options.step = whole(statement, "step");
  options.extra = extra.get();
  options.tensors = &given->raw;
  options.tensor_count = given->count;
  call(meron_checkpoint_write, use_folder(session, statement).c_str(), statement.name.c_str(),
       static_cast<const meron_checkpoint_write_options*>(&options));
}

void export_model(Session& session, const Statement& statement) {
  const OptionalText mapping(statement, "mapping");
  const auto given = given_of(session, statement);
  meron_checkpoint_export_options options{};
  call(meron_checkpoint_export_options_init, &options, sizeof options);
  if (statement.has("to")) {
    options.dtype = dtype_of(statement.get("to"));
    options.keep_dtype = 0;
  }
  options.overwrite = flag(statement, "overwrite");
  options.max_file_bytes = whole(statement, "max");
  options.mapping = mapping.get();
  options.tensors = &given->raw;
  options.tensor_count = given->count;
  call(meron_checkpoint_export, session.current().handle, use_folder(session, statement).c_str(),
       static_cast<const meron_checkpoint_export_options*>(&options));
}

}  // namespace

Operations checkpoint_operations() {
  return {{"save", save_checkpoint},
          {"wait_copied", wait_copied},
          {"save_progress", save_progress},
          {"load", load_checkpoint},
          {"checkpoint_open", checkpoint_open},
          {"checkpoint_is", checkpoint_is},
          {"checkpoint_text", checkpoint_text},
          {"checkpoint_read", checkpoint_read},
          {"checkpoint_list", checkpoint_list},
          {"checkpoint_remove", checkpoint_remove},
          {"checkpoint_write", checkpoint_write},
          {"export_model", export_model}};
}

}  // namespace conformance
