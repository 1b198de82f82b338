// SPDX-License-Identifier: Apache-2.0
// A folder with a model as Hugging Face publishes it, and how a new one takes its place.
//
// A folder's model is model.safetensors if it exists, else the files of the index, as in
// transformers. An export writes new files in FOLDER/.exporting-XXXXXXXX, then renames them one by
// one. The last rename changes the folder's model, and only then the former files are removed. So
// the folder always has the former model or the new one, complete, even if the process is killed or
// the host loses power. An export of several files never reuses the names of former ones, so a
// reader with the former index finds the former files, or none.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "checkpoint/model_layout.h"
#include "os/file_lock.h"

namespace meron::checkpoint {

// The names of the files of the models in a folder: a single file, an index, and what it lists.
// Empty: no model. MERON_E_PARSE and MERON_E_CORRUPT for an index that cannot be read.
Result<std::set<std::string>> model_files(const std::string& folder);

// Used by one thread of one process.
class ModelExport {
 public:
  // Makes the folder if it does not exist, and the temporary directory in it; removes what killed
  // exports have left. Errors: MERON_E_DUPLICATE if a model exists, unless `overwrite`;
  // MERON_E_STATE if another export to the folder is under way; what the drive says.
  static Result<std::unique_ptr<ModelExport>> begin(const std::string& folder, bool overwrite);
  // Abandons an unpublished export. A forked child leaves it alone.
  ~ModelExport();
  ModelExport(const ModelExport&) = delete;
  ModelExport& operator=(const ModelExport&) = delete;

  // The layout of the tensors, with names that no file of the present model has.
  Result<ModelLayout> lay_out(std::span<const ModelTensor> tensors, uint64_t max_file_bytes,
                              uint32_t* generation) const;
  // Makes the files in directory(), with their full sizes and their heads. MERON_E_NO_SPACE.
  Status make_files(const ModelLayout& layout);
  const std::string& directory() const { return directory_; }

  // Everything is written: syncs the files and gives them their names. Errors: those of begin(). If
  // it fails, the folder has the former model, or, where only the end failed, the new one.
  Status publish(const ModelLayout& layout);

 private:
  ModelExport(std::string folder, bool overwrite);
  Status prepare();
  Status check_free() const;
  Status sync_files(const ModelLayout& layout) const;
  Status put_in_place(const ModelLayout& layout, const std::set<std::string>& former);
  void abandon();

  const std::string folder_;
  const bool overwrite_;
  const int32_t owner_pid_;
  std::string directory_;  // empty: there is none
  std::set<std::string> former_;
  FileLock owner_;
};

}  // namespace meron::checkpoint
