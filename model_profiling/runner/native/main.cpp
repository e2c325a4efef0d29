// The kit's runner: parse, mask features, load, warm up, serve. See options.h for its flags.
#include <signal.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "failure.h"
#include "cpu_features.h"
#include "json.h"
#include "model.h"
#include "options.h"
#include "process.h"
#include "tensors.h"

namespace kit {

// A file whose name has a comma is taken whole; otherwise commas separate files, as in executor_runner.
std::vector<std::string> input_files(const std::vector<std::string>& given) {
  std::vector<std::string> files;
  for (const std::string& value : given) {
    if (::access(value.c_str(), F_OK) == 0) files.push_back(value);
    else
      for (const auto& part : split(value, ',')) files.push_back(part);
  }
  return files;
}

int64_t total_nonfinite(const std::vector<Description>& outputs) {
  int64_t total = 0;
  for (const Description& output : outputs) total += output.nonfinite;
  return total;
}

// The threads of this process, and the CPUs they may run on (0: not known).
struct Threads {
  int64_t count;
  int64_t cpus;
  bool several() const { return count > 1; }
  bool crowded() const { return cpus > 0 && count > cpus; }
};

// How long this thread has been computing: what is missing from the time that passed, others had.
int64_t computed_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

// Runs `count` times and says each. Lines are held back while runs are short: whoever reads them would wake on
// another core and disturb the next run.
long take_turn(Model& model, long count, long first_index, const Threads& threads) {
  constexpr int64_t kSilence = 200000000;
  // A long run is interrupted for moments on any machine; this part of it (a fiftieth) is more than a moment.
  constexpr int64_t kNoticeable = 50;
  int64_t last_flush = now_ns();
  int64_t preempted = 0, total = 0;
  const int64_t waited = threads.several() ? waited_ns() : -1;
  for (long i = 0; i < count; ++i) {
    const long waits = voluntary_switches();
    const int64_t computed = computed_ns(), written = tracer_clock.written();
    const int64_t took = model.run();
    const int64_t lost = took - (computed_ns() - computed);
    total += took;
    // One thread alone loses time to others; one that waits for the rest of its process does not, and below is asked.
    preempted += lost > took / kNoticeable && (threads.several() || voluntary_switches() == waits);
    const int64_t ns = took - (tracer_clock.written() - written);  // as the trace has it
    Line("run").add("index", static_cast<int64_t>(first_index + i)).add("ns", ns).print();
    if (now_ns() - last_flush > kSilence) {
      std::fflush(stdout);
      last_flush = now_ns();
    }
  }
  // A thread that waits for the others of its process has lost time to nobody else.
  if (waited >= 0 && (waited_ns() - waited) * kNoticeable < total) preempted = 0;
  // Where threads are more than CPUs, nobody can tell others from the threads of this process.
  if (threads.crowded()) preempted = 0;
  const auto outputs = describe_outputs(model.outputs());
  Line("turn")
      .add("runs", static_cast<int64_t>(count))
      .add("nonfinite", total_nonfinite(outputs))
      .add("preempted", preempted)
      .add("resident", memory_now().resident)
      .print();
  std::fflush(stdout);
  return first_index + count;
}

// Executes once with other inputs and writes the outputs, which are there when it is said.
void predict(Model& model, const std::vector<std::string>& files, const std::string& output_base) {
  if (output_base.empty()) throw Failure(Exit::USAGE, "`inputs` needs --output_file; see --help");
  model.take_inputs(files);
  model.run();
  write_outputs(model.outputs(), output_base);
  Line("predicted").add("outputs", describe_outputs(model.outputs())).print();
  std::fflush(stdout);
}

long serve_turns(Model& model, const Threads& threads, const std::string& output_base) {
  long index = 0;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "quit") break;
    const std::string word = line.substr(0, line.find(' '));
    if (word == "inputs") {
      // Names of files may have spaces.
      predict(model, split(line.substr(std::min(line.size(), word.size() + 1)), '\t'), output_base);
      continue;
    }
    if (word != "run" && word != "settle")
      throw Failure(Exit::USAGE,
                    "expected `settle N`, `run N`, `inputs FILE` or `quit` on standard input, not '" + line + "'");
    const long count = parse_count(word, line.substr(std::min(line.size(), word.size() + 1)), 1);
    if (word == "run") {
      index = take_turn(model, count, index, threads);
    } else {
      // Nothing is said of these: `run` follows at once, and the processor is never idle in between.
      for (long i = 0; i < count; ++i) model.run();
      index += count;
    }
  }
  return index;
}

// Whoever paces this process reads its answers: without them it has no reason to go on, in the middle of a turn either.
void end_with_parent() {
#ifdef __linux__
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(static_cast<int>(Exit::USAGE));
#endif
}

// `born_ns` is when the system started this process, on the clock of now_ns().
int run(Options options, int64_t born_ns) {
  if (options.help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (options.paced) end_with_parent();
  const FeatureReport features = mask_features(options.disable_features);
  features.print();
  if (options.list_features) return 0;
  if (options.model_path.empty() && !options.list_operators)
    throw Failure(Exit::USAGE, "--model_path is needed; see --help");
  if (!options.fill.empty() && options.tokens.empty()) throw Failure(Exit::USAGE, "--fill needs --tokens; see --help");
  if (options.score > 0 && options.tokens.empty()) throw Failure(Exit::USAGE, "--score needs --tokens; see --help");

  find_kernel_trace();
  executorch::runtime::runtime_init();
  auto pal = executorch::runtime::PalImpl::create(keep_log, __FILE__);
  pal.ticks_to_ns_multiplier = ticks_to_ns;
  executorch::runtime::register_pal(pal);
  load_xnnpack(options.backend_library.empty() ? kBackendLibrary : options.backend_library);
  load_operators(options.operator_libraries);
  if (options.list_operators) {
    Line("operators").add("names", registered_operators()).print();
    return 0;
  }
  const XnnpackOptions xnnpack = set_xnnpack_options(options);
  const Threads threads{static_cast<int64_t>(set_threads(options.cpu_threads)), allowed_cpus()};

  options.inputs = input_files(options.inputs);
  const int64_t cached = cached_percent(options.model_path, options.drop_cache);
  const Memory before = memory_now();
  const int64_t load_start = now_ns();
  Model model(options);
  const int64_t loaded_at = now_ns();
  const Memory loaded = memory_now();

  const int64_t filled = model.fill(options.fill);

  std::vector<int64_t> warmup;
  int64_t first_result = 0;
  Memory first;
  for (long i = 0; i < options.warmup; ++i) {
    warmup.push_back(model.run());
    if (i > 0) continue;
    first_result = now_ns();
    first = memory_now();
  }
  const int64_t warm = options.warmup > 0 ? memory_now().resident : 0;
  model.forget_trace();
  const bool stops = TracerClock::kSupported && !threads.several();
  if (!options.etdump_path.empty()) tracer_clock.start(stops);
  Line("ready")
      .add("method", options.method_name)
      .add("threads", threads.count)
      .add("load_ns", loaded_at - load_start)
      .add("warmup_ns", warmup)
      .add("backends", model.backends())
      .add("inputs", model.input_descriptions())
      .add("outputs", describe_outputs(model.outputs()))
      .add("before_load_ns", load_start - born_ns)
      .add("program_ns", model.program_ns())
      .add("method_ns", model.method_ns())
      .add("first_result_ns", first_result == 0 ? 0 : first_result - born_ns)
      .add("cached_percent", cached)
      .add("resident_before", before.resident)
      .add("resident_loaded", loaded.resident)
      .add("resident_first", first.resident)
      .add("resident_warm", warm)
      .add("anonymous_before", before.anonymous)
      .add("anonymous_loaded", loaded.anonymous)
      .add("anonymous_first", first.anonymous)
      .add("workspace", xnnpack.workspace)
      .add("weight_cache", xnnpack.weight_cache)
      .add("cpus", threads.cpus)
      .add("stops_clock", static_cast<int64_t>(stops))
      .add("filled", filled)
      .print();
  std::fflush(stdout);

  long runs = 0;
  if (options.paced) runs = serve_turns(model, threads, options.output_file);
  else if (options.num_executions > 0) runs = take_turn(model, options.num_executions, 0, threads);

  const double surprise = options.score > 0 ? model.surprise(options.score) : 0;
  if (runs > 0) model.write_etdump(options.etdump_path);
  if (!options.output_file.empty()) model.end_at_last_step();
  const auto outputs = describe_outputs(model.outputs());
  const int64_t bad = total_nonfinite(outputs);
  if (bad > 0)
    std::fprintf(stderr, "warning: the outputs hold %lld values that are NaN or Inf\n", static_cast<long long>(bad));
  if (!options.output_file.empty()) write_outputs(model.outputs(), options.output_file);
  Line("done")
      .add("runs", static_cast<int64_t>(runs))
      .add("outputs", outputs)
      .add("resident", memory_now().resident)
      .add("peak", peak_memory())
      .add("life_ns", now_ns() - born_ns)
      .add("surprise", surprise)
      .add("scored", static_cast<int64_t>(options.score > 0 ? options.score - 1 : 0))
      .print();
  return 0;
}

}  // namespace kit

int main(int argc, char** argv) {
  const int64_t born_ns = kit::born_ns();
  try {
    return kit::run(kit::parse_options(argc, argv), born_ns);
  } catch (const kit::Failure& failure) {
    std::fflush(stdout);
    std::fprintf(stderr, "error: %s\n", failure.what());
    return static_cast<int>(failure.code);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(kit::Exit::LOAD_FAILED);
  }
}
