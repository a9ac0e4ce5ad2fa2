// SPDX-License-Identifier: Apache-2.0
// The table of passes: their order and their stages.
#include "tandem/compile/passes/passes.h"

#include "tandem/graph/context.h"

namespace tandem::compiler {

std::span<const PassInfo> all_passes() {
  static constexpr PassInfo kPasses[] = {
      {"remove_dead", Stage::expand, remove_dead},
      {"integer_products", Stage::expand, integer_products, /*rare=*/true, /*rounds=*/true},
      {"expand_composites", Stage::expand, expand_composites},
      {"widen_operands", Stage::expand, widen_operands, /*rare=*/true},
      {"canonicalize", Stage::simplify, canonicalize},
      {"merge_common", Stage::simplify, merge_common},
      {"fold_norms", Stage::simplify, fold_norms, /*rare=*/false, /*rounds=*/true},
      {"fold_constants", Stage::simplify, fold_constants, true},
      {"round_ratios", Stage::simplify, round_ratios, /*rare=*/true, /*rounds=*/true},
      {"number_operands", Stage::simplify, number_operands, true},
      {"concatenate_slices", Stage::simplify, concatenate_slices},
      {"order_pooling", Stage::simplify, order_pooling},
      {"fuse_attention", Stage::simplify, fuse_attention, /*rare=*/true, /*rounds=*/true},
      {"pack_weights", Stage::weights, pack_weights, true},
      {"pack_integers", Stage::weights, pack_integers, true},
      {"channels_last", Stage::weights, channels_last, true},
      {"take_epilogues", Stage::weights, take_epilogues, true},
      {"take_integer_biases", Stage::weights, take_integer_biases, true},
      {"fuse_matmuls", Stage::weights, fuse_matmuls, true},
      {"derive_values", Stage::weights, derive_values, true},
      {"store_derivatives", Stage::fuse, store_derivatives},
      {"absorb_casts", Stage::fuse, absorb_casts, /*rare=*/true},
      {"fuse_loops", Stage::fuse, fuse_loops},
      {"remove_dead", Stage::fuse, remove_dead},
      {"start_ahead", Stage::fuse, start_ahead, /*rare=*/true},
      {"delay_waits", Stage::fuse, delay_waits, /*rare=*/true},
      {"place_epilogues", Stage::fuse, place_epilogues},
  };
  return kPasses;
}

void run_passes(Program& p, Stages stages, FunctionRef<void(const char*, const Program&)>* seen) {
  const DeviceGuard constants_on_host(cpu);
  verify(p, "trace");
  for (const PassInfo& pass : all_passes()) {
    if (pass.stage < stages.first || pass.stage > stages.last) continue;
    if (pass.rounds && p.same_bits) continue;
    const std::string before = seen && pass.rare ? p.to_string() : std::string();
    pass.run(p);
    verify(p, pass.name);
    if (seen && !(pass.rare && before == p.to_string())) (*seen)(pass.name, p);
  }
}

}  // namespace tandem::compiler
