// SPDX-License-Identifier: Apache-2.0
#include "meron/checkpoint.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/checkpoint_tensors.h"
#include "capi/guard.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

Result<std::vector<std::shared_ptr<Optimizer>>> optimizers_of(const Context& context,
                                                              const meron_optimizer* optimizers,
                                                              uint64_t count) {
  std::vector<std::shared_ptr<Optimizer>> out;
  if (count > 0) MERON_TRY(need(optimizers, "options.optimizers"));
  for (uint64_t i = 0; i < count; ++i) {
    MERON_ASSIGN(const auto holder, get<OptimizerHolder>(optimizers[i]));
    if (holder->context.get() != &context) {
      return Error(MERON_E_HANDLE, "an optimizer belongs to another context",
                   "give those of this context")
          .on("options.optimizers");
    }
    if (std::find(out.begin(), out.end(), holder->value) != out.end()) {
      return Error(MERON_E_DUPLICATE, "an optimizer is given twice", "give each once")
          .on("options.optimizers");
    }
    out.push_back(holder->value);
  }
  return out;
}

Result<std::vector<std::shared_ptr<Unit>>> units_of(const Context& context, const meron_unit* units,
                                                    uint64_t count) {
  std::vector<std::shared_ptr<Unit>> out;
  if (count == 0) return out;
  MERON_TRY(need(units, "options.units"));
  for (uint64_t i = 0; i < count; ++i) {
    MERON_ASSIGN(const auto holder, get<UnitHolder>(units[i]));
    if (holder->context.get() != &context) {
      return Error(MERON_E_HANDLE, "a unit belongs to another context",
                   "give those of this context")
          .on("options.units");
    }
    if (std::find(out.begin(), out.end(), holder->value) != out.end()) {
      return Error(MERON_E_DUPLICATE,
                   "unit '" + std::string(holder->value->name()) + "' is given twice",
                   "give each once")
          .on("options.units");
    }
    out.push_back(holder->value);
  }
  return out;
}

Status check_flag(const char* name, uint32_t value) {
  return value <= 1 ? Status(Ok{}) : Status(unknown_enum(name, value));
}

}  // namespace

extern "C" {

meron_status meron_checkpoint_tensor_init(meron_checkpoint_tensor* tensor, size_t struct_size,
                                          meron_error** err) {
  return guard("checkpoint_tensor_init", err, [&]() -> Status {
    const meron_checkpoint_tensor initial = MERON_CHECKPOINT_TENSOR_INIT;
    return init_options(tensor, struct_size, initial);
  });
}

meron_status meron_checkpoint_save_options_init(meron_checkpoint_save_options* options,
                                                size_t struct_size, meron_error** err) {
  return guard("checkpoint_save_options_init", err, [&]() -> Status {
    const meron_checkpoint_save_options initial = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
    return init_options(options, struct_size, initial);
  });
}

meron_status meron_checkpoint_load_options_init(meron_checkpoint_load_options* options,
                                                size_t struct_size, meron_error** err) {
  return guard("checkpoint_load_options_init", err, [&]() -> Status {
    const meron_checkpoint_load_options initial = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
    return init_options(options, struct_size, initial);
  });
}

meron_status meron_checkpoint_save_begin(meron_future* out, meron_context context,
                                         const char* folder, const char* name,
                                         const meron_checkpoint_save_options* options,
                                         meron_error** err) {
  return guard("checkpoint_save_begin", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(folder, "folder"));
    MERON_TRY(need(name, "name"));
    const meron_checkpoint_save_options defaults = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
    MERON_ASSIGN(const meron_checkpoint_save_options given,
                 read_options(options, defaults, "options"));
    MERON_TRY(check_flag("options.values_only", given.values_only));
    MERON_TRY(check_flag("options.skip_frozen", given.skip_frozen));
    MERON_TRY(check_flag("options.overwrite", given.overwrite));
    MERON_TRY(check_flag("options.per_node", given.per_node));
    if (given.reserved_0 != 0) return unknown_enum("options.reserved_0", given.reserved_0);
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    SavedObjects what;
    MERON_ASSIGN(what.optimizers,
                 optimizers_of(*holder->context, given.optimizers, given.optimizer_count));
    MERON_ASSIGN(what.units, units_of(*holder->context, given.units, given.unit_count));
    SaveOptions saving;
    saving.tensors = read_tensors(given.tensors, given.tensor_count, rank);
    saving.target.root = folder;
    saving.target.per_node = given.per_node == 1;
    saving.target.name = name;
    saving.step = given.step;
    saving.target.keep = given.keep;
    saving.target.overwrite = given.overwrite == 1;
    saving.what.values_only = given.values_only == 1;
    saving.what.skip_frozen = given.skip_frozen == 1;
    if (given.extra != nullptr) saving.extra = given.extra;
    if (given.mapping != nullptr) saving.mapping = given.mapping;
    MERON_ASSIGN(auto handle, NewHandle<FutureHolder>::make(holder->context));
    MERON_ASSIGN(auto save, holder->context->begin_save(what, std::move(saving)));
    handle.issue(out, std::move(save));
    return Ok{};
  });
}

meron_status meron_checkpoint_load(meron_checkpoint* out, meron_context context, const char* folder,
                                   const char* name, const meron_checkpoint_load_options* options,
                                   meron_error** err) {
  return guard("checkpoint_load", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(folder, "folder"));
    const meron_checkpoint_load_options defaults = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
    MERON_ASSIGN(const meron_checkpoint_load_options given,
                 read_options(options, defaults, "options"));
    MERON_TRY(check_flag("options.lenient", given.lenient));
    MERON_TRY(check_flag("options.values_only", given.values_only));
    MERON_TRY(check_flag("options.rank0_only", given.rank0_only));
    MERON_TRY(check_flag("options.per_node", given.per_node));
    if (given.reserved_0 != 0) return unknown_enum("options.reserved_0", given.reserved_0);
    if (given.rank0_only == 1 && given.per_node == 1) {
      return Error(MERON_E_ARGUMENT, "rank0_only and per_node exclude each other",
                   "say where the files are: with rank 0, or on each node")
          .on("options.per_node");
    }
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    SavedObjects what;
    MERON_ASSIGN(what.optimizers,
                 optimizers_of(*holder->context, given.optimizers, given.optimizer_count));
    MERON_ASSIGN(what.units, units_of(*holder->context, given.units, given.unit_count));
    const LoadOptions loading{.root = folder,
                              .name = name == nullptr ? std::string() : std::string(name),
                              .strict = given.lenient == 0,
                              .values_only = given.values_only == 1,
                              .rank0_only = given.rank0_only == 1,
                              .per_node = given.per_node == 1,
                              .mapping = given.mapping == nullptr ? "" : given.mapping,
                              .claimed = given.claimed == nullptr ? "" : given.claimed};
    MERON_ASSIGN(LoadReport report, holder->context->load_checkpoint(what, loading));
    return put<CheckpointHolder>(out, nullptr,
                                 std::make_shared<OpenedCheckpoint>(std::move(report)));
  });
}

meron_status meron_checkpoint_get_info(meron_checkpoint_info* out, meron_checkpoint checkpoint,
                                       meron_error** err) {
  return guard("checkpoint_get_info", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<CheckpointHolder>(checkpoint));
    OpenedCheckpoint& value = *holder->value;
    meron_checkpoint_info info = {};
    info.world = value.reader().manifest().origin.world;
    info.step = value.reader().manifest().step;
    info.bytes = value.file_bytes();
    info.tensors = value.reader().manifest().tensors.size();
    info.bytes_read = value.bytes_read();
    info.missing = value.missing_count();
    info.unexpected = value.unexpected_count();
    return write_info(out, info, "out");
  });
}

meron_status meron_checkpoint_text(const char** out, meron_checkpoint checkpoint,
                                   meron_checkpoint_text_kind kind, meron_error** err) {
  return guard("checkpoint_text", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<CheckpointHolder>(checkpoint));
    OpenedCheckpoint& value = *holder->value;
    switch (kind) {
      case MERON_CHECKPOINT_TEXT_PATH:
        *out = value.path().c_str();
        return Ok{};
      case MERON_CHECKPOINT_TEXT_EXTRA:
        *out = value.extra().c_str();
        return Ok{};
      case MERON_CHECKPOINT_TEXT_MISSING:
        *out = value.missing().c_str();
        return Ok{};
      case MERON_CHECKPOINT_TEXT_UNEXPECTED:
        *out = value.unexpected().c_str();
        return Ok{};
      case MERON_CHECKPOINT_TEXT_MANIFEST:
        *out = value.manifest().c_str();
        return Ok{};
      case MERON_CHECKPOINT_TEXT_PASSED_OVER:
        *out = value.passed_over().c_str();
        return Ok{};
      default:
        return unknown_enum("kind", kind);
    }
  });
}

meron_status meron_checkpoint_release(meron_checkpoint checkpoint, meron_error** err) {
  return guard("checkpoint_release", err, [&]() -> Status {
    MERON_ASSIGN([[maybe_unused]] const auto holder, take<CheckpointHolder>(checkpoint));
    return Ok{};
  });
}

}  // extern "C"
