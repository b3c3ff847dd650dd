# One folder, one target, one namespace. A module's CMakeLists.txt is one call:
#   linerate_module(sim DEPS core doc cost LIBRARIES fmt::fmt)
# makes target linerate_module_sim (alias linerate_module::sim) of all sources in its folder and in
# the folders below it, except folders that are modules themselves: a file added there is built.
# EXCEPT names sources that are not built here; SOURCES names the only ones that are; BATCH says how
# many are compiled as one, 24 unless told: fewer where their headers are large. Modules see each
# other's headers, public ones in include/ and private ones next to the sources; users see include/
# alone, and link what cmake/LinerateLibraries.cmake makes of the modules. A nested module
# (comm/mpi) is called comm_mpi.
add_library(linerate_options INTERFACE)
if(LINERATE_WARNINGS)
  # -Wno-restrict: g++ 12 warns wrongly about std::string's operator+ (GCC bug 105329).
  target_compile_options(linerate_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow
    -Wnon-virtual-dtor $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
endif()
# Less collecting of the compiler's own garbage: 7 % of the time for 150 MiB.
target_compile_options(linerate_options
  INTERFACE "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-heapsize=524288>")
if(LINERATE_WERROR)
  target_compile_options(linerate_options INTERFACE -Werror)
endif()
if(LINERATE_SANITIZE)
  # no-recover: UBSan alone prints and goes on, and nobody reads the output of a test that passes.
  target_compile_options(linerate_options INTERFACE -fsanitize=${LINERATE_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(linerate_options INTERFACE -fsanitize=${LINERATE_SANITIZE})
endif()
target_link_libraries(linerate_options INTERFACE Threads::Threads)

# Compiles a target's sources in batches of about equal size, each as one source, so that a batch
# reads its headers once. A source with SKIP_UNITY_BUILD_INCLUSION or options of its own is compiled
# alone (Highway's kernels include themselves).
function(linerate_unity target largest)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(LINERATE_UNITY_BATCH)
    set(largest ${LINERATE_UNITY_BATCH})
  endif()
  math(EXPR batches "(${count} + ${largest} - 1) / ${largest}")
  math(EXPR batch "(${count} + ${batches} - 1) / ${batches}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LINERATE_UNITY} UNITY_BUILD_MODE BATCH
                                             UNITY_BUILD_BATCH_SIZE ${batch})
endfunction()

# Optimises a target whose own code is nowhere hot less in a release build: it compiles in half the
# time.
function(linerate_compile_fast target level)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
endfunction()

# In sanitizer builds, compiles with -O1 instead of -Og a target in which unit.agreement spends its
# time, more than half of all that the core's suites take there. These targets compile as fast, and
# the suite takes an eighth less.
function(linerate_sanitized_fast target)
  if(LINERATE_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
endfunction()

# The files of this folder and of those below it, ordered by name, without those of nested modules.
function(linerate_files result pattern)
  file(GLOB_RECURSE files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS ${pattern})
  file(GLOB_RECURSE nested RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS */CMakeLists.txt)
  foreach(list ${nested})
    get_filename_component(folder ${list} DIRECTORY)
    list(FILTER files EXCLUDE REGEX "^${folder}/")
  endforeach()
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# Orders sources so that those that include LibTorch's interface (<torch/...>), the largest of all
# headers, come first: as few batches as can be read them.
function(linerate_torch_first sources)
  set(first)
  set(others)
  foreach(source ${${sources}})
    file(STRINGS ${source} includes REGEX "^#include <torch/" LIMIT_COUNT 1)
    if(includes)
      list(APPEND first ${source})
    else()
      list(APPEND others ${source})
    endif()
  endforeach()
  set(${sources} ${first} ${others} PARENT_SCOPE)
endfunction()

function(linerate_module name)
  cmake_parse_arguments(ARG "" "BATCH" "DEPS;SOURCES;EXCEPT;LIBRARIES;PRIVATE_LIBRARIES" ${ARGN})
  set(target linerate_module_${name})
  if(NOT ARG_SOURCES)
    linerate_files(ARG_SOURCES *.cpp)
    list(REMOVE_ITEM ARG_SOURCES ${ARG_EXCEPT})
    linerate_torch_first(ARG_SOURCES)
  endif()
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(linerate_module::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  if(NOT ARG_BATCH)
    set(ARG_BATCH 24)
  endif()
  linerate_unity(${target} ${ARG_BATCH})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/src)
  list(TRANSFORM ARG_DEPS PREPEND linerate_module::)
  target_link_libraries(${target} PUBLIC linerate_options ${ARG_DEPS} ${ARG_LIBRARIES}
    PRIVATE ${ARG_PRIVATE_LIBRARIES})
endfunction()

# A program of this tree: target linerate_NAME, file FOLDER/NAME of the build folder.
function(linerate_program name folder)
  add_executable(linerate_${name} ${ARGN})
  set_target_properties(linerate_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
endfunction()

# The target linerate_LABEL_tests builds every test with that label. Each sanitizer preset builds
# and runs the tests of one label: unit (address and undefined), threaded (thread: programs that
# start threads).
add_custom_target(linerate_unit_tests)
add_custom_target(linerate_threaded_tests)

# A test program that names the test in which it hangs or dies (tests/support/watchdog.cpp).
function(linerate_watched target)
  target_link_libraries(${target} PRIVATE linerate_watchdog)
  # stacks show the names of functions
  set_target_properties(${target} PROPERTIES ENABLE_EXPORTS ON)
endfunction()

# linerate_slow("reason" test...): why these tests take long, for build/<preset>/slow-tests.txt.
# Every test of the label slow and every one that is LONG has such a sentence next to it; without
# one configuring fails, and repo.slow_tests looks at all of them.
function(linerate_slow reason)
  if(NOT reason MATCHES " .* ")
    message(FATAL_ERROR
      "${ARGN}: a test that is LONG or labelled slow says why it is slow, in a sentence: REASON \
\"it ...\"; found \"${reason}\"")
  endif()
  foreach(test ${ARGN})
    set_property(GLOBAL APPEND_STRING PROPERTY LINERATE_SLOW_TESTS "${test}\t${reason}\n")
  endforeach()
endfunction()

# What ctest shares out among tests that compute: each processor once (test presets give this file
# to ctest). Otherwise a third test that computes runs across the two processors of two others, and
# all three take longer.
function(linerate_write_processors)
  execute_process(COMMAND nproc OUTPUT_VARIABLE count OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(processors)
  foreach(id RANGE 1 ${count})
    list(APPEND processors "{\"id\": \"${id}\", \"slots\": 1}")
  endforeach()
  list(JOIN processors ", " processors)
  file(WRITE ${CMAKE_BINARY_DIR}/processors.json
    "{\"version\": {\"major\": 1, \"minor\": 0}, \"local\": [{\"processors\": [${processors}]}]}\n")
endfunction()

# linerate_computes(test...): no more of these run at once than there are processors. The other
# tests mostly wait.
function(linerate_computes)
  set_tests_properties(${ARGN} PROPERTIES RESOURCE_GROUPS processors:1)
endfunction()

# linerate_test(unit.sim.engine SOURCES sim/engine_test.cpp DEPS sim [RANKS 2 4 | SUITES A B |
# [SHARDS 3] [APART A]] [LABELS mpi] [LIBRARIES ...] [MAIN] [NUMERIC] [LONG] [WAITS] [REASON "why"])
# makes one executable and one ctest entry; with RANKS one entry per rank count, started by mpirun;
# with SUITES one per suite of tests, name.suite; with SHARDS as many, each with every third test.
# APART: suites that each have to be a process of their own, entry name.suite. MAIN: the sources
# define main(). NUMERIC: its oracles compute so much that optimising them pays.
# LONG: takes half a minute and more, so it begins first. Threads and ranks of a test share one
# processor: they spend half of their time waking each other across two, and so does the test next
# to it. WAITS: mostly for time-outs, so it has none of its own; or it is about what really runs at
# once. REASON: why it is slow, of those that are LONG or have the label slow.
function(linerate_test name)
  cmake_parse_arguments(ARG "MAIN;NUMERIC;LONG;WAITS" "TIMEOUT;SHARDS;REASON"
    "SOURCES;DEPS;LIBRARIES;LABELS;RANKS;SUITES;APART;ARGS" ${ARGN})
  string(REPLACE "." "_" program test_${name})
  set(target linerate_${program})
  linerate_program(${program} tests ${ARG_SOURCES})
  linerate_unity(${target} 12)
  linerate_compile_fast(${target} $<IF:$<BOOL:${ARG_NUMERIC}>,-O1,-O0>)
  list(TRANSFORM ARG_DEPS PREPEND linerate_module::)
  # g++ 12 warns about members that designated initializers leave out.
  target_compile_options(${target} PRIVATE -Wno-missing-field-initializers)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE linerate_options ${ARG_DEPS} ${ARG_LIBRARIES}
    GTest::gmock)
  if(NOT ARG_MAIN)
    target_link_libraries(${target} PRIVATE GTest::gmock_main)
    linerate_watched(${target})
    list(APPEND ARG_ARGS --gtest_brief=1)  # failures must not get lost among passes
  endif()
  foreach(label unit threaded)
    if(label IN_LIST ARG_LABELS)
      add_dependencies(linerate_${label}_tests ${target})
    endif()
  endforeach()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(LINERATE_SANITIZE)
    math(EXPR ARG_TIMEOUT "3 * ${ARG_TIMEOUT}")
  endif()
  set(entries)
  set(properties TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77 RESOURCE_GROUPS processors:1)
  set(start ${PROJECT_SOURCE_DIR}/tools/one-processor)
  if(ARG_WAITS)
    set(start)
    set(properties TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
  endif()
  if(ARG_LONG)
    list(APPEND properties COST 100)
  endif()
  foreach(suite ${ARG_SUITES} ${ARG_APART})
    list(APPEND entries ${name}.${suite})
    add_test(NAME ${name}.${suite} COMMAND ${start} $<TARGET_FILE:${target}> ${ARG_ARGS}
      --gtest_filter=${suite}.*
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name}.${suite} PROPERTIES LABELS "${ARG_LABELS}" ${properties})
  endforeach()
  if(ARG_APART)
    list(JOIN ARG_APART ".*:" apart)
    list(APPEND ARG_ARGS "--gtest_filter=-${apart}.*")
  endif()
  if(ARG_RANKS)
    foreach(ranks ${ARG_RANKS})
      list(APPEND entries ${name}.${ranks}ranks)
      add_test(NAME ${name}.${ranks}ranks WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
        COMMAND ${start} ${PROJECT_SOURCE_DIR}/tools/mpirun -n ${ranks} $<TARGET_FILE:${target}>
        ${ARG_ARGS})
      set_tests_properties(${name}.${ranks}ranks PROPERTIES LABELS "${ARG_LABELS}" ${properties})
    endforeach()
  elseif(ARG_SHARDS)
    foreach(shard RANGE 1 ${ARG_SHARDS})
      list(APPEND entries ${name}.${shard})
      math(EXPR index "${shard} - 1")
      add_test(NAME ${name}.${shard} COMMAND ${start} $<TARGET_FILE:${target}> ${ARG_ARGS}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_tests_properties(${name}.${shard} PROPERTIES LABELS "${ARG_LABELS}" ${properties}
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${index}")
    endforeach()
  elseif(NOT ARG_SUITES)
    add_test(NAME ${name} COMMAND ${start} $<TARGET_FILE:${target}> ${ARG_ARGS}
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" ${properties})
    list(APPEND entries ${name})
  endif()
  if(ARG_LONG OR "slow" IN_LIST ARG_LABELS)
    linerate_slow("${ARG_REASON}" ${entries})
  elseif(ARG_REASON)
    message(FATAL_ERROR "${name}: REASON is of tests that are LONG or have the label slow")
  endif()
endfunction()

# linerate_test_objects(codec_suite a_test.cpp... DEPS compress [LIBRARIES ...]) compiles once, as
# target linerate_codec_suite, tests that several programs link:
# $<TARGET_OBJECTS:linerate_codec_suite> among their SOURCES.
function(linerate_test_objects name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBRARIES" ${ARGN})
  set(target linerate_${name})
  add_library(${target} OBJECT ${ARG_UNPARSED_ARGUMENTS})
  linerate_unity(${target} 12)
  linerate_compile_fast(${target} -O1)
  list(TRANSFORM ARG_DEPS PREPEND linerate_module::)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE linerate_options ${ARG_DEPS} ${ARG_LIBRARIES}
    GTest::gmock)
endfunction()

# linerate_bench(sim SOURCES sim.cpp DEPS sim): program build/<preset>/bench/sim, target
# linerate_bench_sim; built by the target linerate_benches (make bench), and never run by ctest.
add_custom_target(linerate_benches)
function(linerate_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBRARIES" ${ARGN})
  set(target linerate_bench_${name})
  add_executable(${target} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name}
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  add_dependencies(linerate_benches ${target})
  list(TRANSFORM ARG_DEPS PREPEND linerate_module::)
  target_link_libraries(${target} PRIVATE linerate_options ${ARG_DEPS} ${ARG_LIBRARIES})
endfunction()
