#!/usr/bin/env python3
"""Holds the include law of docs/architecture.md over every source file of the product.

usage: include_law.py [ROOT]      prints one line a violation, exit status 1 when there is any

All targets share the root as their include base, so the linker cannot hold the law; this script can. It reads the
tables below and every #include. include_law_test.py shows that each rule fails on the defect it guards.
"""
import functools
import re
import sys
from pathlib import Path

PRODUCT = ("common", "kernels", "coordinator", "tier_node")

# Which folders of ours a folder may include; the first matching prefix counts. "proto" stands for generated headers.
FOLDERS = (
    ("common/base/", ("common/base/",)),
    ("common/", ("common/",)),
    ("kernels/", ("common/base/", "kernels/")),
    ("coordinator/", ("common/", "kernels/", "proto/", "coordinator/")),
    ("tier_node/", ("common/", "kernels/", "proto/", "tier_node/")),
)

# Where a library's headers may be included: a pattern of the header, a pattern of our files, how to say it.
LIBRARIES = (
    (r"asio(\.hpp|/.*)", r"(common/transport/tcp|coordinator/serve/http)[/_.\w]*\.cpp",
     "Asio only in .cpp files of common/transport/tcp and coordinator/serve/http"),
    (r"boost/.*", r"coordinator/serve/http/request_reader\.cpp",
     "Boost (Beast's parser) only in coordinator/serve/http/request_reader.cpp"),
    (r"(grpc|grpcpp|google|absl)/.*", r"(coordinator/legs|tier_node/(service|app))/.*\.cpp",
     "gRPC and protobuf only in .cpp files of coordinator/legs, tier_node/service and tier_node/app"),
    (r"openssl/.*", r"common/security/(.*\.cpp|openssl_handles\.h)",
     "OpenSSL only in .cpp files of common/security and their openssl_handles.h"),
    (r"pcre2\.h", r"coordinator/text/.*\.cpp", "PCRE2 only in .cpp files of coordinator/text"),
    (r"(ucp|uct|ucs|ucm)/.*", r"common/transport/ucx/.*", "UCX only in common/transport/ucx"),
    (r"hwloc\.h", r"common/threads/topology\.cpp", "hwloc only in common/threads/topology.cpp"),
    (r"prometheus/.*", r"common/metrics/.*", "prometheus-cpp only in common/metrics"),
    (r"histedit\.h", r"coordinator/terminal/line_editor\.cpp", "libedit only in coordinator/terminal/line_editor.cpp"),
    (r"CLI/.*", r"common/base/options\.cpp", "CLI11 only in common/base/options.cpp"),
    (r"toml\+\+/.*", r"common/base/options\.cpp", "toml++ only in common/base/options.cpp"),
    (r"spdlog/.*", r"common/base/log\.cpp", "spdlog only in common/base/log.cpp"),
    (r"nlohmann/json_fwd\.hpp", r"(?!kernels/).*", "no JSON in kernels"),
    (r"nlohmann/(?!json_fwd).*", r"(?!kernels/).*\.cpp", "JSON only in .cpp files (headers: json_fwd.hpp), not in kernels"),
    (r"xxhash\.h", r"common/.*|.*\.cpp", "xxHash only in common and in .cpp files"),
    (r"asm/hwcap\.h", r"common/security/cipher\.cpp", "the kernel's names of Arm's features only where ciphers are chosen"),
    (r"(immintrin|x86intrin|arm_neon)\.h", r"kernels/cpu/.*", "intrinsics only in kernels/cpu"),
    (r"thread|future|fstream", r"(?!kernels/).*", "kernels start no threads and read no files"),
    (r"iostream", r"(coordinator|tier_node)/app/.*", "only programs print"),
    (r"(sys|linux|net|netinet|arpa)/.*", r"(?!kernels/).*", "kernels make no system calls"),
    (r"fmt/.*", r"(?!.*\.cuh?$).*", "device code formats nothing"),
    (r"cuda_runtime_api\.h", r"kernels/cuda/device/.*", "the driver's interface only in kernels/cuda/device"),
    (r"cuda_fp16\.h", r"kernels/cuda/.*", "CUDA headers only in kernels/cuda"),
)

# What a file compiled for one instruction set may see, itself and through headers of ours: no inline std function, for
# the linker may keep that copy for the whole program.
ISA_FILE = re.compile(r"kernels/cpu/.*avx[\w]*\.cpp|kernels/cpu/.*(neon|sve)[\w]*\.cpp")
ISA_HEADERS = {"immintrin.h", "arm_neon.h", "string.h", "stdint.h", "stddef.h", "math.h", "float.h",
               "cstdint", "cstddef", "cstring", "cfloat"}
ISA_FOLDER = "kernels/cpu/"
# Headers for such files alone: without the flags of their ISA they do not compile, so no target can list them.
ISA_ONLY_HEADER = re.compile(r"kernels/cpu/(.*/)?(avx|neon|sve)\w*\.h")

# Words that have one home.
WORDS = (
    (re.compile(r"\b(secure_)?getenv\b|\benviron\b|\bsetenv\b"), "common/base/environment.cpp",
     "the environment is read only in common/base/environment.cpp"),
    (re.compile(r"\bstd::thread(\s+\w+)?\s*[({]|\bstd::jthread\b|\bstd::async\b"), "common/threads/start.cpp",
     "threads are started only by start_thread(), whose error says what was short"),
    (re.compile(r"\.detach\(\)"), None, "threads are joined, never detached"),
)

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
COMMENT = re.compile(r"//.*$")
INTERNAL_HEADERS = re.compile(r"\bINTERNAL_HEADERS((?:\s+[\w./]+\.h)+)")


def product_files(root):
    for folder in PRODUCT:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                yield path.relative_to(root).as_posix()


def read(root, name):
    return (root / name).read_text(encoding="utf-8", errors="replace").splitlines()


def includes(lines):
    """(line number, quoted?, header) of every #include."""
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def allowed_folders(name):
    return next(allowed for prefix, allowed in FOLDERS if name.startswith(prefix))


@functools.lru_cache(maxsize=None)
def internal_headers(folder):
    """The INTERNAL_HEADERS of a folder's CMakeLists.txt."""
    listing = folder / "CMakeLists.txt"
    text = listing.read_text() if listing.is_file() else ""
    return {header for found in INTERNAL_HEADERS.findall(text) for header in found.split()}


def check_ours(root, name, header):
    if header.endswith((".pb.h", ".grpc.pb.h")):
        if not name.endswith(".cpp"):
            return "generated headers stop at .cpp files"
        if "proto/" not in allowed_folders(name):
            return f"{name.split('/')[0]}/ may not include generated headers"
        return check_library(name, "google/protobuf/message.h")
    if not (root / header).is_file():
        return "no such file below the root of the repository; paths begin there"
    if not header.startswith(allowed_folders(name)):
        return f"files of {name.rsplit('/', 1)[0]}/ include only {', '.join(allowed_folders(name))}"
    folder, file = header.rsplit("/", 1)
    if folder != name.rsplit("/", 1)[0] and file in internal_headers(root / folder):
        return f"is one of the INTERNAL_HEADERS of {folder}/, for that folder alone"
    return None


def check_library(name, header):
    known = "/" not in header
    for pattern, files, text in LIBRARIES:
        if re.fullmatch(pattern, header):
            known = True
            if re.fullmatch(files, name) is None:
                return text
    return None if known else "a library that the table of tests/repository/include_law.py does not know"


def check_own_header_first(root, name, found):
    own = re.sub(r"\.(cpp|cu)$", ".h", name)
    if own != name and (root / own).is_file() and (not found or found[0][2] != own):
        return f'its first #include is "{own}", which proves that the header stands alone'
    return None


def check_device_header(root, name, found):
    """No target compiles a .cuh alone, so one .cu beside it has to begin with it; only device code sees it."""
    for _, quoted, header in found:
        if quoted and header.endswith(".cuh") and not name.endswith((".cu", ".cuh")):
            return f"{header} is device code: only .cu and .cuh files include it"
    if not name.endswith(".cuh"):
        return None
    for source in sorted((root / name).parent.rglob("*.cu")):
        first = next(includes(read(root, source.relative_to(root).as_posix())), None)
        if first and first[2] == name:
            return None
    return "no .cu of its folder begins with this header, which would prove that it stands alone"


def isa_closure(root, name):
    """(file, line, quoted?, header) of all that an ISA file sees through headers of ours."""
    seen, todo = set(), [name]
    while todo:
        current = todo.pop()
        if current in seen or not (root / current).is_file():
            continue
        seen.add(current)
        for number, quoted, header in includes(read(root, current)):
            yield current, number, quoted, header
            if quoted:
                todo.append(header)


def check_isa_file(root, name):
    for file, number, quoted, header in isa_closure(root, name):
        if (quoted and not header.startswith(ISA_FOLDER)) or (not quoted and header not in ISA_HEADERS):
            yield f"{file}:{number}: {header}: {name} sees it, and ISA files see only intrinsics, C headers and " \
                  f"plain headers of {ISA_FOLDER}"


def check_file(root, name):
    lines = read(root, name)
    found = list(includes(lines))
    for number, quoted, header in found:
        problem = check_ours(root, name, header) if quoted else check_library(name, header)
        if problem:
            yield f"{name}:{number}: {header}: {problem}"
    for problem in (check_own_header_first(root, name, found), check_device_header(root, name, found)):
        if problem:
            yield f"{name}:1: {problem}"
    for number, line in enumerate(lines, 1):
        for pattern, home, text in WORDS:
            if name != home and pattern.search(COMMENT.sub("", line)):
                yield f"{name}:{number}: {text}"
    if ISA_FILE.fullmatch(name):
        yield from check_isa_file(root, name)
    if name.endswith(".h") and not ISA_ONLY_HEADER.fullmatch(name) and not declared(root, name):
        yield f"{name}:1: no CMakeLists.txt names this header, so nothing checks that it stands alone"


def declared(root, name):
    """The CMakeLists.txt of the header's folder, or of one above it, names the header."""
    folder = (root / name).parent
    while folder != root:
        listing = folder / "CMakeLists.txt"
        relative = (root / name).relative_to(folder).as_posix()
        if listing.is_file() and re.search(r"(?<![\w/])" + re.escape(relative) + r"(?![\w])", listing.read_text()):
            return True
        folder = folder.parent
    return False


def violations(root):
    return [line for name in product_files(root) for line in check_file(root, name)]


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    found = violations(root)
    print("\n".join(found) if found else "the include law holds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
