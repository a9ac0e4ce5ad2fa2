# SPDX-License-Identifier: Apache-2.0
# Headers that most files include are parsed once per target. Building with TANDEM_PCH=OFF
# shows whether each file includes what it uses.
#   tandem_precompile(TARGET HEADER...)   precompiles headers for a library or program
#   tandem_precompile_from(TARGET OTHER)  reuses those of OTHER, which has the same flags
option(TANDEM_PCH "Precompile the headers that most files include" ON)
if(TANDEM_PCH)
  set(CMAKE_PCH_WARN_INVALID ON)
  # ccache handles them if they contain no timestamps and if it may ignore macros that no file uses. Its keys include
  # comments: gcc identifies precompiled headers by their whole text and parses one with another comment twice.
  if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;CCACHE_COMMENTS=1;${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endif()
function(tandem_precompile_options target)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()
function(tandem_precompile target)
  if(TANDEM_PCH)
    tandem_precompile_options(${target})
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()
function(tandem_precompile_from target other)
  if(TANDEM_PCH)
    tandem_precompile_options(${target})
    target_precompile_headers(${target} REUSE_FROM ${other})
  endif()
endfunction()
