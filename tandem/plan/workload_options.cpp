// SPDX-License-Identifier: Apache-2.0
// The names that options of a workload have: precisions, frameworks, forms of attention.
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/plan/asked.h"
#include "tandem/plan/names_internal.h"
#include "tandem/plan/workload.h"

namespace tandem::plan {

Framework framework_of(const std::string& name) {
  return one_of(name, "--framework", {"tandem", "pytorch"}) == "pytorch" ? Framework::pytorch
                                                                         : Framework::tandem;
}
const char* to_string(Framework f) { return f == Framework::pytorch ? "pytorch" : "tandem"; }
AttentionForm attention_form_of(const std::string& name) {
  const std::string form = one_of(name, "--attention", {"auto", "fused", "composed"});
  return form == "fused"      ? AttentionForm::fused
         : form == "composed" ? AttentionForm::composed
                              : AttentionForm::usual;
}
const char* to_string(AttentionForm f) {
  static const char* const kNames[] = {"auto", "fused", "composed"};
  return kNames[static_cast<int>(f)];
}
Precision precision_of(const std::string& name) {
  static const std::vector<std::pair<std::string, Precision>> kAll = {
      {"f32", Precision::f32},
      {"fp32", Precision::f32},
      {"tf32", Precision::tf32},
      {"bf16", Precision::amp_bf16},
      {"amp", Precision::amp_bf16},
      {"amp_bf16", Precision::amp_bf16},
      {"f16", Precision::amp_f16},
      {"fp16", Precision::amp_f16},
      {"pure-bf16", Precision::pure_bf16},
      {"pure-f16", Precision::pure_f16},
      {"mixed-bf16", Precision::mixed_bf16}};
  std::vector<std::string> names;
  for (const auto& [n, p] : kAll) {
    if (n == name) return p;
    names.push_back(n);
  }
  TD_FAIL(Value,
          "there is no precision '{}'\n{}It is f32, tf32, bf16, f16, pure-bf16, pure-f16 or "
          "mixed-bf16.",
          name, did_you_mean(name, names));
}
const char* to_string(Precision p) {
  static const char* const kNames[] = {"f32",       "tf32",     "bf16",      "f16",
                                       "pure-bf16", "pure-f16", "mixed-bf16"};
  return kNames[static_cast<int>(p)];
}
const char* matmul_kind(Precision p) {
  static const char* const kKinds[] = {"f32", "tf32", "bf16", "f16", "bf16", "f16", "bf16"};
  return kKinds[static_cast<int>(p)];
}

}  // namespace tandem::plan
