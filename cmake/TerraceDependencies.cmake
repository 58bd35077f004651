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

# Standalone Asio is headers only and ships no CMake file.
find_path(ASIO_INCLUDE_DIR asio.hpp REQUIRED)
add_library(terrace_asio INTERFACE)
target_include_directories(terrace_asio SYSTEM INTERFACE ${ASIO_INCLUDE_DIR})
target_compile_definitions(terrace_asio INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED)
target_link_libraries(terrace_asio INTERFACE Threads::Threads)
add_library(terrace::asio ALIAS terrace_asio)
