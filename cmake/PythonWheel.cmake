# What a build for pip does otherwise: it looks for all libraries first, so that one line names every one that is missing, and
# leaves as few as it can for the wheel to carry.
set(LINERATE_BUILD_PYTHON ON)
set(LINERATE_WITH_MPI OFF)
set(LINERATE_WITH_TORCH OFF)

set(missing_libraries)
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
if(missing_libraries)
  list(JOIN missing_libraries ", " missing_libraries)
  message(FATAL_ERROR "linerate: these libraries are missing: ${missing_libraries}; tools/setup --analysis installs them")
endif()

# fmt's code is in its headers, zlib's in an archive; simdjson and Highway are shared libraries, which auditwheel puts into the wheel.
add_compile_definitions(FMT_HEADER_ONLY)
set(ZLIB_USE_STATIC_LIBS ON)
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-Wl,--as-needed -Wl,--gc-sections)
