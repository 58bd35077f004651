# Whether kernels for cards are built, and how (docs/hacking.md).
#
#   TERRACE_CUDA                AUTO: if nvcc is found; ON: it must be; OFF: no card kernels
#   TERRACE_CUDA_ARCHITECTURES  real architectures: 90a (H100, H200), 86 (RTX 30), 120 (RTX 50), 121 (DGX Spark)
set(TERRACE_CUDA AUTO CACHE STRING "Build kernels for NVIDIA cards: AUTO, ON or OFF")
set_property(CACHE TERRACE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TERRACE_CUDA_ARCHITECTURES 90a CACHE STRING "Card architectures, from 86;90a;120;121")

set(TERRACE_HAS_CUDA FALSE)
if(NOT TERRACE_CUDA STREQUAL OFF)
  list(TRANSFORM TERRACE_CUDA_ARCHITECTURES APPEND "-real" OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # The driver is loaded when a program first asks for a card: one binary for machines with and without one.
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    enable_language(CUDA)
    # CMake 3.25 knows no flag for nvcc's C++20 and takes none if it need not: TerraceTargets.cmake gives it.
    set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
    find_package(CUDAToolkit REQUIRED)
    set(TERRACE_HAS_CUDA TRUE)
  elseif(TERRACE_CUDA STREQUAL ON)
    message(FATAL_ERROR "TERRACE_CUDA=ON, but no nvcc was found: put it into PATH or set CMAKE_CUDA_COMPILER")
  endif()
endif()

if(TERRACE_HAS_CUDA)
  message(STATUS "Kernels for cards: yes, nvcc ${CMAKE_CUDA_COMPILER_VERSION}, sm_${TERRACE_CUDA_ARCHITECTURES}")
elseif(TERRACE_CUDA STREQUAL OFF)
  message(STATUS "Kernels for cards: no (TERRACE_CUDA=OFF)")
else()
  message(STATUS "Kernels for cards: no, nvcc was not found")
endif()
