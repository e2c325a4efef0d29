// A program loaded through ExecuTorch's Module: every way that can fail is told apart and named.
#pragma once

#include <dlfcn.h>
#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "failure.h"
#include "options.h"
#include "private_symbols.h"
#include "process.h"
#include "sequence.h"
#include "tensors.h"

namespace kit {

using executorch::etdump::ETDumpGen;
using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::Program;

// ExecuTorch says what went wrong only in its log, so the log is kept as well as printed.
inline std::vector<std::string>& error_log() {
  static std::vector<std::string> lines;
  return lines;
}

inline void keep_log(et_timestamp_t, et_pal_log_level_t level, const char* file, const char*, size_t line,
                     const char* message, size_t length) {
  const std::string text(message, length);
  if (level == et_pal_log_level_t::kError || level == et_pal_log_level_t::kFatal) error_log().push_back(text);
  std::fprintf(stderr, "%c [%s:%zu] %s\n", static_cast<char>(level), file, line, text.c_str());
}

inline std::string last_logged() { return error_log().empty() ? "no reason was given" : error_log().back(); }

inline void load_xnnpack(const std::string& library) {
  if (!dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
    throw Failure(Exit::LOAD_FAILED, std::string("the XNNPACK backend library cannot be loaded: ") + dlerror());
  }
  find_xnnpack(library);
}

// Libraries register their operators as they are loaded.
inline void load_operators(const std::vector<std::string>& libraries) {
  for (const std::string& library : libraries) {
    if (!dlopen(library.c_str(), RTLD_LAZY | RTLD_GLOBAL)) {
      throw Failure(Exit::OPERATOR_MISSING,
                    std::string("the operator library '") + library + "' cannot be loaded: " + dlerror());
    }
  }
}

// The names of all operators that have a kernel, each once: `aten::add.out`.
inline std::vector<std::string> registered_operators() {
  std::set<std::string> names;
  for (const auto& kernel : executorch::runtime::get_registered_kernels()) names.insert(kernel.name_);
  return {names.begin(), names.end()};
}

// How XNNPACK was told to load delegates; empty where it does not say.
struct XnnpackOptions {
  std::string workspace;
  std::string weight_cache;
};

// Sets what is asked for and reads what is then in force. The wheel ships the backend without its header: the names of
// the options, and what their values mean, are ExecuTorch's.
inline XnnpackOptions set_xnnpack_options(const Options& options) {
  using executorch::runtime::BackendOption;
  static constexpr char kBackend[] = "XnnpackBackend", kWorkspace[] = "workspace_sharing_mode",
                        kWeights[] = "weight_cache_enabled";
  const std::vector<std::string> modes = {"disabled", "model", "global"};
  executorch::runtime::BackendOptions<2> asked;
  auto error = Error::Ok;
  if (!options.workspace.empty()) {
    error = asked.set_option(
        kWorkspace, static_cast<int>(std::find(modes.begin(), modes.end(), options.workspace) - modes.begin()));
  }
  if (error == Error::Ok && !options.weight_cache.empty())
    error = asked.set_option(kWeights, options.weight_cache == "on");
  if (error == Error::Ok && asked.view().size() > 0) error = executorch::runtime::set_option(kBackend, asked.view());
  if (error != Error::Ok) throw Failure(Exit::LOAD_FAILED, "XNNPACK refuses these options: " + last_logged());
  BackendOption found[2];
  std::strcpy(found[0].key, kWorkspace);
  std::strcpy(found[1].key, kWeights);
  found[0].value = -1;
  found[1].value = -1;
  XnnpackOptions in_force;
  if (executorch::runtime::get_option(kBackend, executorch::runtime::Span<BackendOption>(found, 2)) != Error::Ok)
    return in_force;
  const int* const mode = std::get_if<int>(&found[0].value);
  if (mode != nullptr && *mode >= 0 && *mode < static_cast<int>(modes.size())) in_force.workspace = modes[*mode];
  const bool* const weights = std::get_if<bool>(&found[1].value);
  if (weights != nullptr) in_force.weight_cache = *weights ? "on" : "off";
  return in_force;
}

inline size_t set_threads(long wanted) {
  auto* pool = executorch::extension::threadpool::get_threadpool();
  if (pool == nullptr) throw Failure(Exit::THREADS_REFUSED, "ExecuTorch has no thread pool on this system");
  if (wanted > 0) pool->_unsafe_reset_threadpool(static_cast<uint32_t>(wanted));
  const size_t have = pool->get_thread_count();
  if (wanted > 0 && have != static_cast<size_t>(wanted)) {
    throw Failure(Exit::THREADS_REFUSED,
                  std::to_string(wanted) + " threads were asked for but the thread pool has " + std::to_string(have));
  }
  return have;
}

// The program itself is verified by ExecuTorch; this tells apart what it would all call "invalid program".
inline void check_file(const std::string& path) {
  file_size(path, Exit::MODEL_UNREADABLE, "model");
  std::ifstream file(path, std::ios::binary);
  char head[8] = {};
  if (!file) throw Failure(Exit::MODEL_UNREADABLE, "model '" + path + "' cannot be read: " + std::strerror(errno));
  file.read(head, sizeof head);
  if (file.bad()) throw Failure(Exit::MODEL_UNREADABLE, "model '" + path + "' cannot be read: " + std::strerror(errno));
  if (file.gcount() < 8)
    throw Failure(Exit::MODEL_INVALID,
                  "model '" + path + "' is not a .pte: it has only " + std::to_string(file.gcount()) + " bytes");
  if (std::memcmp(head + 4, "BP", 2) == 0)
    throw Failure(Exit::MODEL_INVALID, "model '" + path + "' is a bundled program (.bpte); export a plain .pte");
  if (std::memcmp(head + 4, "ET12", 4) != 0)
    throw Failure(Exit::MODEL_INVALID, "model '" + path + "' is not a .pte: it does not carry the identifier ET12");
}

class Model {
 public:
  explicit Model(const Options& options) : method_(options.method_name) {
    check_file(options.model_path);
    auto tracer = options.etdump_path.empty() ? nullptr : std::make_unique<ETDumpGen>();
    tracer_ = tracer.get();
    // Methods that share their state find it in each other's memory.
    bool shared = false;
    for (const Fill& fill : options.fill) shared = shared || fill.method != method_;
    constexpr auto kMode = Module::LoadMode::Mmap;
    module_ = options.data_path.empty()
                  ? std::make_unique<Module>(options.model_path, kMode, std::move(tracer), nullptr, nullptr, shared)
                  : std::make_unique<Module>(options.model_path, options.data_path, kMode, std::move(tracer), nullptr,
                                             nullptr, shared);
    load(options);
    if (!options.tokens.empty()) {
      prepare_steps(options);
      return;
    }
    take_inputs(options.inputs);
  }

  // Has what runs from now on take these files.
  void take_inputs(const std::vector<std::string>& files) {
    inputs_ = std::make_unique<Inputs>(*module_->method_meta(method_), files, dynamic_inputs());
    steps_ = {inputs_->values()};
    descriptions_ = inputs_->descriptions();
    turn_ = 0;
  }

  // Reads what comes before the steps of a sequence. Returns how many tokens that were.
  int64_t fill(const std::vector<Fill>& fills) {
    int64_t filled = 0;
    for (const Fill& fill : fills) {
      for (long i = 0; i < fill.count; ++i, filled += fill.size) {
        keep(module_->execute(fill.method, sequence_->inputs(*module_->method_meta(fill.method), filled, fill.size)));
        forget_trace();
      }
    }
    return filled;
  }

  // How surprising tokens are to the model: the sum of -log of the probability that it gave to `count` - 1 of them.
  double surprise(long count) {
    double sum = 0;
    for (long i = 0; i + 1 < count; ++i) {
      keep(module_->execute(method_, sequence_->inputs(*module_->method_meta(method_), i, 1)));
      forget_trace();
      sum += negative_log_likelihood(last_row(outputs_), sequence_->token(i + 1));
    }
    return sum;
  }

  // One execution as an application does it: inputs in, method run, outputs out. Returns its nanoseconds.
  int64_t run() {
    const auto& inputs = steps_[turn_order(turn_, steps_.size())];
    const int64_t start = now_ns();
    auto result = module_->execute(method_, inputs);
    const int64_t end = now_ns();
    keep(std::move(result));
    turn_ = (turn_ + 1) % steps_.size();
    return end - start;
  }

  // Executes the last step unless it was executed last: its outputs are those that are kept.
  void end_at_last_step() {
    if (steps_.size() == 1 || turn_ == 1) return;
    turn_ = 0;
    forget_trace();
    run();
  }

  void forget_trace() {
    if (tracer_ != nullptr) tracer_->reset();
  }

  size_t write_etdump(const std::string& path) {
    if (tracer_ == nullptr) return 0;
    const auto dump = tracer_->get_etdump_data();
    if (dump.buf == nullptr || dump.size == 0)
      throw Failure(Exit::OUTPUT_UNWRITABLE, "the tracer recorded nothing; no ETDump was written");
    write_file(path, dump.buf, dump.size, "ETDump");
    std::free(dump.buf);
    return dump.size;
  }

  const std::vector<EValue>& outputs() const { return outputs_; }
  const std::vector<Description>& input_descriptions() const { return descriptions_; }
  const std::vector<std::string>& backends() const { return backends_; }
  // How long reading and verifying the program took, and its method: memory, delegates, packing their weights.
  int64_t program_ns() const { return program_ns_; }
  int64_t method_ns() const { return method_ns_; }

 private:
  void load(const Options& options) {
    const int64_t start = now_ns();
    if (module_->load(Program::Verification::InternalConsistency) != Error::Ok) {
      throw Failure(Exit::MODEL_INVALID,
                    "model '" + options.model_path + "' is damaged or truncated: " + last_logged());
    }
    program_ns_ = now_ns() - start;
    std::vector<std::string> methods = {method_};
    for (const Fill& fill : options.fill) {
      if (std::find(methods.begin(), methods.end(), fill.method) == methods.end()) methods.push_back(fill.method);
    }
    for (const std::string& method : methods) load_method(options.model_path, method);
  }

  void load_method(const std::string& path, const std::string& method) {
    const auto meta = module_->method_meta(method);
    if (!meta.ok())
      throw Failure(Exit::USAGE,
                    "the model has no method '" + method + "'; choose one with --method: " + method_names());
    for (size_t i = 0; i < meta->num_backends(); ++i) {
      const auto name = meta->get_backend_name(i);
      if (!name.ok()) throw Failure(Exit::MODEL_INVALID, "model '" + path + "' is damaged: a delegate without a name");
      if (executorch::runtime::get_backend_class(*name) == nullptr) {
        throw Failure(Exit::BACKEND_MISSING,
                      std::string("the model needs the backend '") + *name + "', which this runner does not have");
      }
      if (std::find(backends_.begin(), backends_.end(), *name) == backends_.end()) backends_.emplace_back(*name);
    }
    const int64_t method_start = now_ns();
    const Error error = module_->load_method(method);
    method_ns_ += now_ns() - method_start;
    if (error == Error::OperatorMissing)
      throw Failure(Exit::OPERATOR_MISSING,
                    "the model needs operators this runner does not have: " + missing_operators());
    if (error == Error::Ok) return;
    const std::string why = std::string(" (") + executorch::runtime::to_string(error) + "): " + last_logged();
    if (error == Error::InvalidProgram || error == Error::DelegateInvalidCompatibility) {
      throw Failure(Exit::MODEL_INVALID, "model '" + path + "' is damaged or made for another ExecuTorch" + why);
    }
    throw Failure(Exit::LOAD_FAILED, "method '" + method + "' could not be loaded" + why);
  }

  // Which inputs may be smaller than the signature says: only the tensors themselves tell.
  std::vector<bool> dynamic_inputs() {
    const auto method = module_->method(method_);
    std::vector<bool> found;
    if (!method.ok()) return found;
    for (size_t i = 0; i < (*method)->inputs_size(); ++i) {
      const EValue& value = (*method)->get_input(i);
      found.push_back(value.isTensor() &&
                      value.toTensor().shape_dynamism() != executorch::runtime::TensorShapeDynamism::STATIC);
    }
    return found;
  }

  void prepare_steps(const Options& options) {
    sequence_ = std::make_unique<Sequence>(options.tokens);
    for (long step = 0; step < options.steps; ++step) {
      steps_.push_back(sequence_->inputs(*module_->method_meta(method_), options.position + step, options.step));
    }
    for (const EValue& value : steps_.front()) {
      const auto tensor = value.toTensor();
      descriptions_.push_back({{tensor.sizes().begin(), tensor.sizes().end()}, dtype_name(tensor.scalar_type())});
    }
  }

  void keep(executorch::runtime::Result<std::vector<EValue>> result) {
    if (!result.ok()) {
      throw Failure(Exit::EXECUTION_FAILED, std::string("execution failed (") +
                                                executorch::runtime::to_string(result.error()) + "): " + last_logged());
    }
    outputs_ = std::move(*result);
  }

  std::string method_names() {
    std::string all;
    const auto names = module_->method_names();
    if (names.ok())
      for (const auto& name : *names) all += (all.empty() ? "" : ", ") + name;
    return all;
  }

  static std::string missing_operators() {
    const std::string marker = "Missing operator: ";
    std::string names;
    for (const std::string& line : error_log()) {
      const size_t at = line.find(marker);
      if (at == std::string::npos) continue;
      const size_t name = line.find("] ", at);
      names += (names.empty() ? "" : ", ") + line.substr(name == std::string::npos ? at + marker.size() : name + 2);
    }
    return names.empty() ? last_logged() : names;
  }

  std::string method_;
  ETDumpGen* tracer_ = nullptr;  // owned by module_
  std::unique_ptr<Module> module_;
  std::unique_ptr<Inputs> inputs_;
  std::unique_ptr<Sequence> sequence_;
  // The inputs of each step, and which turn is next; what is no sequence has one.
  std::vector<std::vector<EValue>> steps_;
  size_t turn_ = 0;
  std::vector<Description> descriptions_;
  std::vector<EValue> outputs_;
  std::vector<std::string> backends_;
  int64_t program_ns_ = 0;
  int64_t method_ns_ = 0;
};

}  // namespace kit
