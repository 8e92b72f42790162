# The reference pages are generated from the .td files and committed. Target
# moira-docs writes them; the test docs-fresh fails when they are stale.
if(NOT DEFINED Python3_EXECUTABLE AND EXISTS /usr/bin/python3)
  # The one that scripts/setup installs, whatever stands earlier on the path.
  set(Python3_EXECUTABLE /usr/bin/python3 CACHE FILEPATH "Python interpreter")
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(moira_docs_command
  ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/generate-docs.py
  --tblgen ${LLVM_TOOLS_BINARY_DIR}/mlir-tblgen)
foreach(dir IN LISTS MLIR_INCLUDE_DIRS)
  list(APPEND moira_docs_command --include ${dir})
endforeach()
add_custom_target(moira-docs COMMAND ${moira_docs_command} VERBATIM)
add_test(NAME docs-fresh COMMAND ${moira_docs_command} --check)
set_tests_properties(docs-fresh PROPERTIES LABELS docs)
