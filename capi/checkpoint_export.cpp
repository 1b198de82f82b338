// SPDX-License-Identifier: Apache-2.0
// Weights out: the values of all units as Hugging Face publishes models.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/guard.h"
#include "meron/checkpoint.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

Result<ExportedTensor> exported_of(const meron_checkpoint_tensor& given, uint64_t index) {
  const std::string place = "options.tensors[" + std::to_string(index) + "]";
  const auto refused = [&](std::string what, std::string advice) {
    return Error(MERON_E_ARGUMENT, std::move(what), std::move(advice)).on(place);
  };
  if (given.struct_size != sizeof(given)) {
    return refused("its struct_size is " + std::to_string(given.struct_size),
                   "fill it by meron_checkpoint_tensor_init");
  }
  MERON_TRY(need(given.name, (place + ".name").c_str()));
  MERON_TRY(need(given.dtype, (place + ".dtype").c_str()));
  if (given.kind == nullptr || std::string(given.kind) != "values") {
    return refused(std::string("tensor '") + given.name + "' is not of kind \"values\"",
                   "an export has values alone: set its kind, or leave it out");
  }
  if (given.dims > MERON_MAX_DIMS) {
    return refused(std::string("tensor '") + given.name + "' has " + std::to_string(given.dims) +
                       " dimensions, and " + std::to_string(MERON_MAX_DIMS) + " is the most",
                   "reshape it");
  }
  if (given.dims > 0) MERON_TRY(need(given.shape, (place + ".shape").c_str()));
  ExportedTensor tensor;
  tensor.desc.name = given.name;
  tensor.desc.dtype = given.dtype;
  uint64_t elements = 1;
  for (uint32_t d = 0; d < given.dims; ++d) {
    tensor.desc.shape.push_back(given.shape[d]);
    if (__builtin_mul_overflow(elements, given.shape[d], &elements)) {
      return refused(std::string("tensor '") + given.name + "' has more elements than 2^64",
                     "check its shape");
    }
  }
  if (given.begin != 0 || given.count != elements) {
    return refused(std::string("tensor '") + given.name +
                       "' is given in part: " + std::to_string(given.count) + " of " +
                       std::to_string(elements) + " elements",
                   "rank 0 gives it whole");
  }
  if (elements > 0) MERON_TRY(need(given.data, (place + ".data").c_str()));
  tensor.data = static_cast<const std::byte*>(given.data);
  return tensor;
}

Result<std::vector<ExportedTensor>> exported_of(const meron_checkpoint_export_options& given) {
  std::vector<ExportedTensor> out;
  if (given.tensor_count > 0) MERON_TRY(need(given.tensors, "options.tensors"));
  for (uint64_t i = 0; i < given.tensor_count; ++i) {
    MERON_ASSIGN(ExportedTensor tensor, exported_of(given.tensors[i], i));
    out.push_back(std::move(tensor));
  }
  return out;
}

Status check_export_flag(const char* name, uint32_t value) {
  return value <= 1 ? Status(Ok{}) : Status(unknown_enum(name, value));
}

}  // namespace

extern "C" {

meron_status meron_checkpoint_export_options_init(meron_checkpoint_export_options* options,
                                                  size_t struct_size, meron_error** err) {
  return guard("checkpoint_export_options_init", err, [&]() -> Status {
    const meron_checkpoint_export_options initial = MERON_CHECKPOINT_EXPORT_OPTIONS_INIT;
    return init_options(options, struct_size, initial);
  });
}

meron_status meron_checkpoint_export(meron_context context, const char* folder,
                                     const meron_checkpoint_export_options* options,
                                     meron_error** err) {
  return guard("checkpoint_export", err, [&](int& rank) -> Status {
    MERON_TRY(need(folder, "folder"));
    const meron_checkpoint_export_options defaults = MERON_CHECKPOINT_EXPORT_OPTIONS_INIT;
    MERON_ASSIGN(const meron_checkpoint_export_options given,
                 read_options(options, defaults, "options"));
    MERON_TRY(check_export_flag("options.keep_dtype", given.keep_dtype));
    MERON_TRY(check_export_flag("options.overwrite", given.overwrite));
    MERON_ASSIGN(const DType dtype, to_dtype(given.dtype));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    ExportOptions exporting;
    exporting.folder = folder;
    if (given.keep_dtype == 0) exporting.dtype = dtype;
    exporting.max_file_bytes = given.max_file_bytes;
    exporting.overwrite = given.overwrite == 1;
    if (given.mapping != nullptr) exporting.mapping = given.mapping;
    exporting.tensors = exported_of(given);
    return holder->context->export_model(exporting);
  });
}

}  // extern "C"
