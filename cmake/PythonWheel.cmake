# What a build for pip does otherwise: it looks for all libraries first, before a compiler, so that
# its first line names every one that is missing, and leaves as few as it can for the wheel to
# carry.
set(LINERATE_BUILD_PYTHON ON)
# pip install . --config-settings=cmake.define.LINERATE_WITH_MPI=ON: calibrate() probes, too
if(NOT "$CACHE{LINERATE_WITH_MPI}" STREQUAL "ON")
  set(LINERATE_WITH_MPI OFF)
endif()
set(LINERATE_WITH_TORCH OFF)
foreach(part TESTS BENCHES EXAMPLES)
  set(LINERATE_BUILD_${part} OFF)
endforeach()
set(LINERATE_INSTALL OFF)
set(LINERATE_WARNINGS OFF)

set(missing_libraries)
find_program(LINERATE_COMPILER NAMES $ENV{CXX} c++ g++ clang++)
if(NOT LINERATE_COMPILER)
  list(APPEND missing_libraries "a C++ compiler (g++)")
endif()
function(linerate_needs library header package)
  find_path(LINERATE_${library}_HEADER ${header})
  if(NOT LINERATE_${library}_HEADER)
    list(APPEND missing_libraries "${library} (${package})")
    set(missing_libraries ${missing_libraries} PARENT_SCOPE)
  endif()
endfunction()
linerate_needs(fmt fmt/format.h libfmt-dev)
linerate_needs(nlohmann_json nlohmann/json.hpp nlohmann-json3-dev)
linerate_needs(simdjson simdjson.h libsimdjson-dev)
linerate_needs(CLI11 CLI/CLI.hpp libcli11-dev)
linerate_needs(zlib zlib.h zlib1g-dev)
find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python_Development.Module_FOUND)
  list(APPEND missing_libraries "Python's headers (python3-dev)")
endif()
if(missing_libraries)
  list(JOIN missing_libraries ", " missing_libraries)
  message("linerate: missing here: ${missing_libraries}. tools/setup --analysis installs them.")
  message(FATAL_ERROR "Nothing was built: the line above names the libraries that are missing.")
endif()

# zlib is linked from its archive; fmt, simdjson and Highway are shared libraries, which auditwheel
# puts into the wheel. Without the code of fmt in every source (FMT_HEADER_ONLY) the build takes a
# quarter less time.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(ZLIB_USE_STATIC_LIBS ON)
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-Wl,--as-needed -Wl,--gc-sections)
