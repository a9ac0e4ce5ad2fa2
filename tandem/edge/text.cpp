// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "tandem/codegen/tile_loop.h"
#include "tandem/edge/text_internal.h"
#include "tandem/graph/expression/scalar_eval.h"

namespace tandem::edge {
namespace {

template <class T>
std::string float_literal(T v, const char* suffix, const char* inf, const char* nan) {
  if (std::isnan(v)) return nan;
  const bool negative = std::signbit(v);
  std::string s = std::isinf(v) ? inf : fmt::format("{}", std::abs(v));
  if (!std::isinf(v)) {
    if (s.find_first_of(".e") == std::string::npos) s += ".0";
    s += suffix;
  }
  return negative ? "-" + s : s;
}

std::string integer_literal(int64_t v) {
  if (v == INT64_MIN) return "(-9223372036854775807LL - 1)";
  const bool wide = v > INT32_MAX || v < -INT32_MAX;
  return fmt::format("{}{}", v, wide ? "LL" : "");
}

}  // namespace

std::string identifier(const std::string& name) {
  std::string s;
  for (const char c : name) s += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return s.empty() || std::isdigit(static_cast<unsigned char>(s[0])) ? "_" + s : s;
}

void replace_all(std::string& s, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size())
    s.replace(at, from.size(), to);
}

std::string upper(std::string s) {
  for (char& c : s) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return s;
}

const char* c_type(DType t) {
  static constexpr const char* kNames[] = {"double",  "float",   "uint16_t", "uint16_t", "int64_t",
                                           "int32_t", "int16_t", "int8_t",   "uint8_t",  "uint8_t"};
  return kNames[static_cast<int>(t)];
}

std::string literal(Reg type, int64_t bits) {
  float f;
  double d;
  std::string s;
  switch (type) {
    case Reg::f32:
      std::memcpy(&f, &bits, sizeof f);
      s = float_literal(f, "f", "__builtin_inff()", "__builtin_nanf(\"\")");
      break;
    case Reg::f64:
      std::memcpy(&d, &bits, sizeof d);
      s = float_literal(d, "", "__builtin_inf()", "__builtin_nan(\"\")");
      break;
    case Reg::i64:
      s = integer_literal(bits);
      break;
    default:
      return bits & 0xff ? "1" : "0";
  }
  return s[0] == '-' ? "(" + s + ")" : s;
}

std::string element_literal(const void* data, DType t, int64_t i) {
  if (is_short_float(t)) return fmt::format("0x{:04x}", static_cast<const uint16_t*>(data)[i]);
  const Value v = load_value(data, t, i);
  int64_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  if (reg_of(t) == Reg::b8) bits = v.b8;
  std::string s = literal(reg_of(t), bits);
  return s[0] == '(' && s[1] == '-' && s.find(' ') == std::string::npos ? s.substr(1, s.size() - 2)
                                                                        : s;
}

namespace {
void add_term(std::string& s, const std::string& variable, int64_t size, int64_t stride) {
  if (size == 1 || stride == 0) return;
  if (stride < 0)
    s += s.empty() ? "-" : " - ";
  else if (!s.empty())
    s += " + ";
  s += variable;
  if (std::abs(stride) != 1) s += fmt::format(" * {}", std::abs(stride));
}
}  // namespace

std::string place(std::initializer_list<Term> terms) {
  std::string s;
  for (const Term& t : terms) add_term(s, t.variable, t.size, t.stride);
  return s.empty() ? "0" : s;
}

std::string place_in(const codegen::TileLoop& loop, int array, const char* prefix) {
  std::string s;
  for (int d = 0; d < loop.rank; ++d)
    add_term(s, fmt::format("{}{}", prefix, d), loop.size[d], loop.stride[array][d]);
  return s.empty() ? "0" : s;
}

void Lines::add(const std::string& s) {
  text_.append(static_cast<size_t>(depth_) * 2, ' ');
  text_ += s + "\n";
}

void Lines::close(const char* end) {
  --depth_;
  add(end);
}

void Lines::loop(const std::string& variable, int64_t n) {
  if (n != 1) open("for (int32_t {0} = 0; {0} < {1}; ++{0})", variable, n);
}

void Lines::open_nest(const codegen::TileLoop& loop_nest, const char* prefix) {
  for (int d = 0; d < loop_nest.rank; ++d) loop(fmt::format("{}{}", prefix, d), loop_nest.size[d]);
}

void Lines::close_nest(const codegen::TileLoop& loop_nest) {
  for (int d = loop_nest.rank; d-- > 0;) end_loop(loop_nest.size[d]);
}

void Lines::block(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const size_t from = text.find_first_not_of(' ', at);
    if (from < end) add(text.substr(from, end - from));
    if (end == std::string::npos) break;
    at = end + 1;
  }
}

std::string number_literal(double v, DType t) {
  const auto f = static_cast<float>(v);
  return t == DType::f32 ? element_literal(&f, t, 0) : element_literal(&v, t, 0);
}

void write_table(const char* type, const std::string& name, const std::vector<std::string>& values,
                 Lines& to) {
  constexpr size_t kOnALine = 8;
  to.line("static const {} {}[{}] = {{", type, name, values.size());
  for (size_t first = 0; first < values.size(); first += kOnALine) {
    std::string line;
    for (size_t k = first; k < std::min(values.size(), first + kOnALine); ++k)
      line += (line.empty() ? "" : " ") + values[k] + ",";
    to.line("  {}", line);
  }
  to.line("}};");
}

}  // namespace tandem::edge
