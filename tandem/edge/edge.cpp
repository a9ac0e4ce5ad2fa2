// SPDX-License-Identifier: Apache-2.0
// The file around the steps: weights, one function for each different step, the call list, the
// header.
#include "tandem/edge/edge.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "tandem/compile/lowering/stages.h"
#include "tandem/edge/prelude_internal.h"
#include "tandem/edge/program_internal.h"
#include "tandem/edge/rows_internal.h"
#include "tandem/graph/context.h"

namespace tandem::edge {
namespace {

using compiler::Arrays;
using compiler::Base;
using compiler::Block;
using compiler::kNone;
using compiler::Lowered;
using compiler::Place;
using compiler::Step;

constexpr int64_t kMostElements = int64_t{1} << 31;

bool has_word(const std::string& text, const std::string& word) {
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) {
    const size_t end = at + word.size();
    if ((at == 0 || !part(text[at - 1])) && (end == text.size() || !part(text[end]))) return true;
  }
  return false;
}

std::string spec_text(DType t, const Shape& shape) {
  return fmt::format("{}{}", to_string(t), shape.to_string());
}

class Writer {
 public:
  Writer(const Lowered& l, EdgeSource& made, const std::string& name)
      : l_(l), made_(made), name_(name), macro_(upper(name)) {}

  void write() {
    name_ports();
    check_steps();
    for (size_t k = 0; k < l_.steps.size(); ++k)
      if (!l_.steps[k].inside) write_step(k);
    made_.arena_bytes = l_.arena_bytes;
    made_.lower_bound = l_.lower_bound;
    made_.functions = functions_.size();
    made_.header = header();
    made_.source = source();
  }

 private:
  void name_ports() {
    int k = 0;
    for (const auto* list : {&made_.inputs, &made_.outputs})
      for (const EdgePort& p : *list) {
        std::string s = (list == &made_.inputs ? "in_" : "out_") + identifier(p.name);
        if (std::find(ports_.begin(), ports_.end(), s) != ports_.end()) s += fmt::format("_{}", k);
        ports_.push_back(std::move(s));
        ++k;
      }
  }

  // All that has no C form, at once.
  void check_steps() const {
    std::map<std::string, int> missing;
    for (const Step& s : l_.steps) {
      if (!s.op) continue;
      Arrays a = compiler::arrays_of(l_, s);
      const KernelCall call = compiler::call_of(l_, s, a);
      if (!find_emitter(call))
        ++missing[fmt::format("{} ({})", s.op->name,
                              to_string(s.in.empty() ? a.out[0].dtype : a.in[0].dtype))];
    }
    std::string list;
    for (const auto& [op, n] : missing)
      list += fmt::format("{}{} x {}", list.empty() ? "" : ", ", n, op);
    TD_CHECK(missing.empty(), Unsupported, "these ops have no C form: {}", list);
    for (const Place& p : l_.places)
      TD_CHECK(p.shape.numel().value() < kMostElements, Shape,
               "a tensor {} has 2^31 elements or more: C code counts in 32 bits\nGive a smaller "
               "batch.",
               p.shape.to_string());
  }

  std::string pointer(int place) {
    const Place& p = l_.places[static_cast<size_t>(place)];
    const Block& b = l_.buffers[static_cast<size_t>(p.buffer)];
    const auto plus = [&](const std::string& s) {
      const int64_t first = p.offset / static_cast<int64_t>(size_of(p.dtype));
      return first ? fmt::format("{} + {}", s, first) : s;
    };
    switch (b.base) {
      case Base::input:
        return plus(ports_[static_cast<size_t>(b.index)]);
      case Base::output:
        return plus(ports_[made_.inputs.size() + static_cast<size_t>(b.index)]);
      case Base::constant:
        return plus(weight(b.index));
      default:
        return fmt::format("{}_AT({}, {})", macro_, c_type(p.dtype),
                           static_cast<int64_t>(b.offset) + p.offset);
    }
  }

  // The name of a constant's array, which is written when it is first asked for.
  std::string weight(int index) {
    std::string& name = weights_[index];
    if (!name.empty()) return name;
    const Tensor& t = l_.constants[static_cast<size_t>(index)];
    const auto n = static_cast<int64_t>(t.numel());
    name = fmt::format("{}_w{}", name_, weights_.size() - 1);
    std::string values;
    size_t column = 0;
    for (int64_t i = 0; i < n; ++i) {
      std::string v = element_literal(t.data_ptr(), t.dtype(), i) + (i + 1 < n ? "," : "");
      if (column + v.size() > 98) values += "\n ", column = 1;
      column += v.size() + 1;
      values += " " + v;
    }
    if (n == 0) values = " 0";
    weight_text_ += fmt::format("/* {} */\nstatic const {} {}[{}] = {{\n {}}};\n",
                                spec_text(t.dtype(), t.shape()), c_type(stored(index)), name,
                                std::max<int64_t>(n, 1), values);
    made_.weight_bytes += static_cast<size_t>(n) * size_of(stored(index));
    return name;
  }

  // Integers of 64 bits that fit in 32 are stored so: where they are read they become wide again.
  DType stored(int index) {
    const Tensor& t = l_.constants[static_cast<size_t>(index)];
    if (t.dtype() != DType::i64) return t.dtype();
    const auto [narrow, fresh] = narrow_.try_emplace(index, true);
    if (fresh) {
      const std::span v(static_cast<const int64_t*>(t.data_ptr()), static_cast<size_t>(t.numel()));
      narrow->second =
          std::all_of(v.begin(), v.end(), [](int64_t x) { return x == static_cast<int32_t>(x); }) &&
          std::none_of(l_.places.begin(), l_.places.end(), [&](const Place& p) {
            const Block& b = l_.buffers[static_cast<size_t>(p.buffer)];
            return b.base == Base::constant && b.index == index && p.dtype != DType::i64;
          });
    }
    return narrow->second ? DType::i32 : DType::i64;
  }
  struct Parameter {
    std::string name;
    const Array* array;
    int place;
    bool in;
  };

  DType stored_at(const Parameter& p) {
    const Block& b =
        l_.buffers[static_cast<size_t>(l_.places[static_cast<size_t>(p.place)].buffer)];
    return b.base == Base::constant ? stored(b.index) : p.array->dtype;
  }

  static KernelCall call_for(const Step& s, Arrays& a) {
    static const OpDef kLoop{};
    return {s.op ? *s.op : kLoop,          s.attrs.get(), a.in.data(),
            static_cast<int>(a.in.size()), a.out,         static_cast<int>(s.out.size())};
  }
  static void add_inputs(const Step& s, const Arrays& a, int first, std::vector<Parameter>& to) {
    for (size_t k = 0; k < s.in.size(); ++k)
      if (s.in[k].place != kNone && !a.in[k].is_scalar)
        to.push_back(
            {fmt::format("x{}", first + static_cast<int>(k)), &a.in[k], s.in[k].place, true});
  }
  static void add_outputs(const Step& s, const Arrays& a, std::vector<Parameter>& to) {
    for (size_t k = 0; k < s.out.size(); ++k)
      if (s.out[k] != kNone) to.push_back({fmt::format("y{}", k), &a.out[k], s.out[k], false});
  }

  void write_step(size_t at) {
    const Step& s = l_.steps[at];
    Arrays a = compiler::arrays_of(l_, s), b;
    const KernelCall call = call_for(s, a);
    bool empty = true;
    for (int k = 0; k < call.n_out; ++k) empty = empty && a.out[k].numel == 0;
    if (empty) return;
    Body body;
    std::vector<Parameter> all;
    add_inputs(s, a, 0, all);
    std::string name = s.name;
    if (compiler::has_epilogue(l_, at)) {
      const Step& loop = l_.steps[at + 1];
      b = compiler::arrays_of(l_, loop);
      const KernelCall loop_call = call_for(loop, b);
      const SumLoop then{*loop.program, loop_call, operand_of_sums(l_, at)};
      find_product_emitter (*s.op)(call, &then, body);
      add_inputs(loop, b, kFirstOfLoop, all);
      std::erase_if(all, [&](const Parameter& p) { return p.place == s.out[0]; });
      add_outputs(loop, b, all);
      name += " " + loop.name;
    } else {
      if (s.op)
        find_emitter(call)(call, body);
      else
        emit_loop(*s.program, call, body);
      add_outputs(s, a, all);
    }
    write_call(s, name, all, body);
  }

  void write_call(const Step& s, const std::string& name, const std::vector<Parameter>& all,
                  const Body& body) {
    std::string parameters, arguments, shapes;
    for (const Parameter& p : all) {
      shapes +=
          fmt::format("{}{}",
                      shapes.empty() ? ""
                      : p.in         ? ", "
                                     : " -> ",
                      spec_text(p.array->dtype, l_.places[static_cast<size_t>(p.place)].shape));
      if (!has_word(body.text.text(), p.name)) continue;
      const char* comma = parameters.empty() ? "" : ", ";
      parameters +=
          fmt::format("{}{}{} *{}", comma, p.in ? "const " : "", c_type(stored_at(p)), p.name);
      arguments += comma + pointer(p.place);
    }
    const std::string function = function_for(s, body, parameters);
    const std::string& layer = scope_path(s.scope);
    calls_ += fmt::format("  /* {}{}{}: {} */\n  {}{}({});\n", layer, layer.empty() ? "" : ": ",
                          name, shapes, body.reports ? "status |= " : "", function, arguments);
    reports_ = reports_ || body.reports;
    ++made_.steps;
  }

  // Steps with the same text share a function.
  std::string function_for(const Step& s, const Body& body, const std::string& parameters) {
    std::string text = "(" + parameters + ") {\n";
    if (body.reports) text += "  int bad = 0;\n";
    text += body.text.text() + (body.reports ? "  return bad;\n}\n" : "}\n");
    std::string& name = functions_[text];
    if (!name.empty()) return name;
    name = fmt::format("{}_{}_{}", name_, s.op ? s.op->name : "loop", functions_.size() - 1);
    function_text_ += fmt::format("static {} {}{}\n", body.reports ? "int" : "void", name, text);
    return name;
  }

  std::string parameters() const {
    std::string s;
    size_t k = 0;
    for (const auto* list : {&made_.inputs, &made_.outputs})
      for (const EdgePort& p : *list) {
        s += fmt::format("{}{}{} *{}", k ? ", " : "", list == &made_.inputs ? "const " : "",
                         c_type(p.spec.dtype), ports_[k]);
        ++k;
      }
    return s.empty() ? "void" : s;
  }

  std::string header() const {
    std::string s = fmt::format(
        "/* Written by `tandem compile`. Include it in C99 or C++17. */\n#ifndef {0}_H\n#define "
        "{0}_H\n\n#include <stdint.h>\n\n",
        macro_);
    s += fmt::format(
        "/* Bytes of memory that a call works in (at least {} in any order of these steps), and "
        "of\n   the constant weights. */\n#define {}_ARENA_BYTES {}\n#define {}_WEIGHT_BYTES "
        "{}\n\n",
        l_.lower_bound, macro_, std::max<size_t>(l_.arena_bytes, 8), macro_, made_.weight_bytes);
    s += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n/* ";
    size_t k = 0;
    for (const auto* list : {&made_.inputs, &made_.outputs})
      for (const EdgePort& p : *list) {
        s += fmt::format("{}{}: {}, row-major", k ? ";\n   " : "", ports_[k],
                         spec_text(p.spec.dtype, p.spec.shape));
        ++k;
      }
    s += ".\n   Returns 0, or 1 where an index was out of range (the nearest element was read). "
         "Inputs and\n   outputs must not overlap. */\n";
    s += fmt::format(
        "int {0}_run_in(void *arena, {1}); /* arena: {2}_ARENA_BYTES, aligned to 8 */\n#ifndef "
        "{2}_NO_ARENA\nint {0}_run({1}); /* in an arena of its own: one call at a time "
        "*/\n#endif\n",
        name_, parameters(), macro_);
    return s + "\n#ifdef __cplusplus\n}\n#endif\n#endif\n";
  }

  std::string source() const {
    std::string names;
    for (const std::string& p : ports_) names += ", " + p;
    std::string s = fmt::format(
        "/* Written by `tandem compile`: {} steps, {} functions. Build with -ffp-contract=off "
        "for\n   equal bits everywhere. */\n#include \"{}.h\"\n\n",
        made_.steps, functions_.size(), name_);
    s += prelude_for(function_text_) + functions_for(function_text_) + "\n" + weight_text_ + "\n" +
         function_text_;
    s +=
        fmt::format("#define {}_AT(type, offset) ((type *)(void *)(bytes + (offset)))\n\n", macro_);
    s += fmt::format("int {}_run_in(void *arena, {}) {{\n", name_, parameters());
    s += has_word(calls_, macro_ + "_AT") ? "  unsigned char *bytes = (unsigned char *)arena;\n"
                                          : "  (void)arena;\n";
    if (reports_) s += "  int status = 0;\n";
    s += unused_ports() + calls_;
    s +=
        fmt::format("  return {};\n}}\n\n#ifndef {}_NO_ARENA\n", reports_ ? "status" : "0", macro_);
    s += fmt::format(
        "int {0}_run({1}) {{\n  static uint64_t arena[({2}_ARENA_BYTES + 7) / 8];\n  return "
        "{0}_run_in(arena{3});\n}}\n#endif\n",
        name_, parameters(), macro_, names);
    return s;
  }
  std::string unused_ports() const {
    std::string s;
    for (const std::string& p : ports_)
      if (!has_word(calls_, p)) s += fmt::format("  (void){};\n", p);
    return s;
  }

  const Lowered& l_;
  EdgeSource& made_;
  const std::string name_, macro_;
  std::vector<std::string> ports_;
  std::map<int, std::string> weights_;
  std::map<int, bool> narrow_;  ///< constants of i64
  std::map<std::string, std::string> functions_;
  std::string weight_text_, function_text_, calls_;
  bool reports_ = false;
};

}  // namespace

EdgeSource write_c99(EdgeForward forward, std::span<const EdgePort> inputs,
                     std::span<const std::string> output_names, const EdgeOptions& options) {
  TD_CHECK(!options.name.empty() && identifier(options.name) == options.name, Value,
           "'{}' is not a C identifier\nGive letters, digits and _, not a digit first.",
           options.name);
  const Lowered l = lower_for_text(forward, inputs);
  EdgeSource made;
  made.inputs.assign(inputs.begin(), inputs.end());
  for (size_t k = 0; k < l.outputs.size(); ++k) {
    const Place& p = l.places[static_cast<size_t>(l.outputs[k])];
    made.outputs.push_back({k < output_names.size() ? output_names[k] : fmt::format("output{}", k),
                            Spec(p.dtype, p.shape)});
  }
  Writer(l, made, options.name).write();
  return made;
}

}  // namespace tandem::edge
