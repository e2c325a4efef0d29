// What the runner adds to an inference: its own loop beside a bare Module::forward loop, in turns, in one process.
// Usage: runner_overhead MODEL.pte PAIRS RUNS, prints one JSON line with the medians of both.
#include <executorch/extension/module/module.h>

#include <algorithm>

#include "cpu_features.h"
#include "model.h"

using kit::now_ns;

static double median(std::vector<int64_t> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return static_cast<double>(values[values.size() / 2]);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  kit::Options options;
  options.model_path = argv[1];
  const int pairs = std::atoi(argv[2]), runs = std::atoi(argv[3]);
  kit::mask_features({});
  kit::load_xnnpack(kit::kBackendLibrary);
  kit::set_threads(1);
  kit::Model ours(options);
  executorch::extension::Module bare(options.model_path, executorch::extension::Module::LoadMode::Mmap);
  const kit::Inputs inputs(*bare.method_meta("forward"), {});
  std::vector<int64_t> runner_ns, bare_ns;
  for (int pair = 0; pair < pairs; ++pair) {
    for (const bool is_ours : {pair % 2 == 0, pair % 2 != 0}) {
      // A loop's time is taken as a whole, so that reading the clock inside it counts as the overhead it is.
      (void)(is_ours ? (ours.run(), 0) : (bare.forward(inputs.values()).ok(), 0));
      const int64_t start = now_ns();
      for (int i = 0; i < runs; ++i) {
        if (is_ours) ours.run();
        else if (!bare.forward(inputs.values()).ok()) return 3;
      }
      (is_ours ? runner_ns : bare_ns).push_back((now_ns() - start) / runs);
    }
  }
  std::printf("{\"runner_ns\":%.0f,\"bare_ns\":%.0f}\n", median(runner_ns), median(bare_ns));
}
