// SPDX-License-Identifier: Apache-2.0
#include "plan/model_desc.h"

#include <fmt/format.h>

#include <array>
#include <unordered_set>
#include <utility>

#include "plan/dtype_words.h"
#include "plan/json_out.h"
#include "plan/json_text.h"
#include "plan/text.h"

namespace meron {
Result<DType> read_dtype(JsonValue value) {
  MERON_ASSIGN(const std::string_view text, value.string());
  constexpr std::array kDTypes = {DType::f32, DType::bf16, DType::f16};
  std::array<std::string_view, kDTypes.size()> known;
  for (size_t i = 0; i < kDTypes.size(); ++i) known[i] = name_of(kDTypes[i]);
  for (const DTypeWord& word : kDTypeWords) {
    if (text == word.text) return word.dtype;
  }
  return value.error(MERON_E_PARSE, fmt::format("{} is not a dtype", in_quotes(text)),
                     suggestion(text, "dtypes", known));
}

namespace {

Error at(JsonValue value, const Error& error) {
  return value.error(MERON_E_PARSE, error.info().what, error.info().advice);
}

// A name that has not been seen before.
Result<std::string> read_name(JsonValue object, std::string_view what,
                              std::unordered_set<std::string>& seen) {
  MERON_ASSIGN(const JsonValue value, object.require("name"));
  MERON_ASSIGN(const std::string_view text, value.string());
  if (const Status valid = check_name(text); !valid) return at(value, valid.error());
  std::string name(text);
  if (!seen.insert(name).second) {
    return value.error(MERON_E_PARSE,
                       fmt::format("another {} is called {} too", what, in_quotes(name)),
                       fmt::format("give each {} a name of its own", what));
  }
  return name;
}

Result<TensorDesc> read_tensor(JsonValue value, std::unordered_set<std::string>& seen) {
  MERON_TRY(value.object({"name", "shape", "dtype", "trainable"}));
  TensorDesc tensor;
  MERON_ASSIGN(tensor.name, read_name(value, "tensor", seen));
  MERON_ASSIGN(const JsonValue shape, value.require("shape"));
  MERON_TRY(shape.array());
  for (auto dim = shape.first(); dim; dim = dim->next()) {
    MERON_ASSIGN(const uint64_t size, dim->count(0, kMaxElements));
    tensor.shape.push_back(size);
    if (const auto elements = element_count(tensor.shape); !elements) {
      return at(shape, elements.error());
    }
  }
  MERON_ASSIGN(const JsonValue dtype, value.require("dtype"));
  MERON_ASSIGN(tensor.dtype, read_dtype(dtype));
  if (const auto trainable = value.find("trainable")) {
    MERON_ASSIGN(tensor.trainable, trainable->boolean());
  }
  return tensor;
}

Result<ModelDesc> read_units(JsonValue units) {
  MERON_TRY(units.array());
  ModelDesc model;
  std::unordered_set<std::string> unit_names, tensor_names;
  for (auto unit = units.first(); unit; unit = unit->next()) {
    MERON_TRY(unit->object({"name", "tensors"}));
    MERON_ASSIGN(std::string name, read_name(*unit, "unit", unit_names));
    MERON_ASSIGN(const JsonValue list, unit->require("tensors"));
    MERON_TRY(list.array());
    std::vector<TensorDesc> tensors;
    for (auto value = list.first(); value; value = value->next()) {
      MERON_ASSIGN(TensorDesc tensor, read_tensor(*value, tensor_names));
      tensors.push_back(std::move(tensor));
    }
    Result<UnitLayout> layout = layout_unit(tensors);
    if (!layout) return at(list, layout.error());
    model.units.push_back({std::move(name), std::move(layout->flats)});
  }
  return model;
}

Result<ModelDesc> read_size(JsonValue root) {
  MERON_TRY(root.object({"parameters", "layers", "dtype"}));
  MERON_ASSIGN(const JsonValue parameters, root.require("parameters"));
  MERON_ASSIGN(const uint64_t count, parameters.count(0, kMaxElements));
  MERON_ASSIGN(const JsonValue layers, root.require("layers"));
  MERON_ASSIGN(const uint64_t layer_count, layers.count(0, kMaxLayers));
  MERON_ASSIGN(const JsonValue dtype_value, root.require("dtype"));
  MERON_ASSIGN(const DType dtype, read_dtype(dtype_value));
  return model_from_size(count, static_cast<uint32_t>(layer_count), dtype);
}

}  // namespace

Result<ModelDesc> model_from_size(uint64_t parameters, uint32_t layers, DType dtype) {
  if (parameters > kMaxElements || layers > kMaxLayers) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("{} parameters in {} layers are more than the limits of {} and {}",
                             parameters, layers, kMaxElements, kMaxLayers),
                 "check the two numbers")
        .on("model");
  }
  const uint64_t units = uint64_t{layers} + 1;
  ModelDesc model;
  model.units.reserve(units);
  for (uint64_t i = 0; i < units; ++i) {
    const uint64_t elements = parameters / units + (i < parameters % units ? 1 : 0);
    model.units.push_back({i < layers ? fmt::format("layers.{}", i) : "rest",
                           {{dtype, round_up(elements, kTensorAlign), true}}});
  }
  return model;
}

Result<ModelDesc> parse_model(std::string_view json) {
  MERON_ASSIGN(const JsonText text,
               JsonText::parse(json, "model", {.bytes = kMaxModelText, .depth = kMaxModelDepth}));
  const JsonValue root = text.root();
  if (root.find("units")) {
    MERON_TRY(root.object({"units"}));
    return read_units(*root.find("units"));
  }
  if (root.find("parameters")) return read_size(root);
  if (const auto config = root.find("model_type")) {
    return config->key_error("the text is the config.json of a Hugging Face model",
                             "let `meron plan --model FILE` read it, or list units and tensors");
  }
  MERON_TRY(root.object({"units", "parameters", "layers", "dtype"}));
  return root.error(MERON_E_PARSE, "neither \"units\" nor \"parameters\" is given",
                    "list the units and their tensors, or give parameters, layers and dtype");
}

std::string to_json(const ModelDesc& model, int indent) {
  JsonOut units = JsonOut::array();
  size_t number = 0;
  for (const UnitDesc& unit : model.units) {
    JsonOut tensors = JsonOut::array();
    size_t place = 0;
    for (const FlatDesc& flat : unit.flats) {
      // Not made of the unit's name: that may already be as long as a name can be.
      tensors.push(JsonOut::object({{"name", fmt::format("unit{}.flat{}", number, place++)},
                                    {"shape", JsonOut::array({flat.elements})},
                                    {"dtype", name_of(flat.dtype)},
                                    {"trainable", flat.trainable}}));
    }
    units.push(JsonOut::object({{"name", unit.name}, {"tensors", tensors}}));
    ++number;
  }
  return JsonOut::object({{"units", units}}).dump(indent);
}

}  // namespace meron
