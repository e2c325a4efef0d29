// Tensors in and out: inputs from .npy or raw files checked against the signature, outputs examined and saved.
#pragma once

#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/executor/method_meta.h>

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
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
    {ScalarType::Float, "float32", "<f4"},  {ScalarType::Half, "float16", "<f2"},
    {ScalarType::Double, "float64", "<f8"}, {ScalarType::Char, "int8", "|i1"},
    {ScalarType::Byte, "uint8", "|u1"},     {ScalarType::Short, "int16", "<i2"},
    {ScalarType::Int, "int32", "<i4"},      {ScalarType::Long, "int64", "<i8"},
    {ScalarType::Bool, "bool", "|b1"},      {ScalarType::BFloat16, "bfloat16", "(none)"},
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

// A FIFO would block and a device never end, so nothing but a file is opened.
inline size_t file_size(const std::string& path, Exit code, const std::string& what) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0)
    throw Failure(code, what + " '" + path + "' cannot be read: " + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw Failure(code, what + " '" + path + "' cannot be read: it is not a file");
  return static_cast<size_t>(status.st_size);
}

// The first `most` bytes of a file.
inline std::vector<uint8_t> read_file(const std::string& path, Exit code, const std::string& what, size_t most) {
  std::vector<uint8_t> bytes(std::min(file_size(path, code, what), most));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Failure(code, what + " '" + path + "' cannot be read: " + std::strerror(errno));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

// A .npy file: version 1 to 3, C order. Only what is needed to hold it against a signature is parsed.
struct Npy {
  std::string dtype;
  std::vector<int64_t> shape;
  size_t data_offset;
};

constexpr size_t kLongestNpyHeader = 10000;
constexpr size_t kLongestNpyStart = 12 + kLongestNpyHeader;

// The header of a .npy: a Python dictionary of three keys, each once, and no other Python (base/npy.py reads the same).
class NpyHeader {
 public:
  std::string descr, fortran_order;
  std::vector<int64_t> shape;

  // Whether the text is such a header.
  bool parse(const std::string& text) {
    text_ = text;
    if (text_.empty() || text_[0] != '{') return false;
    at_ = 1;
    bool has_shape = false;
    while (!take('}')) {
      std::string key;
      if (!quoted(key) || !take(':')) return false;
      if (key == "descr" && descr.empty()                   ? !quoted(descr) || descr.empty()
          : key == "fortran_order" && fortran_order.empty() ? !word(fortran_order)
          : key == "shape" && !has_shape                    ? !(has_shape = sizes())
                                                            : true) {
        return false;
      }
      if (!take(',') && !(at_ < text_.size() && text_[at_] == '}')) return false;
    }
    spaces();
    return at_ == text_.size() && !descr.empty() && !fortran_order.empty() && has_shape;
  }

 private:
  void spaces() { at_ = std::min(text_.find_first_not_of(" \t\n\v\f\r", at_), text_.size()); }

  bool take(char wanted) {
    spaces();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  bool quoted(std::string& value) {
    if (!take('\'')) return false;
    const size_t end = text_.find('\'', at_);
    if (end == std::string::npos) return false;
    value = text_.substr(at_, end - at_);
    at_ = end + 1;
    return true;
  }

  bool word(std::string& value) {
    spaces();
    for (const char* known : {"True", "False"}) {
      if (text_.compare(at_, std::strlen(known), known) == 0) value = known;
    }
    at_ += value.size();
    spaces();
    return !value.empty();
  }

  bool sizes() {
    if (!take('(')) return false;
    bool comma = true;
    while (!take(')')) {
      const size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
      if (!comma || end == at_ || end - at_ > 18) return false;
      shape.push_back(std::strtoll(text_.substr(at_, end - at_).c_str(), nullptr, 10));
      at_ = end;
      comma = take(',');
    }
    // Without a comma, one size in parentheses is a number.
    return shape.size() != 1 || comma;
  }

  std::string text_;
  size_t at_ = 0;
};

inline Npy parse_npy(const std::vector<uint8_t>& bytes, const std::string& path) {
  const auto broken = [&](const char* why) {
    return Failure(Exit::INPUTS_WRONG, "input file '" + path + "' is not a usable .npy: " + why);
  };
  if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0) throw broken("bad magic");
  if (bytes[6] < 1 || bytes[6] > 3) throw broken("unknown version");
  const size_t prefix = bytes[6] == 1 ? 10 : 12;
  if (bytes.size() < prefix) throw broken("truncated header");
  size_t length = bytes[8] | bytes[9] << 8;
  if (prefix == 12) length |= static_cast<size_t>(bytes[10]) << 16 | static_cast<size_t>(bytes[11]) << 24;
  if (length > kLongestNpyHeader) throw broken("its header is too long");
  if (bytes.size() < prefix + length) throw broken("truncated header");
  NpyHeader header;
  if (!header.parse(std::string(bytes.begin() + prefix, bytes.begin() + prefix + length)))
    throw broken("its header is not that of an array of numbers");
  if (header.fortran_order != "False") throw broken("it is in Fortran order; save it in C order");
  return Npy{header.descr, header.shape, prefix + length};
}

// Reorders C-order data into the storage order a dim order asks for (channels last is 0, 2, 3, 1).
inline std::vector<uint8_t> reorder(const std::vector<uint8_t>& data, const std::vector<int64_t>& shape,
                                    const std::vector<uint8_t>& dim_order) {
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
  Inputs(const MethodMeta& meta, const std::vector<std::string>& files, const std::vector<bool>& dynamic)
      : dynamic_(dynamic) {
    if (!files.empty() && files.size() != meta.num_inputs()) {
      throw Failure(Exit::INPUTS_WRONG, "the model takes " + std::to_string(meta.num_inputs()) + " inputs but " +
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
    if (!file.empty())
      throw Failure(Exit::INPUTS_WRONG,
                    "input " + std::to_string(index) + " is not a tensor; it cannot be read from a file");
    if (*tag == Tag::Int) values_.emplace_back(static_cast<int64_t>(1));
    else if (*tag == Tag::Double) values_.emplace_back(1.0);
    else if (*tag == Tag::Bool) values_.emplace_back(true);
    else if (*tag == Tag::None) values_.emplace_back();
    else throw Failure(Exit::INPUTS_WRONG, "input " + std::to_string(index) + " has a type this runner cannot make");
    descriptions_.push_back({{}, "scalar"});
  }

  void add_tensor(const MethodMeta& meta, size_t index, const std::string& file) {
    const auto info = meta.input_tensor_meta(index);
    if (!info.ok())
      throw Failure(Exit::MODEL_INVALID, "input " + std::to_string(index) + " of the model has no signature");
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
  std::vector<uint8_t> load(const std::string& file, size_t index, Description& wanted,
                            const std::vector<uint8_t>& dim_order, ScalarType type, size_t nbytes) const {
    const std::string most = index < dynamic_.size() && dynamic_[index] ? " or smaller" : "";
    const std::string which =
        "input " + std::to_string(index) + " of the model is " + wanted.dtype + shape_text(wanted.shape) + most;
    const bool is_npy = file.size() > 4 && file.compare(file.size() - 4, 4, ".npy") == 0;
    if (!is_npy) {
      const size_t size = file_size(file, Exit::INPUTS_WRONG, "input file");
      if (size != nbytes) {
        throw Failure(Exit::INPUTS_WRONG, which + ", which is " + std::to_string(nbytes) + " bytes, but '" + file +
                                              "' has " + std::to_string(size));
      }
      std::vector<uint8_t> bytes = read_file(file, Exit::INPUTS_WRONG, "input file", nbytes);
      if (bytes.size() != nbytes) throw Failure(Exit::INPUTS_WRONG, "input file '" + file + "' is truncated");
      return bytes;
    }
    // A byte more than the largest that fits tells one that is too long.
    std::vector<uint8_t> bytes = read_file(file, Exit::INPUTS_WRONG, "input file", kLongestNpyStart + nbytes + 1);
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
    if (bytes.size() < nbytes) throw Failure(Exit::INPUTS_WRONG, "input file '" + file + "' is truncated");
    if (bytes.size() > nbytes)
      throw Failure(Exit::INPUTS_WRONG, "input file '" + file + "' has more values than its shape");
    return reorder(bytes, wanted.shape, dim_order);
  }

  void keep(const std::vector<executorch::aten::SizesType>& sizes, std::vector<uint8_t> data,
            const std::vector<uint8_t>& dim_order, ScalarType type) {
    tensors_.push_back(executorch::extension::make_tensor_ptr(
        sizes, std::move(data), std::vector<executorch::aten::DimOrderType>(dim_order.begin(), dim_order.end()), {},
        type));
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
    case ScalarType::Float:
      return count_exponent_ones<uint32_t>(data, count, 0x7f800000u);
    case ScalarType::Double:
      return count_exponent_ones<uint64_t>(data, count, 0x7ff0000000000000ull);
    case ScalarType::Half:
      return count_exponent_ones<uint16_t>(data, count, 0x7c00);
    case ScalarType::BFloat16:
      return count_exponent_ones<uint16_t>(data, count, 0x7f80);
    default:
      return 0;
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
    all.push_back(
        {{tensor.sizes().begin(), tensor.sizes().end()}, dtype_name(tensor.scalar_type()), count_nonfinite(tensor)});
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
