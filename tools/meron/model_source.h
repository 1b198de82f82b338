// SPDX-License-Identifier: Apache-2.0
// Where `meron plan` has a model from: each gives the JSON that meron_plan_predict reads.
#pragma once

#include <cstdint>
#include <string>

namespace meron::tools {

// "7B", "350M", "1.5e9", "124000000". Throws a Failure that says what is accepted.
uint64_t parse_count(const std::string& text);

std::string model_of_size(uint64_t parameters, int64_t layers, const std::string& dtype);

// A model in JSON, or the config.json of a Hugging Face model.
std::string model_of_json(const std::string& path);

// Reads the header only, however large the file is. Of a model in several files `path` is the index
// (model.safetensors.index.json), which names those beside it.
std::string model_of_safetensors(const std::string& path);

// "80GiB", "80 GB", "512MiB" or bytes. Throws a Failure that says what is accepted.
uint64_t parse_memory(const std::string& text);

// A small text file, e.g. a model or a plan in JSON; `what` names it in errors.
std::string read_text(const std::string& path, const char* what);

}  // namespace meron::tools
