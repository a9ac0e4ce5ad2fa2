# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` installs: headers (.h and the .def lists they
# include) without _internal in their name, libtandem.so with libdnnl next
# to it, find_package(Tandem) and pkg-config. cli/CMakeLists.txt installs the tool.
include(CMakePackageConfigHelpers)
set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Tandem")

install(TARGETS tandem_shared EXPORT TandemTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/tandem/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tandem"
  FILES_MATCHING PATTERN "*.h" PATTERN "*.def" PATTERN "*_internal*" EXCLUDE
  PATTERN "tandem_c.h" EXCLUDE)
# The header for C is found without those for C++ beside it.
install(FILES "${CMAKE_SOURCE_DIR}/tandem/tandem_c.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
if(TANDEM_HAVE_ONEDNN)
  install(FILES "${TANDEM_ONEDNN_FILE}" DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    RENAME "${TANDEM_ONEDNN_SONAME}"
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
      WORLD_EXECUTE)
  install(DIRECTORY "${TANDEM_ONEDNN_ROOT}/share/doc/onednn" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
    OPTIONAL)
endif()

# gdb's pretty printers, and the file next to the library from which gdb loads them.
install(FILES "${CMAKE_SOURCE_DIR}/scripts/gdb/tandem_gdb.py"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/tandem/gdb")
install(FILES "${CMAKE_SOURCE_DIR}/scripts/gdb/tandem_gdb.py"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}" RENAME "libtandem.so.${PROJECT_VERSION}-gdb.py")

install(EXPORT TandemTargets NAMESPACE Tandem:: DESTINATION "${_package_dir}")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/TandemConfig.cmake.in"
  "${CMAKE_CURRENT_BINARY_DIR}/TandemConfig.cmake" INSTALL_DESTINATION "${_package_dir}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/TandemConfigVersion.cmake"
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/TandemConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/TandemConfigVersion.cmake" DESTINATION "${_package_dir}")

file(RELATIVE_PATH TANDEM_PC_PREFIX
  "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
foreach(name IN ITEMS tandem tandem_c)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/${name}.pc.in" "${CMAKE_CURRENT_BINARY_DIR}/${name}.pc"
    @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()
