# Uses ccache if present: a second build of the same sources takes seconds.
find_program(LINERATE_CCACHE ccache)
mark_as_advanced(LINERATE_CCACHE)
if(LINERATE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LINERATE_CCACHE})
endif()
