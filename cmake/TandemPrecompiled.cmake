# SPDX-License-Identifier: Apache-2.0
# Builds under sanitizers are made from nothing more often than others: there the headers that most
# files read are parsed once. Other builds go without, so that each file names what it uses.
#   tandem_precompile(TARGET HEADER...)   of a library or program
#   tandem_precompile_from(TARGET OTHER)  the headers of OTHER, which is compiled alike
if(TANDEM_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(TANDEM_PRECOMPILE ON)
  set(CMAKE_PCH_WARN_INVALID ON)
  # ccache reads through them when they hold no time and it may overlook macros that no file uses.
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endif()
function(tandem_precompile target)
  if(TANDEM_PRECOMPILE)
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()
function(tandem_precompile_from target other)
  if(TANDEM_PRECOMPILE)
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()
