// Command line: executor_runner's flag names, plus the kit's own. `--flag=value` and `--flag value` are the same.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "failure.h"

namespace kit {

// Executions that come before all others, to fill a cache: `count` times `size` tokens.
struct Fill {
  std::string method;
  long size;
  long count;
};

struct Options {
  std::string model_path;
  std::string data_path;
  std::string method_name = "forward";
  std::vector<std::string> operator_libraries;
  std::vector<std::string> inputs;
  // Of a program that reads a sequence step by step: see sequence.h.
  std::string tokens;
  std::vector<Fill> fill;
  long position = 0;
  long step = 1;
  long steps = 1;
  long score = 0;
  std::string output_file;
  std::string etdump_path;
  std::string backend_library;
  std::vector<std::string> disable_features;
  long num_executions = 1;
  long warmup = 0;
  long cpu_threads = -1;
  std::string workspace;
  std::string weight_cache;
  bool drop_cache = false;
  bool paced = false;
  bool list_features = false;
  bool list_operators = false;
  bool help = false;
};

constexpr const char* kUsage =
    "Runs an ExecuTorch program and times it. Says one JSON line per event on standard output.\n"
    "  --model_path FILE          the .pte to run\n"
    "  --data_path FILE           its .ptd file, if weights are stored separately\n"
    "  --method_name NAME         the method to run (default: forward)\n"
    "  --operator_library FILE    load operators from this library before the model; may be repeated\n"
    "  --inputs FILE[,FILE...]    one .npy (type and shape are checked) or raw .bin (size is checked) per input;\n"
    "                             may be repeated; without it every input is all ones\n"
    "  --tokens FILE              for a model that takes token ids [1, n] and their position [1] or positions [n]: a "
    ".npy of\n"
    "                             int64, the sequence that it reads, instead of --inputs\n"
    "  --fill METHOD:SIZE:COUNT   read COUNT times SIZE tokens before anything else; may be repeated\n"
    "  --position P               the first token of an execution (default: 0)\n"
    "  --step N                   tokens in an execution (default: 1)\n"
    "  --steps K                  executions take turns at K positions, P to P + K - 1; outputs are the last one's "
    "(default: 1)\n"
    "  --output_file BASE         write the outputs of the last run as BASE-<index>.bin\n"
    "  --score N                  read N tokens one by one and say how well each predicts the next (perplexity)\n"
    "  --num_executions N         timed runs (default: 1)\n"
    "  --warmup N                 warm-up runs before them (default: 0)\n"
    "  --cpu_threads N            number of threads (default: chosen by ExecuTorch)\n"
    "  --workspace HOW            XNNPACK's memory for intermediate values: disabled (each delegate has its own), "
    "model (one for\n"
    "                             those of a program) or global (default: chosen by ExecuTorch)\n"
    "  --weight_cache on|off      whether delegates share packed weights (default: chosen by ExecuTorch)\n"
    "  --drop_cache               drop the model from the system's page cache before it is loaded, where that is "
    "possible\n"
    "  --etdump_path FILE         attach the event tracer and write an ETDump (default: no tracer)\n"
    "  --disable_features A[,B]   CPU features to mask, with all features that depend on them\n"
    "  --list_features            print the features of this CPU and exit\n"
    "  --list_operators           print the operators that this runner has and exit\n"
    "  --paced                    load, warm up, then read lines from standard input until `quit` or end of file: `run "
    "N`,\n"
    "                             `settle N` for executions that nothing is said of, and `inputs FILE[<tab>FILE...]` "
    "for one\n"
    "                             that takes these files and writes its outputs to --output_file\n"
    "  --backend_library FILE     the XNNPACK backend to load, if not the one this runner was built against\n";

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

inline long parse_count(const std::string& flag, const std::string& value, long least) {
  errno = 0;
  char* end = nullptr;
  const long number = std::strtol(value.c_str(), &end, 10);
  if (value.empty() || *end != '\0' || errno != 0 || number < least || number > 1000000000) {
    throw Failure(Exit::USAGE,
                  "--" + flag + " takes a whole number of at least " + std::to_string(least) + ", not '" + value + "'");
  }
  return number;
}

inline Fill parse_fill(const std::string& value) {
  const size_t last = value.rfind(':');
  const size_t first = last == std::string::npos || last == 0 ? std::string::npos : value.rfind(':', last - 1);
  if (first == std::string::npos || first == 0)
    throw Failure(Exit::USAGE, "--fill takes METHOD:SIZE:COUNT, not '" + value + "'");
  return {value.substr(0, first), parse_count("fill", value.substr(first + 1, last - first - 1), 1),
          parse_count("fill", value.substr(last + 1), 1)};
}

inline std::string one_of(const std::string& flag, const std::string& value, const std::vector<std::string>& known) {
  std::string all;
  for (const auto& name : known) {
    if (name == value) return value;
    all += (all.empty() ? "" : ", ") + name;
  }
  throw Failure(Exit::USAGE, "--" + flag + " takes one of " + all + ", not '" + value + "'");
}

inline Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t dashes = argument.rfind("--", 0) == 0 ? 2 : argument.rfind('-', 0) == 0 ? 1 : 0;
    if (dashes == 0) throw Failure(Exit::USAGE, "unexpected argument '" + argument + "'; see --help");
    const size_t equals = argument.find('=');
    const std::string flag = argument.substr(dashes, equals == std::string::npos ? equals : equals - dashes);
    if (flag == "help") {
      options.help = true;
      continue;
    }
    if (flag == "paced") {
      options.paced = true;
      continue;
    }
    if (flag == "drop_cache") {
      options.drop_cache = true;
      continue;
    }
    if (flag == "list_features") {
      options.list_features = true;
      continue;
    }
    if (flag == "list_operators") {
      options.list_operators = true;
      continue;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      throw Failure(Exit::USAGE, "--" + flag + " takes a value; see --help");
    }
    if (flag == "model_path") options.model_path = value;
    else if (flag == "data_path") options.data_path = value;
    else if (flag == "method_name") options.method_name = value;
    else if (flag == "operator_library") options.operator_libraries.push_back(value);
    else if (flag == "tokens") options.tokens = value;
    else if (flag == "fill") options.fill.push_back(parse_fill(value));
    else if (flag == "position") options.position = parse_count(flag, value, 0);
    else if (flag == "step") options.step = parse_count(flag, value, 1);
    else if (flag == "score") options.score = parse_count(flag, value, 2);
    else if (flag == "steps") options.steps = parse_count(flag, value, 1);
    else if (flag == "inputs") options.inputs.push_back(value);
    else if (flag == "output_file") options.output_file = value;
    else if (flag == "etdump_path") options.etdump_path = value;
    else if (flag == "backend_library") options.backend_library = value;
    else if (flag == "workspace") options.workspace = one_of(flag, value, {"disabled", "model", "global"});
    else if (flag == "weight_cache") options.weight_cache = one_of(flag, value, {"off", "on"});
    else if (flag == "disable_features")
      for (auto& name : split(value, ',')) options.disable_features.push_back(name);
    else if (flag == "num_executions") options.num_executions = parse_count(flag, value, 0);
    else if (flag == "warmup") options.warmup = parse_count(flag, value, 0);
    else if (flag == "cpu_threads") options.cpu_threads = value == "-1" ? -1 : parse_count(flag, value, 1);
    else throw Failure(Exit::USAGE, "unknown flag '--" + flag + "'; see --help");
  }
  return options;
}

}  // namespace kit
