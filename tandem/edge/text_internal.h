// SPDX-License-Identifier: Apache-2.0
// Pieces of C text: lines with their indentation, places in strided arrays, numbers as literals,
// nests of loops. Emitters of rows (rows_internal.h) write with these.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/graph/expression/scalar_program.h"
#include "tandem/graph/kernel.h"

namespace tandem::codegen {
struct TileLoop;
}
namespace tandem::edge {

/// `name` as a name in C: other characters become _.
std::string identifier(const std::string& name);
std::string upper(std::string s);
void replace_all(std::string& s, std::string_view from, std::string_view to);
/// The C type that stores elements of `t`; 16-bit floats are uint16_t.
const char* c_type(DType t);
/// The register `bits` as a literal that compilers read back to the same bits.
std::string literal(Reg type, int64_t bits);
/// Element `i` of `data` as a literal.
std::string element_literal(const void* data, DType t, int64_t i);

/// A number as a literal of a floating type of 32 or 64 bits.
std::string number_literal(double v, DType t);

/// One term of an index: a loop variable of a dimension with `size` entries. Dimensions of size 1
/// have no loop: their terms are left out.
struct Term {
  const char* variable;
  int64_t size, stride;
};
/// "i0 * 12 + i1", "0".
std::string place(std::initializer_list<Term> terms);
/// The same for array `array` of a loop nest over `loop`, variables i0, i1, ...
std::string place_in(const codegen::TileLoop& loop, int array, const char* prefix = "i");

/// Lines of a function's body.
class Lines {
 public:
  template <class... A>
  void line(fmt::format_string<A...> format, A&&... args) {
    add(fmt::format(format, std::forward<A>(args)...));
  }
  /// A line that ends with `{`; what follows is indented until close().
  template <class... A>
  void open(fmt::format_string<A...> format, A&&... args) {
    const std::string s = fmt::format(format, std::forward<A>(args)...);
    add(s.empty() ? "{" : s + " {");
    ++depth_;
  }
  void close(const char* end = "}");
  /// `for (int32_t v = 0; v < n; ++v) {`; nothing for n == 1.
  void loop(const std::string& variable, int64_t n);
  /// Ends that loop.
  void end_loop(int64_t n) {
    if (n != 1) close();
  }
  /// All loops of a nest, variables i0, i1, ... or with another prefix.
  void open_nest(const codegen::TileLoop& loop, const char* prefix = "i");
  void close_nest(const codegen::TileLoop& loop);
  /// Text of several lines that begin at the margin of this one.
  void block(const std::string& text);
  const std::string& text() const { return text_; }

 private:
  void add(const std::string& s);
  std::string text_;
  int depth_ = 1;
};

/// `static const type name[] = {...};` of literals.
void write_table(const char* type, const std::string& name, const std::vector<std::string>& values,
                 Lines& to);

}  // namespace tandem::edge
