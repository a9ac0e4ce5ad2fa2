// SPDX-License-Identifier: Apache-2.0
// Where a StepMemory comes from: the ledger of an eager dry run, or the memory plan of a compiled
// step. Not installed.
#pragma once

#include "tandem/compile/run/executable.h"
#include "tandem/plan/memory/step_memory.h"
#include "tandem/tensor/dry_memory.h"

namespace tandem::plan {

/// The memory category of each block in the ledger of a dry run.
class BlockCategories {
 public:
  explicit BlockCategories(const DryMemory& ledger) : ledger_(ledger) {}
  /// The block behind `t` holds `c`; a tensor without a block is ignored.
  void mark(const Tensor& t, MemoryCategory c);
  /// As marked, else by what the block was taken for and when.
  MemoryCategory of(int32_t block) const;

 private:
  const DryMemory& ledger_;
  std::vector<MemoryCategory> marked_;
};

/// The equal block that a name lies in, "h.3" of "h.3.attn"; empty: none.
std::string block_of(const std::string& path);
inline bool in_block(const std::string& path) { return !block_of(path).empty(); }
/// Does a compiled step write a parameter: is it part of the update?
bool writes_parameter(const Executable& exe, const compiler::Step& s);
/// The memory of an eager step: the ledger from event `first` on. `by_block`: the model has equal
/// blocks, whose activations are told apart.
StepMemory step_memory(const DryMemory& ledger, const BlockCategories& categories, size_t first,
                       bool by_block);
/// The memory of a compiled step: its planned arena, and `outside` of it what stays.
StepMemory step_memory(const Executable& exe, const Held& outside, bool by_block);

}  // namespace tandem::plan
