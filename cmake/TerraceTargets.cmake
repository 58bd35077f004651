# How a target of ours is declared: one per folder, its files and dependencies spelled out.

# Flags of every target. The numerics contract (docs/numerics.md) allows no contraction and no fast-math anywhere,
# so these are set once, here, and for all.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off> $<$<COMPILE_LANGUAGE:CXX>:-fno-fast-math>)
foreach(warning -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wimplicit-fallthrough)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${warning}>)
endforeach()
# It spares a file's own types, and takes the file that joins several for a header.
if(CMAKE_UNITY_BUILD)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
# The same for cards: no contraction, subnormals kept, division and square root rounded as IEEE says.
foreach(flag -std=c++20 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr
             -Werror=all-warnings -Xcompiler=-ffp-contract=off,-fno-fast-math)
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:${flag}>)
endforeach()

# Most of what a first build compiles headers alone for are those that only their own folder includes.
option(TERRACE_VERIFY_INTERNAL_HEADERS
       "all_verify_interface_header_sets compiles INTERNAL_HEADERS alone as well (tests/run.sh --full)" OFF)

# terrace_add_library(<folder_name>
#   HEADERS <what other folders may include>  INTERNAL_HEADERS <what only this folder and tests do>
#   SOURCES <the rest>  PUBLIC <dependencies>  PRIVATE <dependencies>)
# Makes terrace_<folder_name> with the alias terrace::<folder_name>.
function(terrace_add_library name)
  cmake_parse_arguments(ARG "" "" "HEADERS;INTERNAL_HEADERS;SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(ARG_SOURCES)
    add_library(terrace_${name} STATIC)
    set(scope PUBLIC)
    target_sources(terrace_${name} PRIVATE ${ARG_SOURCES})
  else()
    add_library(terrace_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(terrace::${name} ALIAS terrace_${name})
  target_sources(terrace_${name} ${scope} FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  if(ARG_INTERNAL_HEADERS)
    target_sources(terrace_${name} ${scope}
      FILE_SET internal_headers TYPE HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_INTERNAL_HEADERS})
  endif()
  if(NOT TERRACE_VERIFY_INTERNAL_HEADERS)
    set_target_properties(terrace_${name} PROPERTIES INTERFACE_HEADER_SETS_TO_VERIFY HEADERS)
  endif()
  target_include_directories(terrace_${name} ${scope} ${PROJECT_SOURCE_DIR})
  target_link_libraries(terrace_${name} ${scope} ${ARG_PUBLIC})
  if(ARG_PRIVATE)
    target_link_libraries(terrace_${name} PRIVATE ${ARG_PRIVATE})
  endif()
  set_target_properties(terrace_${name} PROPERTIES
    LINK_LIBRARIES_ONLY_TARGETS ON          # a misspelt dependency is an error, not a -l flag
    VERIFY_INTERFACE_HEADER_SETS ON)        # target all_verify_interface_header_sets: each header compiles alone
endfunction()

# terrace_add_program(<name> SOURCES ... PRIVATE ...): a binary in build/<preset>/bin.
function(terrace_add_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PRIVATE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES LINK_LIBRARIES_ONLY_TARGETS ON)
endfunction()

# What files of an ISA may use: kernels/cpu/isa.h asks a CPU for the same.
set(TERRACE_AVX2_FLAGS -mavx2 -mfma -mf16c -mbmi2)
set(TERRACE_AVX512_VNNI_FLAGS ${TERRACE_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # Its own avx512fintrin.h begins unmasked intrinsics from a register left undefined, and it then warns of that
  # (GCC bug 105593).
  list(APPEND TERRACE_AVX512_VNNI_FLAGS -Wno-uninitialized -Wno-maybe-uninitialized)
endif()

# terrace_add_cuda_library(<folder_name> ...): a library of kernels/cuda, where cards are built for at all. Sources may be
# .cu; .cuh files are named among the SOURCES. The target terrace_cuda_kernels is all of them.
add_custom_target(terrace_cuda_kernels)
function(terrace_add_cuda_library name)
  if(TERRACE_HAS_CUDA)
    terrace_add_library(${name} ${ARGN})
    add_dependencies(terrace_cuda_kernels terrace_${name})
    target_link_libraries(terrace_${name} PRIVATE CUDA::cudart_static)
  endif()
endfunction()

# terrace_isa_sources(<target> <files>): sources of <target> that are compiled for one ISA, named by the file:
# avx2.cpp, avx2_something.cpp, avx512_vnni.cpp. These files may use no inline std function (docs/architecture.md says
# why). On another architecture the file is left out.
function(terrace_isa_sources target)
  foreach(file IN LISTS ARGN)
    if(file MATCHES "avx2[a-z0-9_]*\\.cpp$")
      set(flags ${TERRACE_AVX2_FLAGS})
    elseif(file MATCHES "avx512_vnni[a-z0-9_]*\\.cpp$")
      set(flags ${TERRACE_AVX512_VNNI_FLAGS})
    else()
      message(FATAL_ERROR "terrace_isa_sources: no flags are known for ${file}")
    endif()
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      target_sources(${target} PRIVATE ${file})
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${flags}")
    endif()
  endforeach()
endfunction()
