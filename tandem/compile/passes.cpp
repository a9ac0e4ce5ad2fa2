// SPDX-License-Identifier: Apache-2.0
// The order of the passes.
#include "tandem/compile/passes.h"

namespace tandem::compiler {

std::span<const PassInfo> all_passes() {
  static constexpr PassInfo kPasses[] = {
      {"remove_dead", remove_dead},
      {"expand_composites", expand_composites},
      {"canonicalize", canonicalize},
      {"merge_common", merge_common},
      {"fold_norms", fold_norms},
      {"fold_constants", fold_constants, true},
      {"join_slices", join_slices},
      {"order_pooling", order_pooling},
      {"fuse_attention", fuse_attention, true},
      {"pack_weights", pack_weights, true},
      {"channels_last", channels_last, true},
      {"take_tails", take_tails, true},
      {"join_products", join_products, true},
      {"derive_values", derive_values, true},
      {"store_slopes", store_slopes},
      {"fuse_loops", fuse_loops},
      {"remove_dead", remove_dead},
      {"place_epilogues", place_epilogues},
  };
  return kPasses;
}

void run_passes(Program& p, FunctionRef<void(const char*, const Program&)>* seen, Passes which) {
  verify(p, "trace");
  bool fusing = false;
  for (const PassInfo& pass : all_passes()) {
    fusing = fusing || pass.run == store_slopes;
    if (which != Passes::all && fusing != (which == Passes::from_fusion)) continue;
    const std::string before = seen && pass.rare ? p.to_string() : std::string();
    pass.run(p);
    verify(p, pass.name);
    if (seen && !(pass.rare && before == p.to_string())) (*seen)(pass.name, p);
  }
}

}  // namespace tandem::compiler
