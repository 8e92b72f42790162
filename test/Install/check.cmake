# Installs into WORK, moves the tree, builds examples/c-api against it by
# find_package and by pkg-config, and runs both and the tools.
set(program ${SOURCE}/examples/c-api/main.c)

# run(name COMMAND...): leaves what it printed in `printed`, or stops.
function(run name)
  execute_process(COMMAND ${ARGN}
    RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${name}: ${code}\n${out}${err}")
  endif()
  set(printed "${out}" PARENT_SCOPE)
endfunction()

function(expect_checksum)
  if(NOT printed MATCHES "checksum  [0-9a-f]+\nstep ")
    message(FATAL_ERROR "expected a checksum, got:\n${printed}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(install ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
# Nothing may hang on the folder of the first installation.
file(RENAME ${WORK}/first ${WORK}/moved)
set(prefix ${WORK}/moved)

run(configure ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer
  -B ${WORK}/consumer -G ${GENERATOR} -D CMAKE_C_COMPILER=${CC}
  -D CMAKE_PREFIX_PATH=${prefix} -D MOIRA_EXAMPLE=${program})
run(build ${CMAKE_COMMAND} --build ${WORK}/consumer)
run(consumer ${WORK}/consumer/consumer ${BUNDLE} 9 3)
expect_checksum()

if(PKG_CONFIG)
  file(GLOB_RECURSE description ${prefix}/*/moira.pc)
  run(pkg-config ${PKG_CONFIG} --cflags --libs ${description})
  separate_arguments(flags UNIX_COMMAND "${printed}")
  run(compile ${CC} ${program} ${flags} -o ${WORK}/example)
  file(GLOB_RECURSE library ${prefix}/lib*/libmoira_runtime.so)
  get_filename_component(folder ${library} DIRECTORY)
  set(ENV{LD_LIBRARY_PATH} ${folder})
  run(example ${WORK}/example ${BUNDLE} 9 3)
  expect_checksum()
  unset(ENV{LD_LIBRARY_PATH})
endif()

run(moira-compile ${prefix}/bin/moira-compile ${SOURCE}/examples/olmoe/tiny.mlir
  -o ${WORK}/tiny.moira)
run(moira-run ${prefix}/bin/moira-run ${WORK}/tiny.moira --tokens 5 --json)
if(NOT printed MATCHES "\"layers\"")
  message(FATAL_ERROR "expected a report, got:\n${printed}")
endif()
foreach(tool emulate import lsp-server opt reduce run train)
  run(moira-${tool} ${prefix}/bin/moira-${tool} --version)
endforeach()
