# Installs headers, libraries, the package's config file, the licence and the programs. Components:
# linerate-core, linerate-torch, linerate-mpi, linerate-programs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/linerate)

# CMake leaves out what lies inside this tree, as .venv does.
set(torch_libraries)
if(LINERATE_HAS_TORCH)
  set(torch_libraries ${LINERATE_TORCH_ROOT}/lib)
endif()

function(linerate_install name)
  if(NOT TARGET linerate_${name})
    return()
  endif()
  set(component COMPONENT linerate-${name})
  set_target_properties(linerate_${name} PROPERTIES INSTALL_RPATH "$ORIGIN;${torch_libraries}"
    INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS linerate_${name} EXPORT linerate-${name}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${component} NAMELINK_COMPONENT linerate-${name}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} ${component}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${component})
  install(EXPORT linerate-${name} NAMESPACE linerate:: FILE linerate-${name}.cmake
    DESTINATION ${folder} ${component})
endfunction()
linerate_install(core)
linerate_install(mpi)
linerate_install(torch)

# The name by which a program finds a shared library when it starts: libfmt.so.9; a static library's
# own.
function(linerate_run_time_name library result)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${library} OUTPUT_VARIABLE headers ERROR_QUIET)
  if(headers MATCHES "SONAME +([^\n ]+)")
    set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
  else()
    get_filename_component(name ${library} NAME)
    set(${result} ${name} PARENT_SCOPE)
  endif()
endfunction()

# The file of an imported library, whatever build type its package was made with.
function(linerate_file_of target result)
  foreach(property IMPORTED_LOCATION IMPORTED_LOCATION_RELEASE
    IMPORTED_LOCATION_RELWITHDEBINFO IMPORTED_LOCATION_NONE)
    get_target_property(file ${target} ${property})
    if(file)
      set(${result} ${file} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR
    "linerate: ${target} does not say where its library is; set LINERATE_INSTALL=OFF")
endfunction()
set(LINERATE_THIRD_PARTY ${HWY_LIBRARY})
foreach(target fmt::fmt simdjson::simdjson ZLIB::ZLIB)
  linerate_file_of(${target} file)
  list(APPEND LINERATE_THIRD_PARTY ${file})
endforeach()
set(LINERATE_RUN_TIME_NAMES)
foreach(file ${LINERATE_THIRD_PARTY})
  linerate_run_time_name(${file} name)
  list(APPEND LINERATE_RUN_TIME_NAMES ${name})
endforeach()

configure_package_config_file(cmake/linerate-config.cmake.in
  ${PROJECT_BINARY_DIR}/linerate-config.cmake
  INSTALL_DESTINATION ${folder} NO_SET_AND_CHECK_MACRO)
# While versions begin with 0, the second number is the one that says what fits.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/linerate-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/linerate-config.cmake
  ${PROJECT_BINARY_DIR}/linerate-config-version.cmake cmake/LinerateLibTorch.cmake
  DESTINATION ${folder} COMPONENT linerate-core)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT linerate-core)

foreach(program linerate linerate-torch)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
    if(program STREQUAL "linerate-torch")
      set_target_properties(${program} PROPERTIES INSTALL_RPATH "${torch_libraries}")
    endif()
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
      COMPONENT linerate-programs)
  endif()
endforeach()
