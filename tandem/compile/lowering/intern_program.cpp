// SPDX-License-Identifier: Apache-2.0
// One copy of each scalar program, found by its content.
#include <mutex>
#include <unordered_map>

#include "tandem/compile/lowering/stages.h"
#include "tandem/compile/passes/loop_builder.h"

namespace tandem::compiler {

const ScalarProgram* interned(const ScalarProgram& p) {
  std::string key;
  const auto put = [&](const auto& v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  // The lengths keep an output of register 0 apart from inputs.
  put(p.code.size());
  put(p.in.size());
  for (const ScalarInstr& i : p.code) append_key(key, i);
  for (DType t : p.in) put(t);
  for (const ScalarProgram::Out& o : p.out) {
    put(o.reg);
    put(o.dtype);
  }
  static std::mutex* lock = new std::mutex;
  static auto* table = new std::unordered_map<std::string, std::unique_ptr<ScalarProgram>>;
  std::lock_guard hold(*lock);
  std::unique_ptr<ScalarProgram>& at = (*table)[key];
  if (!at) at = std::make_unique<ScalarProgram>(p);
  return at.get();
}

}  // namespace tandem::compiler
