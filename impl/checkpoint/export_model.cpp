// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/export_model.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "checkpoint/floats.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/model_layout.h"
#include "checkpoint/range_writer.h"

namespace meron::checkpoint {
namespace {

constexpr uint64_t kModelPiece = 4 << 20;  // bytes

struct Exported {
  const Tensor* source = nullptr;
  ModelTensor tensor;
};

std::vector<Exported> exported_of(const TensorReader& from, const std::string& dtype) {
  std::vector<Exported> out;
  for (const Tensor& values : from.manifest().tensors) {
    if (values.kind != "values") continue;
    Exported one{&values, {values.name, values.dtype, values.shape}};
    if (!dtype.empty() && is_convertible(values.dtype) && values.dtype != dtype) {
      one.tensor.dtype = dtype;
      const Tensor* const master = from.find("master", values.name);
      if (master != nullptr && is_convertible(master->dtype) && master->shape == values.shape) {
        one.source = master;
      }
    }
    out.push_back(std::move(one));
  }
  return out;
}

Status write_tensor(TensorReader& from, const Exported& one, const ModelFile::Place& place,
                    RangeWriter& to, const std::function<void(uint64_t)>& progress) {
  const uint64_t from_width = element_bytes(one.source->dtype);
  const uint64_t width = element_bytes(one.tensor.dtype);
  const uint64_t all = place.bytes / width, piece = kModelPiece / std::max(width, from_width);
  std::vector<std::byte> read(std::min(piece, all) * from_width), out(std::min(piece, all) * width);
  for (uint64_t at = 0; at < all; at += piece) {
    const uint64_t count = std::min(piece, all - at);
    MERON_TRY(
        from.read(one.source->kind, one.source->name, at, count, read.data(), count * from_width));
    const std::byte* data = read.data();
    if (one.source->dtype != one.tensor.dtype) {
      convert_floats(out.data(), one.tensor.dtype, data, one.source->dtype, count);
      data = out.data();
    }
    MERON_TRY(to.write({data, count * width}, place.offset + at * width));
    progress(count * width);
  }
  return Ok{};
}

}  // namespace

Result<std::vector<std::string>> export_model(TensorReader& from, const ModelOptions& options,
                                              const std::function<void(uint64_t)>& progress) {
  const std::vector<Exported> list = exported_of(from, options.dtype);
  std::vector<ModelTensor> tensors;
  for (const Exported& one : list) tensors.push_back(one.tensor);
  MERON_TRY(lay_out_model(tensors, options.max_file_bytes));
  MERON_ASSIGN(const auto model, ModelExport::begin(options.folder, options.overwrite));
  uint32_t generation = 1;
  MERON_ASSIGN(const ModelLayout layout,
               model->lay_out(tensors, options.max_file_bytes, &generation));
  MERON_TRY(model->make_files(layout));
  for (const ModelFile& file : layout.files) {
    MERON_ASSIGN(RangeWriter to, RangeWriter::open(model->directory() + "/" + file.name));
    for (const ModelFile::Place& place : file.places) {
      MERON_TRY(write_tensor(from, list[place.tensor], place, to, progress));
    }
    // A descriptor that is opened later may miss the error of an earlier write.
    MERON_TRY(to.sync());
  }
  MERON_TRY(model->publish(layout));
  return layout.names();
}

}  // namespace meron::checkpoint
