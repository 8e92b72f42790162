# What `cmake --install` copies of the runtime: the library, its plug-ins and
# headers, and how CMake and pkg-config find them. The C++ headers are no
# interface, so they stay here.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/moira)
install(TARGETS moira_runtime EXPORT moira-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
  NAMELINK_COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET moira_mpi)
  install(TARGETS moira_mpi
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
endif()
install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/moira
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.h")

install(EXPORT moira-targets NAMESPACE moira::
  DESTINATION ${package} COMPONENT development)
configure_package_config_file(
  ${CMAKE_CURRENT_SOURCE_DIR}/moira-config.cmake.in moira-config.cmake
  INSTALL_DESTINATION ${package})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(moira-config-version.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/moira-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/moira-config-version.cmake
  DESTINATION ${package} COMPONENT development)

# Folders are relative to the file, so that an installed tree may be moved.
file(RELATIVE_PATH MOIRA_PREFIX_FROM_PKGCONFIG
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/moira.pc.in moira.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/moira.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
