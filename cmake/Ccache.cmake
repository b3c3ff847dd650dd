# Uses ccache if present: a second build of the same sources takes seconds. In its depend mode, so
# that the first one does not run the preprocessor before each compiler, which would do it again.
# Paths in the source tree are relative to the build folder (CCACHE_BASEDIR), so that build folders
# at the same depth share objects: unity sources lie in them, and ccache tells sources apart by
# their paths. Messages of the compiler name whole paths all the same.
find_program(LINERATE_CCACHE ccache)
mark_as_advanced(LINERATE_CCACHE)
if(LINERATE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_DEPEND=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
    CCACHE_ABSSTDERR=1 ${LINERATE_CCACHE})
endif()
