// SPDX-License-Identifier: Apache-2.0
#include "tandem/edge/rows/expressions_internal.h"

#include "tandem/codegen/emit_c.h"
#include "tandem/codegen/plan_values.h"
#include "tandem/codegen/tile_kernels.h"
#include "tandem/codegen/tile_loop.h"

namespace tandem::edge {
namespace {

using codegen::Access;
using codegen::TilePlan;

TilePlan plan_for_text(const ScalarProgram& program, const std::vector<ProgramInput>& inputs) {
  std::vector<Access> access;
  for (const ProgramInput& in : inputs)
    access.push_back(in.is_number ? Access::value : Access::dense);
  return codegen::make_tile_plan(program, access.data(), {}, codegen::tiles());
}

class ProgramNames : public codegen::BlockNames {
 public:
  ProgramNames(const ScalarProgram& program, const TilePlan& plan,
               const std::vector<ProgramInput>& inputs)
      : plan_(plan), inputs_(inputs), values_(plan), outputs(static_cast<size_t>(plan.n_out)) {
    for (size_t k = 0; k < inputs.size(); ++k)
      if (inputs[k].is_number)
        values_.set(static_cast<int>(k),
                    codegen::register_bits(inputs[k].number, reg_of(program.in[k])));
    values_.compute();
  }

  std::string input(int slot, const char* type) override {
    const auto at = static_cast<size_t>(slot);
    if (slot >= plan_.n_in || inputs_[at].is_number)
      return literal(codegen::register_named(type), values_.bits(slot));
    const ProgramInput& in = inputs_[at];
    if (!in.load.empty()) loads += fmt::format("const {} {} = {};\n", type, in.name, in.load);
    return in.name;
  }
  void output(int k, const char*, const std::string& name) override {
    outputs[static_cast<size_t>(k)] = name;
  }

 private:
  const TilePlan& plan_;
  const std::vector<ProgramInput>& inputs_;
  codegen::PlanValues values_;

 public:
  std::string loads;
  std::vector<std::string> outputs;
};

}  // namespace

std::vector<std::string> write_program(const ScalarProgram& program, const std::string& prefix,
                                       const std::vector<ProgramInput>& inputs, Lines& to) {
  const TilePlan plan = plan_for_text(program, inputs);
  ProgramNames names(program, plan, inputs);
  const codegen::BlockText block = codegen::emit_block(plan, prefix, names);
  to.block(names.loads);
  if (block.divides) to.line("int bad = 0;");  // an integer divided by zero gives 0
  to.block(block.row);
  to.block(block.body);
  if (block.divides) to.line("(void)bad;");
  return std::move(names.outputs);
}

void emit_loop(const ScalarProgram& program, const KernelCall& c, Body& to) {
  const Array* arrays[codegen::kMaxLoopArrays];
  int n = 0;
  for (int k = 0; k < c.n_in; ++k)
    if (!c.in[k].is_scalar) arrays[n++] = &c.in[k];
  for (int k = 0; k < c.n_out; ++k) arrays[n++] = &c.out[k];
  const codegen::TileLoop loop =
      codegen::TileLoop::make(c.out[0].shape, c.out[0].rank, arrays, n, n - c.n_out);
  to.text.open_nest(loop);
  std::vector<ProgramInput> inputs;
  int array = 0;
  for (int k = 0; k < c.n_in; ++k) {
    if (c.in[k].is_scalar)
      inputs.push_back({.name = "", .is_number = true, .number = c.in[k].scalar});
    else
      inputs.push_back({.name = fmt::format("e{}", k),
                        .load = fmt::format("x{}[{}]", k, place_in(loop, array++))});
  }
  const std::vector<std::string> out = write_program(program, "", inputs, to.text);
  for (int k = 0; k < c.n_out; ++k)
    to.text.line("y{}[{}] = {};", k, place_in(loop, array++), out[static_cast<size_t>(k)]);
  to.text.close_nest(loop);
}

}  // namespace tandem::edge
