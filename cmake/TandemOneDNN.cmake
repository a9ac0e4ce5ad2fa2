# SPDX-License-Identifier: Apache-2.0
# Finds oneDNN where scripts/setup unpacked it (build/deps/onednn) or under TANDEM_ONEDNN_ROOT, and
# defines the target tandem_dnnl, its headers. TANDEM_HAVE_ONEDNN says whether it was found. Nothing is downloaded.
set(TANDEM_ONEDNN_ROOT "${CMAKE_SOURCE_DIR}/build/deps/onednn" CACHE PATH "Folder of oneDNN")
set(TANDEM_HAVE_ONEDNN OFF)
if(TANDEM_ONEDNN STREQUAL "OFF")
  message(STATUS "oneDNN: off (TANDEM_ONEDNN=OFF); using Tandem's own kernels and references")
  return()
endif()

set(_header "${TANDEM_ONEDNN_ROOT}/include/oneapi/dnnl/dnnl.hpp")
file(GLOB _lib "${TANDEM_ONEDNN_ROOT}/lib/libdnnl.so.[0-9]*.[0-9]*")
if(NOT EXISTS "${_header}" OR NOT _lib)
  if(TANDEM_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "oneDNN: not found under ${TANDEM_ONEDNN_ROOT}.\n"
      "Run scripts/setup, or set TANDEM_ONEDNN_ROOT, or TANDEM_ONEDNN=AUTO to build without it.")
  endif()
  message(STATUS "oneDNN: not found; matmul, conv and pool use Tandem's own kernels and references "
    "(scripts/setup downloads it)")
  return()
endif()
list(GET _lib 0 _lib)
file(STRINGS "${TANDEM_ONEDNN_ROOT}/include/oneapi/dnnl/dnnl_version.h" _version
  REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
list(TRANSFORM _version REPLACE ".* ([0-9]+)$" "\\1")
list(JOIN _version "." TANDEM_ONEDNN_VERSION)

# Opened at its first use as libdnnl.so.3 next to libtandem.so, in the build tree as in an installed one.
string(REGEX MATCH "libdnnl\\.so\\.[0-9]+" _soname "${_lib}")
set(TANDEM_ONEDNN_FILE "${_lib}")
set(TANDEM_ONEDNN_SONAME "${_soname}")
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
file(RELATIVE_PATH _target "${CMAKE_BINARY_DIR}/lib" "${_lib}")
file(CREATE_LINK "${_target}" "${CMAKE_BINARY_DIR}/lib/${_soname}" SYMBOLIC)
add_library(tandem_dnnl INTERFACE IMPORTED GLOBAL)
set_target_properties(tandem_dnnl PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${TANDEM_ONEDNN_ROOT}/include")
set(TANDEM_HAVE_ONEDNN ON)
message(STATUS "oneDNN: ${TANDEM_ONEDNN_VERSION}")
