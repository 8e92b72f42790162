# Compares the symbols of LIBRARY (listed by NM) with the functions that the
# headers in FOLDER declare.
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY}
  OUTPUT_VARIABLE listing RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "expected ${NM} to list ${LIBRARY}, got ${failed}")
endif()
string(REGEX MATCHALL " [A-Za-z] [^\n]+" lines "${listing}")
set(exported)
foreach(line IN LISTS lines)
  string(REGEX REPLACE "^ [A-Za-z] " "" symbol "${line}")
  list(APPEND exported ${symbol})
endforeach()

set(text)
foreach(header IN ITEMS adapt.h queue.h ranks.h runtime.h training.h)
  file(READ ${FOLDER}/${header} part)
  string(APPEND text "${part}")
endforeach()
# A declaration is one statement; names stand before the parenthesis.
string(REGEX MATCHALL "MOIRA_API [^;(]*[ *\n](moira_[a-z_]+)\\(" declarations
  "${text}")
set(declared)
foreach(declaration IN LISTS declarations)
  string(REGEX REPLACE ".*[ *\n](moira_[a-z_]+)\\($" "\\1" symbol
    "${declaration}")
  list(APPEND declared ${symbol})
endforeach()

list(SORT exported)
list(SORT declared)
if(NOT declared)
  message(FATAL_ERROR "expected declarations in ${FOLDER}, got none")
endif()
if(NOT exported STREQUAL declared)
  message(FATAL_ERROR
    "expected the symbols ${declared}, got ${exported}")
endif()
