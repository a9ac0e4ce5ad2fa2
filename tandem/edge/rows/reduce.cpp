// SPDX-License-Identifier: Apache-2.0
// Reductions and scans from the row's expressions: the states in variables, one pass over the
// elements in the order of x in memory. (The engine's reductions combine lanes and blocks, so sums
// may differ in the last bit; extremes and their indices do not.)
#include "tandem/codegen/reduce_geometry.h"
#include "tandem/codegen/reduce_program.h"
#include "tandem/edge/rows/expressions_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/reduce_attrs.h"

namespace tandem::edge {
namespace {

using codegen::ReduceProgram;

// A reduction's program beside the call that it was made for.
struct Reducer {
  const KernelCall& call;
  const ReduceProgram& program;

  explicit Reducer(const KernelCall& c) : call(c), program(program_for(c)) {}

  static const ReduceProgram& program_for(const KernelCall& c) {
    DType outs[kMaxOpOuts];
    for (int k = 0; k < c.n_out; ++k) outs[k] = c.out[k].present() ? c.out[k].dtype : DType::i64;
    return codegen::reduce_program_of(c.op, c.in[0].dtype, outs, c.n_out, c.n_in - 1);
  }

  static std::string state(int k) { return fmt::format("s{}", k); }
  std::vector<ProgramInput> states() const {
    std::vector<ProgramInput> in;
    for (int k = 0; k < program.n_states; ++k) in.push_back({.name = state(k)});
    return in;
  }

  void start(Lines& to) const {
    for (int k = 0; k < program.n_states; ++k)
      to.line("{} s{} = {};", c_type(codegen::dtype_of_reg(program.state[k])), k,
              literal(program.state[k], program.init[k]));
    if (program.uses_index) to.line("int64_t at = 0;");
  }
  void step(const std::string& x_at, Lines& to) const {
    std::vector<ProgramInput> in = states();
    in.push_back({.name = "e", .load = fmt::format("x0[{}]", x_at)});
    in.push_back({.name = "at"});
    const std::vector<std::string> now = write_program(program.step, "t", in, to);
    for (int k = 0; k < program.n_states; ++k) to.line("s{} = {};", k, now[static_cast<size_t>(k)]);
    if (program.uses_index) to.line("++at;");
  }
  void finish(int64_t count, const std::vector<std::string>& places, Lines& to) const {
    std::vector<ProgramInput> in = states();
    in.push_back({.name = fmt::format("((tdm_i64){})", count)});
    for (int k = 1; k < call.n_in; ++k)
      in.push_back({.name = literal(Reg::f64, register_of(call.in[k].scalar))});
    const std::vector<std::string> out = write_program(program.finish, "f", in, to);
    for (size_t k = 0; k < places.size(); ++k)
      if (call.out[k].present()) to.line("y{}[{}] = {};", k, places[k], out[k]);
  }

 private:
  static int64_t register_of(const Scalar& s) {
    return codegen::register_bits(Scalar(s.to_double()), Reg::f64);
  }
};

}  // namespace

void emit_reduction(const KernelCall& c, Body& to) {
  const codegen::ReduceGeometry g = codegen::make_reduce_geometry(c);
  const Reducer reducer(c);
  Lines& t = to.text;
  t.open_nest(g.kept);
  if (g.n_kept == 1) t.open("");
  reducer.start(t);
  t.open_nest(g.reduced, "r");
  if (g.n_reduced == 1) t.open("");
  const std::string base = place_in(g.kept, 0), along = place_in(g.reduced, 0, "r");
  reducer.step(base == "0" ? along : along == "0" ? base : base + " + " + along, t);
  if (g.n_reduced == 1) t.close();
  t.close_nest(g.reduced);
  std::vector<std::string> places;
  for (int k = 0; k < c.n_out; ++k) places.push_back(place_in(g.kept, 1 + k));
  reducer.finish(g.n_reduced, places, t);
  if (g.n_kept == 1) t.close();
  t.close_nest(g.kept);
}

void emit_scan(const KernelCall& c, Body& to) {
  const Array& x = c.in[0];
  const int dim = x.rank ? normalize_dim(c.get_attrs<ScanAttrs>().dim, x.rank) : 0;
  codegen::TileLoop lines, along;
  lines.n_arrays = along.n_arrays = 1 + c.n_out;
  for (int d = 0; d < x.rank; ++d) {
    codegen::TileLoop& l = d == dim ? along : lines;
    l.size[l.rank] = x.shape[d];
    l.stride[0][l.rank] = x.strides[d];
    for (int k = 0; k < c.n_out; ++k)
      l.stride[1 + k][l.rank] = c.out[k].present() ? c.out[k].strides[d] : 0;
    ++l.rank;
  }
  const Reducer reducer(c);
  Lines& t = to.text;
  t.open_nest(lines);
  t.open("");
  reducer.start(t);
  const int64_t count = along.rank ? along.size[0] : 1;
  t.open("for (int32_t r0 = 0; r0 < {}; ++r0)", count);
  const auto both = [&](int array) {
    const std::string a = place_in(lines, array), b = place_in(along, array, "r");
    return a == "0" ? b : b == "0" ? a : a + " + " + b;
  };
  reducer.step(both(0), t);
  std::vector<std::string> places;
  for (int k = 0; k < c.n_out; ++k) places.push_back(both(1 + k));
  reducer.finish(count, places, t);
  t.close();
  t.close();
  t.close_nest(lines);
}

}  // namespace tandem::edge
