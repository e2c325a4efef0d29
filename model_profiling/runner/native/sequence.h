// A sequence of tokens, and the inputs of a method that reads a part of it: token ids [1, n], and the position of the
// first of them [1] or of each [n].
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>
#include <numeric>
#include <string>
#include <vector>

#include "failure.h"
#include "tensors.h"

namespace kit {

// Steps take turns in an order in which any few of them are spread over all; the last step comes first.
inline size_t turn_order(size_t turn, size_t steps) {
  size_t stride = steps * 5 / 8 + 1;
  while (std::gcd(stride, steps) != 1) ++stride;
  return steps - 1 - turn * stride % steps;
}

// What a language model says of its last token, [vocabulary] of [1, vocabulary] or [1, tokens, vocabulary].
inline std::vector<double> last_row(const std::vector<EValue>& outputs) {
  if (outputs.empty() || !outputs[0].isTensor() || outputs[0].toTensor().dim() < 1)
    throw Failure(Exit::INPUTS_WRONG, "--score is for a model whose first output is logits");
  const auto tensor = outputs[0].toTensor();
  const size_t width = static_cast<size_t>(tensor.size(tensor.dim() - 1)),
               first = static_cast<size_t>(tensor.numel()) - width;
  std::vector<double> row(width);
  for (size_t i = 0; i < width; ++i) {
    if (tensor.scalar_type() == ScalarType::Float) row[i] = tensor.const_data_ptr<float>()[first + i];
    else if (tensor.scalar_type() == ScalarType::Half)
      row[i] = static_cast<float>(tensor.const_data_ptr<executorch::aten::Half>()[first + i]);
    else throw Failure(Exit::INPUTS_WRONG, "--score is for a model whose logits are float32 or float16");
  }
  return row;
}

inline double negative_log_likelihood(const std::vector<double>& logits, int64_t token) {
  if (token < 0 || token >= static_cast<int64_t>(logits.size()))
    throw Failure(Exit::INPUTS_WRONG, "the model has no token " + std::to_string(token));
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double value : logits) sum += std::exp(value - most);
  return std::log(sum) + most - logits[token];
}

// No context is as long as this.
constexpr size_t kLongestTokenFile = size_t{1} << 30;

class Sequence {
 public:
  explicit Sequence(const std::string& file) {
    const std::vector<uint8_t> bytes = read_file(file, Exit::INPUTS_WRONG, "token file", kLongestTokenFile);
    const Npy npy = parse_npy(bytes, file);
    if (npy.dtype != "<i8" || npy.shape.size() != 1) {
      throw Failure(Exit::INPUTS_WRONG, "token file '" + file + "' must hold int64 of one dimension, not " + npy.dtype +
                                            shape_text(npy.shape));
    }
    tokens_.resize((bytes.size() - npy.data_offset) / sizeof(int64_t));
    const bool whole = (bytes.size() - npy.data_offset) % sizeof(int64_t) == 0;
    if (!whole || npy.shape[0] != static_cast<int64_t>(tokens_.size()))
      throw Failure(Exit::INPUTS_WRONG, "token file '" + file + "' is truncated");
    std::memcpy(tokens_.data(), bytes.data() + npy.data_offset, tokens_.size() * sizeof(int64_t));
  }

  int64_t token(long index) const { return tokens_.at(static_cast<size_t>(index)); }

  // What the method takes for `count` tokens from `first` on.
  std::vector<EValue> inputs(const MethodMeta& meta, long first, long count) const {
    if (first + count > static_cast<long>(tokens_.size())) {
      throw Failure(Exit::INPUTS_WRONG, "the sequence has " + std::to_string(tokens_.size()) + " tokens, and token " +
                                            std::to_string(first + count - 1) + " is asked for");
    }
    std::vector<int64_t> positions(count);
    std::iota(positions.begin(), positions.end(), first);
    const auto ids = signature(meta, 0, 2), where = signature(meta, 1, 1);
    // Where the largest size is that of the tokens, each has its position.
    if (where.size() == 1 && where[0] != ids[1]) positions.resize(1);
    return {tensor(meta, 0, {1, static_cast<int>(count)}, {tokens_.begin() + first, tokens_.begin() + first + count}),
            tensor(meta, 1, where.empty() ? std::vector<int>{} : std::vector<int>{static_cast<int>(positions.size())},
                   positions)};
  }

 private:
  static std::vector<int64_t> signature(const MethodMeta& meta, size_t index, size_t rank) {
    const auto info =
        meta.num_inputs() == 2
            ? meta.input_tensor_meta(index)
            : executorch::runtime::Result<executorch::runtime::TensorInfo>(executorch::runtime::Error::InvalidArgument);
    const bool whole = info.ok() && (info->scalar_type() == ScalarType::Long || info->scalar_type() == ScalarType::Int);
    if (!whole || info->sizes().size() > rank || (rank == 2 && info->sizes().size() != 2)) {
      throw Failure(Exit::INPUTS_WRONG,
                    "--tokens is for a model that takes token ids [1, n] and their positions, which this one does not");
    }
    return {info->sizes().begin(), info->sizes().end()};
  }

  EValue tensor(const MethodMeta& meta, size_t index, std::vector<int> sizes,
                const std::vector<int64_t>& values) const {
    if (meta.input_tensor_meta(index)->scalar_type() == ScalarType::Int) {
      kept_.push_back(
          executorch::extension::make_tensor_ptr(std::move(sizes), std::vector<int32_t>(values.begin(), values.end())));
    } else {
      kept_.push_back(executorch::extension::make_tensor_ptr(std::move(sizes), values));
    }
    return EValue(kept_.back());
  }

  std::vector<int64_t> tokens_;
  mutable std::list<TensorPtr> kept_;
};

}  // namespace kit
