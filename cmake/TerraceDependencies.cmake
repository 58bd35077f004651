# Every library that is not ours, found in one place. All are Debian 12 packages (deploy/install_deps.sh).
find_package(Threads REQUIRED)
find_package(OpenSSL 3 REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(Boost 1.74 REQUIRED)  # headers only: coordinator/serve/http
find_package(PkgConfig REQUIRED)
pkg_check_modules(tomlplusplus REQUIRED IMPORTED_TARGET tomlplusplus)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(libedit REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(prometheus_core REQUIRED IMPORTED_TARGET prometheus-cpp-core)
pkg_check_modules(prometheus_pull REQUIRED IMPORTED_TARGET prometheus-cpp-pull)

# Optional: XXH3 by the widest vectors of the CPU that the program runs on, where the library was built so (x86-64 only).
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::xxhash)
check_cxx_source_compiles("
  #define XXH_STATIC_LINKING_ONLY
  #include <xxh_x86dispatch.h>
  int main() {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    return XXH3_64bits_update(&state, \"\", 0) == XXH_OK ? 0 : 1;
  }" TERRACE_HAS_XXHASH_DISPATCH)
unset(CMAKE_REQUIRED_LIBRARIES)

# Optional: the transport `ucx` (docs/adr/0023).
set(TERRACE_UCX AUTO CACHE STRING "Build the transport ucx: AUTO, if UCX is found; ON: it must be; OFF")
set_property(CACHE TERRACE_UCX PROPERTY STRINGS AUTO ON OFF)
set(TERRACE_HAS_UCX FALSE)
if(NOT TERRACE_UCX STREQUAL OFF)
  pkg_check_modules(ucx IMPORTED_TARGET ucx>=1.13)
  if(TARGET PkgConfig::ucx)
    set(TERRACE_HAS_UCX TRUE)
  elseif(TERRACE_UCX STREQUAL ON)
    message(FATAL_ERROR "TERRACE_UCX=ON, but UCX 1.13 or newer was not found (Debian: libucx-dev)")
  endif()
endif()
if(TERRACE_HAS_UCX)
  message(STATUS "Transport ucx: yes, UCX ${ucx_VERSION}")
else()
  message(STATUS "Transport ucx: no, UCX was not found or TERRACE_UCX=OFF")
endif()

# Standalone Asio is headers only and ships no CMake file.
find_path(ASIO_INCLUDE_DIR asio.hpp REQUIRED)
add_library(terrace_asio INTERFACE)
target_include_directories(terrace_asio SYSTEM INTERFACE ${ASIO_INCLUDE_DIR})
target_compile_definitions(terrace_asio INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED)
target_link_libraries(terrace_asio INTERFACE Threads::Threads)
add_library(terrace::asio ALIAS terrace_asio)
