// SPDX-License-Identifier: Apache-2.0
// Checkpoints as files: opened, read and written.
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "capi/checkpoint_tensors.h"
#include "capi/guard.h"
#include "meron/checkpoint.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

extern "C" {

meron_status meron_checkpoint_write_options_init(meron_checkpoint_write_options* options,
                                                 size_t struct_size, meron_error** err) {
  return guard("checkpoint_write_options_init", err, [&]() -> Status {
    const meron_checkpoint_write_options initial = MERON_CHECKPOINT_WRITE_OPTIONS_INIT;
    return init_options(options, struct_size, initial);
  });
}

meron_status meron_checkpoint_write(const char* folder, const char* name,
                                    const meron_checkpoint_write_options* options,
                                    meron_error** err) {
  return guard("checkpoint_write", err, [&]() -> Status {
    MERON_TRY(need(folder, "folder"));
    MERON_TRY(need(name, "name"));
    const meron_checkpoint_write_options defaults = MERON_CHECKPOINT_WRITE_OPTIONS_INIT;
    MERON_ASSIGN(const meron_checkpoint_write_options given,
                 read_options(options, defaults, "options"));
    if (given.overwrite > 1) return unknown_enum("options.overwrite", given.overwrite);
    WriteOptions writing;
    writing.root = folder;
    writing.name = name;
    writing.step = given.step;
    writing.overwrite = given.overwrite == 1;
    if (given.extra != nullptr) writing.extra = given.extra;
    if (given.optimizers != nullptr) writing.optimizers = given.optimizers;
    MERON_ASSIGN(writing.tensors, read_tensors(given.tensors, given.tensor_count, 0));
    return write_checkpoint(std::move(writing));
  });
}

meron_status meron_checkpoint_open(meron_checkpoint* out, const char* folder, const char* name,
                                   meron_error** err) {
  return guard("checkpoint_open", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(folder, "folder"));
    MERON_ASSIGN(auto opened, OpenedCheckpoint::open(folder, name == nullptr ? "" : name));
    return put<CheckpointHolder>(out, nullptr, std::move(opened));
  });
}

meron_status meron_checkpoint_list(char** out, const char* folder, meron_error** err) {
  return guard("checkpoint_list", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(folder, "folder"));
    MERON_ASSIGN(const std::string list, list_checkpoints(folder));
    return hand_out(out, list);
  });
}

meron_status meron_checkpoint_remove(const char* folder, const char* name, meron_error** err) {
  return guard("checkpoint_remove", err, [&]() -> Status {
    MERON_TRY(need(folder, "folder"));
    MERON_TRY(need(name, "name"));
    return checkpoint::remove_checkpoint(folder, name);
  });
}

meron_status meron_checkpoint_read(void* data, uint64_t bytes, meron_checkpoint checkpoint,
                                   const char* kind, const char* name, uint64_t begin,
                                   uint64_t count, meron_error** err) {
  return guard("checkpoint_read", err, [&]() -> Status {
    if (bytes > 0) MERON_TRY(need(data, "data"));
    MERON_TRY(need(name, "name"));
    MERON_ASSIGN(const auto holder, get<CheckpointHolder>(checkpoint));
    return holder->value->reader().read(kind == nullptr ? "values" : kind, name, begin, count,
                                        static_cast<std::byte*>(data), bytes);
  });
}

meron_status meron_checkpoint_wait_copied(meron_context context, int64_t timeout_ns,
                                          meron_error** err) {
  return guard("checkpoint_wait_copied", err, [&](int& rank) -> Result<meron_status> {
    MERON_TRY(check_timeout(timeout_ns));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    return progress_status(holder->context->wait_copied(timeout_ns));
  });
}

meron_status meron_checkpoint_cancel_save(meron_context context, meron_error** err) {
  return guard("checkpoint_cancel_save", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    return holder->context->cancel_save();
  });
}

meron_status meron_checkpoint_get_progress(meron_checkpoint_progress* out, meron_context context,
                                           meron_error** err) {
  return guard("checkpoint_get_progress", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    meron_checkpoint_progress progress = {};
    bool saving = false;
    const auto watch = holder->context->save_watch(&saving);
    if (watch) {
      progress.saving = saving ? 1 : 0;
      progress.total = watch->total.load();
      progress.copied = watch->copied.load();
      progress.written = watch->written.load();
    }
    return write_info(out, progress, "out");
  });
}

}  // extern "C"
