# SPDX-License-Identifier: Apache-2.0
# Compiler flags: one target with the flags of every file in the project, and one rule by file name for
# kernels. Results must not depend on the compiler, so it may not contract to FMA by itself.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)  # keeps paths of this machine out of the binaries

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or Sanitize" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
# Optimising instrumented code takes long, so only the rooms that compute are optimised (tandem/CMakeLists.txt).
set(CMAKE_CXX_FLAGS_SANITIZE "-O0 -g1 -fno-omit-frame-pointer")

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TANDEM_CCACHE ccache)
  mark_as_advanced(TANDEM_CCACHE)
  if(TANDEM_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${TANDEM_CCACHE}")
  endif()
endif()

add_library(tandem_flags INTERFACE)
# File names in the binaries: "@tandem/ops/conv/conv.cpp" for the library (so an error can tell the
# user's line from ours), "tests/..." for the rest; debuggers find sources from the top folder. GCC
# uses the last map that matches, clang the longest.
target_compile_options(tandem_flags INTERFACE
  -Wall -Wextra -Wno-missing-field-initializers
  -ffp-contract=off -fno-semantic-interposition
  "-fdebug-prefix-map=${CMAKE_SOURCE_DIR}/="
  "-fdebug-prefix-map=${CMAKE_BINARY_DIR}=."
  "-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/="
  "-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/tandem=@tandem"
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>  # GCC 12 is wrong about every std::variant
  $<$<BOOL:${TANDEM_WERROR}>:-Werror>)
target_include_directories(tandem_flags INTERFACE "${CMAKE_SOURCE_DIR}")
# What UBSan does not check in a target: names of checks with commas between them.
define_property(TARGET PROPERTY TANDEM_UNCHECKED INITIALIZE_FROM_VARIABLE TANDEM_UNCHECKED)
if(TANDEM_SANITIZE)
  target_compile_options(tandem_flags INTERFACE "-fsanitize=${TANDEM_SANITIZE}")
  target_compile_definitions(tandem_flags INTERFACE TANDEM_SANITIZED)
  target_link_options(tandem_flags INTERFACE "-fsanitize=${TANDEM_SANITIZE}")
  find_program(TANDEM_LLD ld.lld-14)
  mark_as_advanced(TANDEM_LLD)
  if(TANDEM_LLD AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # thirty programs of 300 MB each: a quarter of the time
    target_link_options(tandem_flags INTERFACE "--ld-path=${TANDEM_LLD}")
  endif()
  if(TANDEM_SANITIZE MATCHES "undefined")
    # A null pointer is a crash that AddressSanitizer names; asking before each use is a tenth of the compile time.
    target_compile_options(tandem_flags INTERFACE -fno-sanitize-recover=undefined -fno-sanitize=null
      $<$<BOOL:$<TARGET_PROPERTY:TANDEM_UNCHECKED>>:-fno-sanitize=$<TARGET_PROPERTY:TANDEM_UNCHECKED>>)
  endif()
endif()

# The end of a kernel file's name selects its instruction set, in `codegen` and `backend/cpu` only:
#   *_base.cpp  *_avx2.cpp  *_avx512.cpp           vector code without FMA: same bits everywhere
#   *_fma_avx2.cpp  *_fma_avx512.cpp               FMA intrinsics (matrix kernels)
#   *_bf16_avx512.cpp                              bf16 matmuls (AVX-512 BF16)
#   *_vnni_avx512.cpp                              integer matmuls (AVX-512 VNNI)
#   *_amx_avx512.cpp                               integer and bf16 matmuls (AMX)
# Code in such files runs only after the processor has been checked at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(TANDEM_X86 ON)
endif()
function(tandem_kernel_flags file)
  get_filename_component(stem "${file}" NAME_WE)
  set(flags "")
  if(stem MATCHES "_(base|avx2|avx512)$" AND CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    # Checking each access prevents vectorisation. AddressSanitizer looks at the pointers of kernels
    # that are unrolled by hand; a second check of each takes three quarters of their compile time.
    set(flags -Wno-pass-failed -fno-sanitize=alignment,null,object-size,pointer-overflow)
  elseif(stem MATCHES "_(base|avx2|avx512)$")
    set(flags -O3 -fno-math-errno)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(flags -O2)
  endif()
  if(TANDEM_X86)
    if(stem MATCHES "_avx2$")
      list(APPEND flags -mavx2)
    elseif(stem MATCHES "_avx512$")
      list(APPEND flags -mavx512f -mavx512dq -mavx512bw -mavx512vl -mprefer-vector-width=512)
    endif()
    if(stem MATCHES "_bf16_avx512$")
      list(APPEND flags -mavx512bf16)
    endif()
    if(stem MATCHES "_vnni_avx512$")
      list(APPEND flags -mavx512vnni)
    endif()
    if(stem MATCHES "_amx_avx512$")
      list(APPEND flags -mamx-tile -mamx-int8 -mamx-bf16 -mavx512bf16)
    endif()
    if(stem MATCHES "_fma_avx(2|512)$")
      list(APPEND flags -mfma)
    elseif(stem MATCHES "_avx2$" OR (stem MATCHES "_avx512$" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU"))
      list(APPEND flags -mno-fma)  # clang would disable AVX-512 along with it
    endif()
  endif()
  if(flags)
    set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "${flags}"
      SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()
