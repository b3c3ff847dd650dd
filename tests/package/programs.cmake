# What a project of one's own writes after it has linerate, in whatever way: one program for each
# component in COMPONENTS.
foreach(component ${COMPONENTS})
  add_executable(${component} ../${component}.cpp)
  target_link_libraries(${component} PRIVATE linerate::${component})
endforeach()
if("torch" IN_LIST COMPONENTS AND "mpi" IN_LIST COMPONENTS)
  target_link_libraries(torch PRIVATE linerate::mpi)
  target_compile_definitions(torch PRIVATE WITH_MPI)
endif()
add_test(NAME trainer.core COMMAND core)

# Headers that are not public are not there.
add_library(private_header EXCLUDE_FROM_ALL ../private_header.cpp)
target_link_libraries(private_header PRIVATE linerate::core)
