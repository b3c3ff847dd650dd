# Finds what the modules need. If an AUTO back end is absent, its stub is built; ON makes its absence an error.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(simdjson REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(HWY QUIET)
find_library(HWY_LIBRARY hwy)
# A build for pip does without it: it then plans and predicts compressors, and runs none.
set(LINERATE_HAS_HIGHWAY OFF)
if(HWY_LIBRARY)
  set(LINERATE_HAS_HIGHWAY ON)
elseif(NOT SKBUILD)
  message(FATAL_ERROR "Highway was not found: install libhwy-dev (tools/setup)")
endif()
if(NOT SKBUILD)
  find_package(GTest REQUIRED)
endif()

function(linerate_absent what remedy)
  if(LINERATE_WITH_${what} STREQUAL "ON")
    message(FATAL_ERROR "${what} was asked for and not found. ${remedy} or set LINERATE_WITH_${what}=OFF.")
  endif()
endfunction()

set(LINERATE_HAS_MPI OFF)
if(NOT LINERATE_WITH_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(LINERATE_HAS_MPI ON)
  else()
    linerate_absent(MPI "Install openmpi-bin and libopenmpi-dev (tools/setup)")
  endif()
endif()

set(LINERATE_HAS_TORCH OFF)
if(NOT LINERATE_WITH_TORCH STREQUAL "OFF")
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/find-torch
                  OUTPUT_VARIABLE LINERATE_TORCH_PYTHON OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(LINERATE_TORCH_PYTHON)
    execute_process(COMMAND ${LINERATE_TORCH_PYTHON} -c
      "import importlib.util,pathlib;print(pathlib.Path(importlib.util.find_spec('torch').origin).parent)"
      OUTPUT_VARIABLE LINERATE_TORCH_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
    find_package(Torch QUIET PATHS ${LINERATE_TORCH_DIR}/share/cmake NO_DEFAULT_PATH)
  endif()
  if(Torch_FOUND)
    set(LINERATE_HAS_TORCH ON)
  else()
    linerate_absent(TORCH "Run tools/setup, or point LINERATE_PYTHON to a Python with torch >= 2.11,")
  endif()
endif()

# Everything that includes LibTorch links this one target. NDEBUG: its header asserts look for debug state that the
# released library does not keep. FMT_HEADER_ONLY: the wheel carries a fmt of its own, and its headers come first.
if(LINERATE_HAS_TORCH)
  add_library(linerate_libtorch INTERFACE)
  target_include_directories(linerate_libtorch SYSTEM INTERFACE
    ${LINERATE_TORCH_DIR}/include ${LINERATE_TORCH_DIR}/include/torch/csrc/api/include)
  target_compile_definitions(linerate_libtorch INTERFACE NDEBUG FMT_HEADER_ONLY)
  target_link_libraries(linerate_libtorch INTERFACE ${LINERATE_TORCH_DIR}/lib/libtorch.so
    ${LINERATE_TORCH_DIR}/lib/libtorch_cpu.so ${LINERATE_TORCH_DIR}/lib/libc10.so)
  target_link_options(linerate_libtorch INTERFACE -Wl,-rpath,${LINERATE_TORCH_DIR}/lib)
endif()
