// Tensors in and out: inputs from .npy or raw files checked against the program's signature, outputs examined and saved.
#pragma once

#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/executor/method_meta.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "failure.h"
#include "json.h"

namespace kit {

using executorch::aten::ScalarType;
using executorch::extension::TensorPtr;
using executorch::runtime::EValue;
using executorch::runtime::MethodMeta;
using executorch::runtime::Tag;

struct DType {
  ScalarType type;
  const char* name;
  const char* npy;  // numpy's spelling in a .npy header
};

constexpr DType kDTypes[] = {
    {ScalarType::Float, "float32", "<f4"}, {ScalarType::Half, "float16", "<f2"},  {ScalarType::Double, "float64", "<f8"},
    {ScalarType::Char, "int8", "|i1"},     {ScalarType::Byte, "uint8", "|u1"},    {ScalarType::Short, "int16", "<i2"},
    {ScalarType::Int, "int32", "<i4"},     {ScalarType::Long, "int64", "<i8"},    {ScalarType::Bool, "bool", "|b1"},
    {ScalarType::BFloat16, "bfloat16", "(none)"},
};

inline std::string dtype_name(ScalarType type) {
  for (const DType& known : kDTypes) {
    if (known.type == type) return known.name;
  }
  return executorch::runtime::toString(type);
}

struct Description {
  std::vector<int64_t> shape;
  std::string dtype;
  int64_t nonfinite = 0;
};

inline std::string to_json(const Description& description) {
  return "{\"shape\":" + to_json(description.shape) + ",\"dtype\":" + quoted(description.dtype) +
         ",\"nonfinite\":" + std::to_string(description.nonfinite) + "}";
}

inline std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

inline std::vector<uint8_t> read_file(const std::string& path, Exit code, const std::string& what) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Failure(code, what + " '" + path + "' cannot be read: " + std::strerror(errno));
  return std::vector<uint8_t>((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

// A .npy file: version 1 to 3, C order. Only what is needed to hold it against a signature is parsed.
struct Npy {
  std::string dtype;
  std::vector<int64_t> shape;
  size_t data_offset;
};

inline std::string npy_value(const std::string& header, const std::string& key, const std::string& path) {
  const size_t at = header.find("'" + key + "':");
  if (at == std::string::npos) throw Failure(Exit::INPUTS_WRONG, "input file '" + path + "' is not a usable .npy: no " + key);
  const size_t start = header.find_first_not_of(' ', at + key.size() + 3);
  const size_t end = start == std::string::npos   ? start
                     : header[start] == '('       ? header.find(')', start)
                                                  : header.find_first_of(",}", start);
  if (end == std::string::npos) throw Failure(Exit::INPUTS_WRONG, "input file '" + path + "' is not a usable .npy: broken header");
  return header.substr(start, end - start);
}

inline Npy parse_npy(const std::vector<uint8_t>& bytes, const std::string& path) {
  const auto broken = [&](const char* why) {
    return Failure(Exit::INPUTS_WRONG, "input file '" + path + "' is not a usable .npy: " + why);
  };
  if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0) throw broken("bad magic");
  const size_t prefix = bytes[6] == 1 ? 10 : 12;
  if (bytes.size() < prefix) throw broken("truncated header");
  size_t length = bytes[8] | bytes[9] << 8;
  if (prefix == 12) length |= static_cast<size_t>(bytes[10]) << 16 | static_cast<size_t>(bytes[11]) << 24;
  if (bytes.size() < prefix + length) throw broken("truncated header");
  const std::string header(bytes.begin() + prefix, bytes.begin() + prefix + length);
  if (npy_value(header, "fortran_order", path).rfind("False", 0) != 0) throw broken("it is in Fortran order; save it in C order");
  std::string descr = npy_value(header, "descr", path);
  Npy npy{descr.size() > 2 ? descr.substr(1, descr.size() - 2) : "", {}, prefix + length};
  for (const std::string& size : split(npy_value(header, "shape", path).substr(1), ',')) {
    if (size.find_first_not_of(' ') == std::string::npos) continue;
    npy.shape.push_back(std::strtoll(size.c_str(), nullptr, 10));
  }
  return npy;
}

// Reorders C-order data into the storage order a dim order asks for (channels last is 0, 2, 3, 1).
inline std::vector<uint8_t> reorder(
    const std::vector<uint8_t>& data, const std::vector<int64_t>& shape, const std::vector<uint8_t>& dim_order) {
  const size_t rank = shape.size();
  bool plain = true;
  for (size_t i = 0; i < rank; ++i) plain = plain && dim_order[i] == i;
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  if (plain || count == 0) return data;
  const size_t item = data.size() / count;
  std::vector<size_t> strides(rank, 1), index(rank, 0);
  for (size_t i = rank - 1; i > 0; --i) strides[i - 1] = strides[i] * shape[i];
  std::vector<uint8_t> out(data.size());
  for (size_t written = 0; written < count; ++written) {
    size_t source = 0;
    for (size_t i = 0; i < rank; ++i) source += index[i] * strides[dim_order[i]];
    std::memcpy(&out[written * item], &data[source * item], item);
    for (size_t i = rank; i-- > 0;) {
      if (++index[i] < static_cast<size_t>(shape[dim_order[i]])) break;
      index[i] = 0;
    }
  }
  return out;
}

// The inputs of one method: what the signature asks for, and the tensors that are fed.
class Inputs {
 public:
  // `dynamic` says of each input whether it may be smaller than the signature says.
  Inputs(const MethodMeta& meta, const std::vector<std::string>& files, const std::vector<bool>& dynamic) : dynamic_(dynamic) {
    if (!files.empty() && files.size() != meta.num_inputs()) {
      throw Failure(
          Exit::INPUTS_WRONG, "the model takes " + std::to_string(meta.num_inputs()) + " inputs but " +
                                  std::to_string(files.size()) + " input files were given");
    }
    for (size_t i = 0; i < meta.num_inputs(); ++i) add(meta, i, files.empty() ? "" : files[i]);
  }

  const std::vector<EValue>& values() const { return values_; }
  const std::vector<Description>& descriptions() const { return descriptions_; }

 private:
  void add(const MethodMeta& meta, size_t index, const std::string& file) {
    const auto tag = meta.input_tag(index);
    if (!tag.ok()) throw Failure(Exit::MODEL_INVALID, "input " + std::to_string(index) + " of the model has no type");
    if (*tag == Tag::Tensor) return add_tensor(meta, index, file);
    if (!file.empty()) throw Failure(Exit::INPUTS_WRONG, "input " + std::to_string(index) + " is not a tensor; it cannot be read from a file");
    if (*tag == Tag::Int) values_.emplace_back(static_cast<int64_t>(1));
    else if (*tag == Tag::Double) values_.emplace_back(1.0);
    else if (*tag == Tag::Bool) values_.emplace_back(true);
    else if (*tag == Tag::None) values_.emplace_back();
    else throw Failure(Exit::INPUTS_WRONG, "input " + std::to_string(index) + " has a type this runner cannot make");
    descriptions_.push_back({{}, "scalar"});
  }

  void add_tensor(const MethodMeta& meta, size_t index, const std::string& file) {
    const auto info = meta.input_tensor_meta(index);
    if (!info.ok()) throw Failure(Exit::MODEL_INVALID, "input " + std::to_string(index) + " of the model has no signature");
    Description wanted{{info->sizes().begin(), info->sizes().end()}, dtype_name(info->scalar_type())};
    const std::vector<uint8_t> dim_order(info->dim_order().begin(), info->dim_order().end());
    std::vector<executorch::aten::SizesType> sizes(info->sizes().begin(), info->sizes().end());
    if (file.empty()) {
      auto ones = executorch::extension::ones(sizes, info->scalar_type());
      std::vector<uint8_t> data(info->nbytes());
      std::memcpy(data.data(), ones->const_data_ptr(), data.size());
      keep(sizes, std::move(data), dim_order, info->scalar_type());
    } else {
      auto data = load(file, index, wanted, dim_order, info->scalar_type(), info->nbytes());
      sizes.assign(wanted.shape.begin(), wanted.shape.end());
      keep(sizes, std::move(data), dim_order, info->scalar_type());
    }
    descriptions_.push_back(wanted);
  }

  // Reads a file. If the input is dynamic, `wanted` then has the file's shape instead of the largest one.
  std::vector<uint8_t> load(
      const std::string& file, size_t index, Description& wanted, const std::vector<uint8_t>& dim_order,
      ScalarType type, size_t nbytes) const {
    std::vector<uint8_t> bytes = read_file(file, Exit::INPUTS_WRONG, "input file");
    const std::string most = index < dynamic_.size() && dynamic_[index] ? " or smaller" : "";
    const std::string which = "input " + std::to_string(index) + " of the model is " + wanted.dtype + shape_text(wanted.shape) + most;
    const bool is_npy = file.size() > 4 && file.compare(file.size() - 4, 4, ".npy") == 0;
    if (!is_npy) {
      if (bytes.size() != nbytes) {
        throw Failure(Exit::INPUTS_WRONG, which + ", which is " + std::to_string(nbytes) + " bytes, but '" + file + "' has " + std::to_string(bytes.size()));
      }
      return bytes;
    }
    const Npy npy = parse_npy(bytes, file);
    for (const DType& known : kDTypes) {
      if (known.type == type && npy.dtype != known.npy) {
        throw Failure(Exit::INPUTS_WRONG, which + ", but '" + file + "' holds numpy type " + npy.dtype);
      }
    }
    if (npy.shape != wanted.shape) {
      if (!(index < dynamic_.size() && dynamic_[index] && within(npy.shape, wanted.shape))) {
        throw Failure(Exit::INPUTS_WRONG, which + ", but '" + file + "' has shape " + shape_text(npy.shape));
      }
      size_t largest = 1, count = 1;
      for (const int64_t size : wanted.shape) largest *= static_cast<size_t>(size);
      for (const int64_t size : npy.shape) count *= static_cast<size_t>(size);
      nbytes = nbytes / largest * count;
      wanted.shape = npy.shape;
    }
    bytes.erase(bytes.begin(), bytes.begin() + npy.data_offset);
    if (bytes.size() != nbytes) throw Failure(Exit::INPUTS_WRONG, "input file '" + file + "' is truncated");
    return reorder(bytes, wanted.shape, dim_order);
  }

  void keep(
      const std::vector<executorch::aten::SizesType>& sizes, std::vector<uint8_t> data, const std::vector<uint8_t>& dim_order,
      ScalarType type) {
    tensors_.push_back(executorch::extension::make_tensor_ptr(
        sizes, std::move(data), std::vector<executorch::aten::DimOrderType>(dim_order.begin(), dim_order.end()), {}, type));
    values_.emplace_back(tensors_.back());
  }

  static bool within(const std::vector<int64_t>& shape, const std::vector<int64_t>& most) {
    if (shape.size() != most.size()) return false;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] < 1 || shape[i] > most[i]) return false;
    }
    return true;
  }

  std::vector<bool> dynamic_;
  std::vector<TensorPtr> tensors_;
  std::vector<EValue> values_;
  std::vector<Description> descriptions_;
};

// NaN and Inf are exponents of all ones: counted on the bits, so one loop serves every float type.
template <typename Bits>
int64_t count_exponent_ones(const void* data, size_t count, Bits exponent) {
  int64_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, static_cast<const char*>(data) + i * sizeof bits, sizeof bits);
    found += (bits & exponent) == exponent;
  }
  return found;
}

inline int64_t count_nonfinite(const executorch::aten::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();
  const size_t count = static_cast<size_t>(tensor.numel());
  switch (tensor.scalar_type()) {
    case ScalarType::Float: return count_exponent_ones<uint32_t>(data, count, 0x7f800000u);
    case ScalarType::Double: return count_exponent_ones<uint64_t>(data, count, 0x7ff0000000000000ull);
    case ScalarType::Half: return count_exponent_ones<uint16_t>(data, count, 0x7c00);
    case ScalarType::BFloat16: return count_exponent_ones<uint16_t>(data, count, 0x7f80);
    default: return 0;
  }
}

inline std::vector<Description> describe_outputs(const std::vector<EValue>& outputs) {
  std::vector<Description> all;
  for (const EValue& value : outputs) {
    if (!value.isTensor()) {
      all.push_back({{}, "scalar"});
      continue;
    }
    const auto tensor = value.toTensor();
    all.push_back({{tensor.sizes().begin(), tensor.sizes().end()}, dtype_name(tensor.scalar_type()), count_nonfinite(tensor)});
  }
  return all;
}

inline void write_file(const std::string& path, const void* data, size_t size, const std::string& what) {
  const std::string temporary = path + ".tmp";
  std::ofstream file(temporary, std::ios::binary);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(temporary.c_str());
    throw Failure(Exit::OUTPUT_UNWRITABLE, what + " '" + path + "' cannot be written: " + why);
  }
}

// Raw bytes in logical (C) order, as BASE-<index>.bin: executor_runner's names.
inline void write_outputs(const std::vector<EValue>& outputs, const std::string& base) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].isTensor()) continue;
    const auto tensor = outputs[i].toTensor();
    const std::vector<int64_t> shape(tensor.sizes().begin(), tensor.sizes().end());
    // Back to logical order: the stored shape permuted by the inverse of the dim order.
    std::vector<int64_t> stored(shape.size());
    std::vector<uint8_t> inverse(shape.size());
    for (size_t d = 0; d < shape.size(); ++d) {
      stored[d] = shape[tensor.dim_order()[d]];
      inverse[tensor.dim_order()[d]] = static_cast<uint8_t>(d);
    }
    const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
    const auto logical = reorder(std::vector<uint8_t>(bytes, bytes + tensor.nbytes()), stored, inverse);
    write_file(base + "-" + std::to_string(i) + ".bin", logical.data(), logical.size(), "output file");
  }
}

}  // namespace kit
