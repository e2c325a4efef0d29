// Which CPU features kernels may use. XNNPACK reads cpuinfo's table `cpuinfo_isa` once, when its library is loaded;
// what is cleared there before that is a feature it does not see. The table's layout is private to cpuinfo, so it is
// proven against an independent source first. On Arm Linux that source is also where cpuinfo fills the table from: what
// is to be masked is hidden there, and each byte must then say what is left. Elsewhere only presence is proven: of two
// features that are both present, or both not, it is not known that each has its own byte.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "failure.h"
#include "feature_source.h"
#include "json.h"
#include "options.h"
#include "private_symbols.h"

namespace kit {

inline bool in_table(const Feature& feature) { return cpuinfo_isa[feature.offset] != 0; }

// The table must say what the independent source says, without the features that were `hidden` from cpuinfo. Returns
// what speaks against it; empty if nothing does.
inline std::string table_problem(const std::vector<bool>& hidden) {
  if (*kUnproven) return kUnproven;
  for (const Feature& feature : kFeatures) {
    const Known known = hidden[&feature - kFeatures] ? Known::no : independently_known(feature);
    const bool table = in_table(feature);
    const bool too_much = table && known == Known::no && feature.agreement != Agreement::AT_LEAST;
    const bool too_little = !table && known == Known::yes && feature.agreement != Agreement::AT_MOST;
    if (cpuinfo_isa[feature.offset] > 1 || too_much || too_little) {
      return std::string("the CPU feature table of this ExecuTorch is not laid out as expected: it says ") +
             (table ? "yes" : "no") + " to '" + feature.name + "' where " + kProof + " says " +
             (known == Known::yes ? "yes" : "no");
    }
  }
  return "";
}

inline const Feature& find_feature(const std::string& name) {
  std::string target = name;
  for (const auto& alias : kAliases) {
    if (name == alias.name) target = alias.feature;
  }
  for (const Feature& feature : kFeatures) {
    if (target == feature.name) return feature;
  }
  std::string known;
  for (const Feature& feature : kFeatures) known += std::string(known.empty() ? "" : " ") + feature.name;
  for (const auto& alias : kAliases) known += std::string(" ") + alias.name;
  throw Failure(Exit::UNKNOWN_FEATURE, "unknown CPU feature '" + name + "'; this CPU architecture has: " + known);
}

struct FeatureReport {
  std::string proof, unproven;
  std::vector<std::string> present, disabled, absent, active;

  void print() const {
    Line("features")
        .add("arch", std::string(kArch))
        .add("proof", proof)
        .add("unproven", unproven)
        .add("present", present)
        .add("disabled", disabled)
        .add("absent", absent)
        .add("active", active)
        .print();
    for (const auto& name : absent)
      std::fprintf(stderr, "note: this CPU does not have '%s'; nothing to disable\n", name.c_str());
  }
};

// The named features and whatever builds on them.
inline std::vector<bool> with_dependents(const std::vector<std::string>& names) {
  constexpr size_t count = sizeof kFeatures / sizeof *kFeatures;
  std::vector<bool> gone(count, false);
  for (const std::string& name : names) gone[&find_feature(name) - kFeatures] = true;
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < count; ++i) {
      for (const int parent : kFeatures[i].requires_) {
        if (parent >= 0 && gone[parent] && !gone[i]) gone[i] = more = true;
      }
    }
  }
  return gone;
}

// Masks the named features and whatever builds on them; says what was there, what went, and what never was.
inline FeatureReport mask_features(const std::vector<std::string>& names) {
  const std::vector<bool> gone = with_dependents(names);
  const bool hidden = initialize_without(gone);
  FeatureReport report;
  report.unproven = table_problem(hidden ? gone : std::vector<bool>(gone.size(), false));
  if (!report.unproven.empty()) {
    // The program runs as it would without us; what it runs with is not known.
    if (names.empty()) return report;
    throw Failure(Exit::FEATURES_UNPROVEN, report.unproven + "; features cannot be masked safely");
  }
  report.proof = std::string(kProof) + (hidden ? ", masked where cpuinfo reads it" : ", presence only");
  const auto present = [&](const Feature& feature) {
    return in_table(feature) || (hidden && gone[&feature - kFeatures] && independently_known(feature) == Known::yes);
  };
  for (const std::string& name : names) {
    if (!present(find_feature(name))) report.absent.push_back(name);
  }
  for (const Feature& feature : kFeatures) {
    if (!present(feature)) continue;
    const bool masked = gone[&feature - kFeatures];
    report.present.push_back(feature.name);
    (masked ? report.disabled : report.active).push_back(feature.name);
    // What was not hidden, or what cpuinfo believes of this core whatever HWCAP says.
    if (masked) cpuinfo_isa[feature.offset] = 0;
  }
  return report;
}

}  // namespace kit
