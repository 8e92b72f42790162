# MLIR for the compiler half: finds the packages, carries every MLIR flag in one
# INTERFACE target, and gives the helpers that the rooms of lib/ use. The
# runtime never links `moira_mlir`.

# "22" alone is refused: MLIR's version file wants major.minor equality.
find_package(MLIR 22.1 REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH "${MLIR_CMAKE_DIR}" "${LLVM_CMAKE_DIR}")
set(LLVM_LINK_LLVM_DYLIB ON)
set(MLIR_LINK_MLIR_DYLIB ON)
include(TableGen)
include(AddLLVM)
include(AddMLIR)

add_library(moira_mlir INTERFACE)
target_include_directories(moira_mlir SYSTEM INTERFACE
  ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
target_include_directories(moira_mlir INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)
separate_arguments(moira_llvm_definitions NATIVE_COMMAND "${LLVM_DEFINITIONS}")
target_compile_options(moira_mlir INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:${moira_llvm_definitions} -fno-exceptions
  -fvisibility-inlines-hidden -Wall -Wextra -Wno-unused-parameter>)
# The packaged libraries are built without assertions, and classes of their
# headers (pass statistics) look different with them.
target_compile_definitions(moira_mlir INTERFACE NDEBUG)
# Exactly the two shared libraries and no static MLIR archive: nothing is then
# registered twice.
target_link_libraries(moira_mlir INTERFACE MLIR LLVM)

# moira_tablegen_dir(): lets mlir_tablegen find our and MLIR's .td files (it
# reads the directory property, not target properties).
macro(moira_tablegen_dir)
  include_directories(SYSTEM ${MLIR_INCLUDE_DIRS})
  include_directories(${PROJECT_SOURCE_DIR}/include
                      ${PROJECT_BINARY_DIR}/include)
endmacro()

# moira_use_pch(target): shares the one precompiled header, owned by MoiraMoEIR.
function(moira_use_pch target)
  if(MOIRA_PCH)
    if(target STREQUAL "MoiraMoEIR")
      target_precompile_headers(${target} PRIVATE
        ${PROJECT_SOURCE_DIR}/lib/pch.h)
    else()
      target_precompile_headers(${target} REUSE_FROM MoiraMoEIR)
    endif()
  endif()
endfunction()

# moira_library(name SOURCES a.cpp b.cpp [DEPENDS tablegen targets]): one room of
# the compiler, an object library collected into MoiraCompiler.
function(moira_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} OBJECT ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC moira_mlir)
  add_dependencies(${name} MoiraMoEIncGen MoiraPassesIncGen ${ARG_DEPENDS})
  moira_use_pch(${name})
  set_property(GLOBAL APPEND PROPERTY MOIRA_COMPILER_LIBS ${name})
endfunction()

# moira_tool(name SOURCES ... [LINK ...]): a program on top of the compiler, one
# of those that `cmake --install` copies.
function(moira_tool name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE MoiraCompiler ${ARG_LINK})
  moira_use_pch(${name})
  # LLVM stays where it is.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ${name} RUNTIME COMPONENT tools)
endfunction()
