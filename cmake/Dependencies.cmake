# Finds what the modules need. If an AUTO back end is absent, its stub is built; ON makes its
# absence an error.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(simdjson REQUIRED)
find_package(ZLIB REQUIRED)
find_library(HWY_LIBRARY hwy)
find_path(HWY_HEADERS hwy/highway.h)
mark_as_advanced(HWY_LIBRARY HWY_HEADERS)
if(NOT HWY_LIBRARY OR NOT HWY_HEADERS)
  message(FATAL_ERROR "linerate: Highway was not found: install libhwy-dev (tools/setup)")
endif()
if(LINERATE_BUILD_CLI OR LINERATE_BUILD_BENCHES OR LINERATE_BUILD_PYTHON)
  find_package(CLI11 REQUIRED)
endif()
if(LINERATE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

function(linerate_absent what remedy)
  if(LINERATE_WITH_${what} STREQUAL "ON")
    message(FATAL_ERROR
      "linerate: ${what} was asked for and not found. ${remedy} or set LINERATE_WITH_${what}=OFF.")
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

# A LibTorch that the user names comes first, then that of a Python.
include(LinerateLibTorch)
set(LINERATE_HAS_TORCH OFF)
if(NOT LINERATE_WITH_TORCH STREQUAL "OFF")
  linerate_find_libtorch()
  if(NOT LINERATE_TORCH_ROOT AND NOT Torch_DIR)
    execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/find-torch --folder
                    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(folder)
      linerate_find_libtorch(${folder})
    endif()
  endif()
  if(LINERATE_TORCH_ROOT)
    set(LINERATE_HAS_TORCH ON)
  else()
    linerate_absent(TORCH "${LINERATE_TORCH_PROBLEM}\nName a LibTorch >= ${LINERATE_TORCH_OLDEST} \
by CMAKE_PREFIX_PATH or Torch_DIR, or a Python that has torch by LINERATE_PYTHON (tools/setup \
makes one),")
  endif()
endif()

# Everything of ours that includes LibTorch links this one target. NDEBUG: its header asserts look
# for debug state that the released library does not keep. FMT_HEADER_ONLY: the wheel carries a fmt
# of its own, and its headers come first.
if(LINERATE_HAS_TORCH)
  linerate_add_libtorch()
  set(LINERATE_TORCH_FOLDER ${LINERATE_TORCH_ROOT} CACHE
    INTERNAL "The LibTorch in use, for tests/package/run")
  add_library(linerate_libtorch INTERFACE)
  target_compile_definitions(linerate_libtorch INTERFACE NDEBUG FMT_HEADER_ONLY)
  target_link_libraries(linerate_libtorch INTERFACE linerate::libtorch)
endif()
