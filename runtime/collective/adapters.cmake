# Transports between processes, and how processes become ranks. Sets
# MOIRA_ADAPTER_SOURCES; moira_add_plugins() makes the libraries that the runtime
# loads by itself.
set(MOIRA_ADAPTER_SOURCES
  bootstrap/Environment.cpp
  bootstrap/Socket.cpp
  bootstrap/StoreServer.cpp
  bootstrap/TcpStore.cpp
  collective/Connect.cpp
  collective/Plugin.cpp
  collective/tcp/TcpConnect.cpp
  collective/tcp/TcpPeer.cpp
  collective/tcp/TcpTransport.cpp)

# NCCL's header and the driver's, nothing else: the libraries are loaded at run
# time, where there are any.
find_path(MOIRA_NCCL_INCLUDE nccl.h
  HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include
  DOC "Folder of nccl.h and cuda.h; without it there is no NCCL transport")
if(MOIRA_NCCL_INCLUDE AND EXISTS ${MOIRA_NCCL_INCLUDE}/cuda.h)
  set(MOIRA_HAS_NCCL ON CACHE INTERNAL "for the tests")
  list(APPEND MOIRA_ADAPTER_SOURCES
    collective/nccl/NcclLibrary.cpp
    collective/nccl/NcclTransport.cpp)
  # The vendor's headers are not ours to be warned about.
  set_source_files_properties(
    collective/nccl/NcclLibrary.cpp collective/nccl/NcclTransport.cpp
    PROPERTIES COMPILE_OPTIONS -isystem${MOIRA_NCCL_INCLUDE})
else()
  set(MOIRA_HAS_NCCL OFF CACHE INTERNAL "for the tests")
  message(STATUS "No nccl.h: the NCCL transport is not built")
  list(APPEND MOIRA_ADAPTER_SOURCES collective/nccl/NoNccl.cpp)
endif()

function(moira_add_plugins)
  # A plug-in: without it everything else works, and says what is missing.
  find_package(MPI COMPONENTS CXX)
  if(NOT MPI_CXX_FOUND)
    message(STATUS "No MPI: libmoira_mpi is not built")
    return()
  endif()
  add_library(moira_mpi MODULE
    collective/mpi/MpiLife.cpp
    collective/mpi/MpiPlugin.cpp
    collective/mpi/MpiTransport.cpp)
  set_target_properties(moira_mpi PROPERTIES
    CXX_STANDARD 17
    CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(moira_mpi PRIVATE -Wall -Wextra)
  # MPI's C++ bindings are gone from the standard and of no use here.
  target_compile_definitions(moira_mpi PRIVATE
    OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_include_directories(moira_mpi PRIVATE
    ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_link_libraries(moira_mpi PRIVATE MPI::MPI_CXX)
endfunction()
