# SPDX-License-Identifier: Apache-2.0
# cmake -DOUT=file.cpp -DROOT=source -DCXX=compiler -P PreludeText.cmake: writes the headers with which
# emitted C begins as one string in a C++ source, without their comment and #include lines; and the same
# text with all macros expanded, from which single functions can be taken.
set(text "")
foreach(name IN ITEMS base/math_prelude.h base/math_prelude_special.h codegen/scalar_ops.h
    codegen/fold_ops.h)
  file(READ "${ROOT}/tandem/${name}" part)
  string(REGEX REPLACE "\n[ ]*//[^\n]*" "" part "\n${part}")
  string(REGEX REPLACE "\n#include [^\n]*" "" part "${part}")
  string(APPEND text "${part}")
endforeach()
file(WRITE "${OUT}.c" "${text}")
# Widths of integers and instruction sets are those of the compiler that will read it, not of this one.
execute_process(COMMAND "${CXX}" -E -P -x c -std=c99 -U__SSE4_1__ -U__INT64_TYPE__ -U__UINT64_TYPE__
  -U__INT32_TYPE__ -U__UINT32_TYPE__ -U__INT16_TYPE__ -U__UINT16_TYPE__ -U__INT8_TYPE__ -U__UINT8_TYPE__
  "${OUT}.c" OUTPUT_VARIABLE expanded COMMAND_ERROR_IS_FATAL ANY)
# A string literal may be 64 KiB long in every compiler; the compiler concatenates the pieces.
function(as_literals text result)
  string(LENGTH "${text}" length)
  set(literals "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 12000 piece)
    string(APPEND literals "R\"td_text(${piece})td_text\"\n")
    math(EXPR at "${at} + 12000")
  endwhile()
  set(${result} "${literals}" PARENT_SCOPE)
endfunction()
as_literals("${text}" as_written)
as_literals("${expanded}" without_macros)
file(WRITE "${OUT}.new" "// Written by cmake/PreludeText.cmake.
#include \"tandem/codegen/prelude_text.h\"

namespace tandem::codegen {
constinit const std::string_view kPreludeText =
${as_written};
constinit const std::string_view kPreludeFunctions =
${without_macros};
}  // namespace tandem::codegen
")
file(RENAME "${OUT}.new" "${OUT}")
