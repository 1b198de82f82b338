// SPDX-License-Identifier: Apache-2.0
// Weights out: the values of all units as Hugging Face publishes models.
#include <string>
#include <utility>
#include <vector>

#include "capi/checkpoint_tensors.h"
#include "capi/guard.h"
#include "meron/checkpoint.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

Result<std::vector<ExportedTensor>> exported_of(const meron_checkpoint_export_options& options,
                                                int rank) {
  MERON_ASSIGN(std::vector<GivenTensor> given,
               read_tensors(options.tensors, options.tensor_count, rank));
  std::vector<ExportedTensor> out;
  for (GivenTensor& tensor : given) {
    const auto refused = [&](std::string what, std::string advice) {
      return Error(MERON_E_ARGUMENT, std::move(what), std::move(advice)).on(tensor.name);
    };
    if (tensor.kind != "values") {
      return refused("a tensor of kind '" + tensor.kind + "' is no value of a model",
                     "give those of kind \"values\" alone");
    }
    uint64_t elements = 1;  // their number was checked
    for (const uint64_t size : tensor.shape) elements *= size;
    if (tensor.begin != 0 || tensor.count != elements) {
      return refused("the tensor is given in part: " + std::to_string(tensor.count) + " of " +
                         std::to_string(elements) + " elements",
                     "rank 0 gives it whole");
    }
    out.push_back(
        {{std::move(tensor.name), std::move(tensor.dtype), std::move(tensor.shape)}, tensor.data});
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
    exporting.tensors = exported_of(given, rank);
    return holder->context->export_model(exporting);
  });
}

}  // extern "C"
