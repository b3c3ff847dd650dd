# Uses ccache if present: a second build of the same sources takes seconds. In its depend mode, so that the first one does not
# run the preprocessor before each compiler, which would do it again.
find_program(LINERATE_CCACHE ccache)
mark_as_advanced(LINERATE_CCACHE)
if(LINERATE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_DEPEND=1 ${LINERATE_CCACHE})
endif()
