# SPDX-License-Identifier: Apache-2.0
# cmake -DOUT=file.cpp -DROOT=source -P PreludeText.cmake: writes the headers with which emitted C begins
# as one string in a C++ source, without their comment and #include lines.
set(text "")
foreach(name IN ITEMS base/math_prelude.h base/math_prelude_special.h codegen/scalar_ops.h
    codegen/fold_ops.h)
  file(READ "${ROOT}/tandem/${name}" part)
  string(REGEX REPLACE "\n[ ]*//[^\n]*" "" part "\n${part}")
  string(REGEX REPLACE "\n#include [^\n]*" "" part "${part}")
  string(APPEND text "${part}")
endforeach()
# A string literal may be 64 KiB long in every compiler; the compiler concatenates the pieces.
string(LENGTH "${text}" length)
set(literals "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 12000 piece)
  string(APPEND literals "R\"td_text(${piece})td_text\"\n")
  math(EXPR at "${at} + 12000")
endwhile()
file(WRITE "${OUT}.new" "// Written by cmake/PreludeText.cmake.
#include \"tandem/codegen/prelude_text.h\"

namespace tandem::codegen {
constinit const std::string_view kPreludeText =
${literals};
}  // namespace tandem::codegen
")
file(RENAME "${OUT}.new" "${OUT}")
