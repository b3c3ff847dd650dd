# What users link: linerate::core, linerate::torch and linerate::mpi. Each is made of the objects of
# its modules, which are compiled once; static, or shared with BUILD_SHARED_LIBS. They show the
# headers in include/ and nothing else: the target all_verify_interface_header_sets compiles each of
# these alone, as users see it.
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.hpp)

function(linerate_library name)
  cmake_parse_arguments(ARG "" "" "MODULES;LINK;PRIVATE_LINK;HEADERS" ${ARGN})
  set(target linerate_${name})
  list(TRANSFORM ARG_MODULES REPLACE "(.+)" "$<TARGET_OBJECTS:linerate_module_\\1>")
  add_library(${target} ${ARG_MODULES})
  add_library(linerate::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME ${name}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
    FILES ${ARG_HEADERS})
  target_link_libraries(${target} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
  if(LINERATE_SANITIZE)
    target_link_options(${target} PUBLIC -fsanitize=${LINERATE_SANITIZE})
  endif()
endfunction()

# Shared libraries that a static linerate leaves to the program that links it. Found by what was
# found for the build, as an imported target: installed, its config file finds them again by the
# names that programs need at run time, so that no development package is needed there.
add_library(linerate::third_party INTERFACE IMPORTED GLOBAL)
set_target_properties(linerate::third_party PROPERTIES
  INTERFACE_LINK_LIBRARIES "fmt::fmt;simdjson::simdjson;${HWY_LIBRARY};ZLIB::ZLIB")

set(mpi_headers ${headers})
list(FILTER mpi_headers INCLUDE REGEX /comm/mpi/)
set(torch_headers ${headers})
list(FILTER torch_headers INCLUDE REGEX "/comm/c10d/|/torch_adapter/|/kfac/")
list(FILTER headers EXCLUDE REGEX "/comm/mpi/|/comm/c10d/|/torch_adapter/|/kfac/")
linerate_library(core HEADERS ${headers}
  MODULES core doc comm comm_thread compress cost models trace_input trace_job bench_logs explain
          trace compare plan sim exec calibrate report whatif advise
  LINK Threads::Threads
  PRIVATE_LINK linerate::third_party)
if(LINERATE_HAS_MPI)
  linerate_library(mpi HEADERS ${mpi_headers} MODULES comm_mpi LINK linerate_core
    PRIVATE_LINK MPI::MPI_CXX linerate::third_party)
endif()
if(LINERATE_HAS_TORCH)
  linerate_library(torch HEADERS ${torch_headers} MODULES comm_c10d exec_streams torch_codecs
    torch_adapter_streams kfac torch_adapter LINK linerate_core linerate::libtorch)
endif()
