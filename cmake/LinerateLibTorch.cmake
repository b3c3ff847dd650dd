# Finds a LibTorch and names its libraries as one target, linerate::libtorch, for linerate's own
# build and for those who use an installed one. Not by find_package(Torch): that wants a CUDA
# toolkit for CUDA builds, Caffe2's files and, elsewhere, Python.
#
# linerate_find_libtorch(FOLDER...) looks at Torch_DIR, and at nothing else if that is set; else at
# Torch_ROOT, CMAKE_PREFIX_PATH and the same variables of the environment, then at the folders
# given. It sets
#   LINERATE_TORCH_ROOT     the folder with include/ and lib/; empty: none is fit
#   LINERATE_TORCH_VERSION  such as 2.13.0
#   LINERATE_TORCH_PROBLEM  why the last one that was named is not fit
set(LINERATE_TORCH_OLDEST 2.11)

# The folder that holds share/cmake/Torch, from any of the places that people name: it, that folder,
# or pip's share/cmake.
function(linerate_libtorch_root_of place result)
  set(${result} "" PARENT_SCOPE)
  foreach(step . .. ../.. ../../..)
    get_filename_component(root "${place}/${step}" ABSOLUTE)
    if(EXISTS "${root}/share/cmake/Torch/TorchConfig.cmake" AND
      EXISTS "${root}/include/ATen/ATen.h")
      set(${result} "${root}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

function(linerate_libtorch_version_of root result)
  set(parts)
  foreach(header include/torch/headeronly/version.h include/torch/csrc/api/include/torch/version.h)
    if(EXISTS "${root}/${header}" AND NOT parts)
      foreach(part MAJOR MINOR PATCH)
        file(STRINGS "${root}/${header}" line REGEX "^#define TORCH_VERSION_${part} " LIMIT_COUNT 1)
        if(line MATCHES " ([0-9]+)$")
          list(APPEND parts ${CMAKE_MATCH_1})
        endif()
      endforeach()
    endif()
  endforeach()
  list(JOIN parts . version)
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# What is wrong with a LibTorch; empty: nothing.
function(linerate_libtorch_problem root result)
  linerate_libtorch_version_of("${root}" version)
  set(problem)
  foreach(library libtorch.so libtorch_cpu.so libc10.so)
    if(NOT EXISTS "${root}/lib/${library}")
      set(problem "${root}/lib has no ${library}.")
    endif()
  endforeach()
  if(NOT EXISTS "${root}/include/torch/csrc/api/include/torch/torch.h")
    set(problem "${root} has no torch/torch.h: the C++ interface is missing.")
  elseif(NOT version)
    set(problem "${root} does not say its version.")
  elseif(version VERSION_LESS LINERATE_TORCH_OLDEST)
    set(problem "${root} is LibTorch ${version}, older than ${LINERATE_TORCH_OLDEST}.")
  endif()
  set(${result} "${problem}" PARENT_SCOPE)
endfunction()

function(linerate_find_libtorch)
  set(LINERATE_TORCH_ROOT "" PARENT_SCOPE)
  set(LINERATE_TORCH_VERSION "" PARENT_SCOPE)
  set(places)
  foreach(variable Torch_ROOT CMAKE_PREFIX_PATH)
    list(APPEND places ${${variable}})
    string(REPLACE ":" ";" folders "$ENV{${variable}}")
    list(APPEND places ${folders})
  endforeach()
  list(APPEND places ${ARGN})
  set(problem)
  if(Torch_DIR)
    set(places ${Torch_DIR})
    set(problem "Torch_DIR=${Torch_DIR} is not the folder share/cmake/Torch of a LibTorch.")
  elseif(NOT "$ENV{Torch_DIR}" STREQUAL "")
    list(PREPEND places $ENV{Torch_DIR})
  endif()
  foreach(place ${places})
    linerate_libtorch_root_of("${place}" root)
    if(NOT root)
      continue()
    endif()
    linerate_libtorch_problem("${root}" problem)
    if(NOT problem)
      linerate_libtorch_version_of("${root}" version)
      set(LINERATE_TORCH_ROOT "${root}" PARENT_SCOPE)
      set(LINERATE_TORCH_VERSION "${version}" PARENT_SCOPE)
      break()
    endif()
  endforeach()
  set(LINERATE_TORCH_PROBLEM "${problem}" PARENT_SCOPE)
endfunction()

# CUDA builds register their kernels when libtorch_cuda is loaded: no symbol of it is used, so the
# linker must not drop it.
function(linerate_add_libtorch)
  if(TARGET linerate::libtorch)
    return()
  endif()
  set(folder ${LINERATE_TORCH_ROOT}/lib)
  set(libraries ${folder}/libtorch.so ${folder}/libtorch_cpu.so ${folder}/libc10.so)
  if(EXISTS ${folder}/libtorch_cuda.so)
    list(APPEND libraries ${folder}/libc10_cuda.so
      -Wl,--push-state,--no-as-needed,${folder}/libtorch_cuda.so,--pop-state)
  endif()
  add_library(linerate::libtorch INTERFACE IMPORTED GLOBAL)
  set_target_properties(linerate::libtorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES
    "${LINERATE_TORCH_ROOT}/include;${LINERATE_TORCH_ROOT}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${libraries}")
endfunction()
