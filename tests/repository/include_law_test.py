#!/usr/bin/env python3
"""Plants one violation of each rule in a small tree and shows that include_law.py names it."""
import tempfile
import unittest
from pathlib import Path

import include_law

CLEAN = {
    "common/base/CMakeLists.txt": "HEADERS result.h log.h",
    "common/base/result.h": "#include <string>\n",
    "common/base/log.h": '#include "common/base/result.h"\n',
    "common/base/log.cpp": '#include "common/base/log.h"\n#include <spdlog/logger.h>\n',
    "common/base/environment.cpp": "// getenv\nchar** e = environ;\n",
    "common/transport/tcp/tcp.cpp": "#include <asio.hpp>\n#include <asio/ip/tcp.hpp>\n#include <sys/socket.h>\n",
    "kernels/cpu/CMakeLists.txt": "HEADERS lanes.h q/block.h",
    "kernels/cpu/lanes.h": "#include <cstdint>\n",
    "kernels/cpu/avx2_tiles.h": "#include <immintrin.h>\n",
    "kernels/cpu/q/block.h": '#include "kernels/cpu/lanes.h"\n',
    "kernels/cpu/q/avx2.cpp": '#include <immintrin.h>\n#include "kernels/cpu/q/block.h"\n',
    "kernels/cpu/q/reference.cpp": '#include <algorithm>\n#include "common/base/result.h"\n',
    "kernels/cuda/device/CMakeLists.txt": "HEADERS card.h",
    "kernels/cuda/device/card.h": "#include <cstdint>\n",
    "kernels/cuda/device/card.cpp": '#include "kernels/cuda/device/card.h"\n#include <cuda_runtime_api.h>\n',
    "kernels/cuda/op/kernel.cuh": '#include <cuda_fp16.h>\n#include "kernels/cpu/lanes.h"\n',
    "kernels/cuda/op/q.cu": '#include "kernels/cuda/op/kernel.cuh"\n',
    "coordinator/legs/CMakeLists.txt": "HEADERS leg.h\n  INTERNAL_HEADERS\n    lane.h soft_limit.h\n  SOURCES leg.cpp",
    "coordinator/legs/lane.h": "#include <string>\n",
    "coordinator/legs/soft_limit.h": '#include "coordinator/legs/lane.h"\n',
    "coordinator/planner/CMakeLists.txt": "HEADERS plan.h",
    "coordinator/planner/plan.h": '#include "coordinator/legs/leg.h"\n',
    "coordinator/legs/leg.h": '#include "common/base/result.h"\n#include "kernels/cpu/lanes.h"\n',
    "coordinator/legs/leg.cpp": '#include "coordinator/legs/leg.h"\n#include <grpcpp/grpcpp.h>\n'
                                '#include "terrace/v1/node.grpc.pb.h"\n',
    "tier_node/app/main.cpp": "#include <vector>\n",
}

PLANTED = (
    ("common/base/result.h", '#include "common/gguf/file.h"\n', "no such file"),
    ("common/base/result.h", '#include "kernels/cpu/lanes.h"\n', "include only common/base/"),
    ("kernels/cpu/q/reference.cpp", '#include "common/transport/tcp/tcp.h"\n', "no such file"),
    ("kernels/cpu/q/reference.cpp", '#include "coordinator/legs/leg.h"\n', "include only common/base/, kernels/"),
    ("kernels/cpu/q/reference.cpp", "#include <thread>\n", "kernels start no threads"),
    ("tier_node/app/main.cpp", '#include "coordinator/legs/leg.h"\n', "include only common/"),
    ("tier_node/app/main.cpp", '#include "../app/main.cpp"\n', "paths begin there"),
    ("tier_node/app/main.cpp", "#include <asio.hpp>\n", "Asio only"),
    ("tier_node/app/main.cpp", "#include <openssl/evp.h>\n", "OpenSSL only"),
    ("common/security/secret.h", "#include <openssl/evp.h>\n", "OpenSSL only"),
    ("tier_node/app/main.cpp", "#include <pcre2.h>\n", "PCRE2 only"),
    ("tier_node/app/main.cpp", "#include <hwloc.h>\n", "hwloc only"),
    ("tier_node/app/main.cpp", "#include <CLI/CLI.hpp>\n", "CLI11 only"),
    ("tier_node/app/main.cpp", "#include <toml++/toml.h>\n", "toml++ only"),
    ("tier_node/app/main.cpp", "#include <spdlog/spdlog.h>\n", "spdlog only"),
    ("tier_node/app/main.cpp", "#include <immintrin.h>\n", "intrinsics only"),
    ("tier_node/app/main.cpp", "#include <curl/curl.h>\n", "does not know"),
    ("coordinator/serve/http/server.cpp", "#include <boost/beast/http.hpp>\n", "Boost"),
    ("coordinator/serve/http/server.h", "#include <asio.hpp>\n", "Asio only"),
    ("tier_node/app/main.cpp", 'const char* home = std::getenv("HOME");\n', "the environment is read only"),
    ("tier_node/app/main.cpp", "std::thread(f).detach();\n", "never detached"),
    ("tier_node/app/main.cpp", "thread_ = std::thread([this] { loop(); });\n", "only by start_thread()"),
    ("tier_node/app/main.cpp", "std::thread worker(f);\n", "only by start_thread()"),
    ("tier_node/app/main.cpp", "std::vector<std::jthread> threads;\n", "only by start_thread()"),
    ("coordinator/legs/leg.h", "#include <grpcpp/grpcpp.h>\n", "gRPC and protobuf only"),
    ("coordinator/legs/leg.h", '#include "terrace/v1/node.pb.h"\n', "generated headers stop"),
    ("coordinator/legs/leg.h", "#include <nlohmann/json.hpp>\n", "JSON only"),
    ("common/transport/tcp/tcp.cpp", '#include "terrace/v1/node.pb.h"\n', "may not include generated"),
    ("kernels/cpu/q/reference.cpp", "#include <nlohmann/json.hpp>\n", "JSON only"),
    ("kernels/cpu/q/reference.cpp", "#include <sys/mman.h>\n", "no system calls"),
    ("kernels/cpu/q/avx2.cpp", "#include <algorithm>\n", "ISA files see only"),
    ("kernels/cpu/q/avx2.cpp", '#include "common/base/result.h"\n', "ISA files see only"),
    ("kernels/cpu/q/avx512_vnni.cpp", "#include <algorithm>\n", "ISA files see only"),
    ("kernels/cpu/lanes.h", "#include <vector>\n", "kernels/cpu/q/avx2.cpp sees it"),
    ("kernels/cuda/op/q.cu", '#include "coordinator/legs/leg.h"\n', "include only common/base/, kernels/"),
    ("kernels/cuda/op/q.cu", "#include <fmt/core.h>\n", "device code formats nothing"),
    ("kernels/cuda/op/q.cu", None, "no .cu of its folder begins with this header", "kernels/cuda/op/kernel.cuh"),
    ("kernels/cuda/op/other.cuh", "", "no .cu of its folder begins with this header"),
    ("kernels/cuda/device/card.cpp", '#include "kernels/cuda/op/kernel.cuh"\n', "is device code"),
    ("kernels/cuda/op/q.cu", "#include <cuda_runtime_api.h>\n", "the driver's interface only"),
    ("tier_node/app/main.cpp", "#include <cuda_fp16.h>\n", "CUDA headers only in kernels/cuda"),
    ("common/base/log.cpp", None, "its first #include"),
    ("coordinator/legs/extra.h", "", "no CMakeLists.txt names this header"),
    ("coordinator/planner/plan.h", '#include "coordinator/legs/soft_limit.h"\n', "INTERNAL_HEADERS of coordinator/legs/"),
)


class IncludeLaw(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def violations(self, files):
        root = Path(self.folder.name)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return include_law.violations(root)

    def test_clean_tree_passes(self):
        self.assertEqual(self.violations(CLEAN), [])

    def test_each_planted_violation_is_named(self):
        for name, line, expected, *named in PLANTED:
            with self.subTest(name=name, line=line):
                text = CLEAN.get(name, "")
                planted = text + line if line is not None else "#include <string>\n" + text
                found = self.violations({**CLEAN, name: planted})
                who = named[0] if named else name
                self.assertTrue(any(expected in v and who in v for v in found), f"{found} lacks {expected!r}")
                (Path(self.folder.name) / name).unlink()


if __name__ == "__main__":
    unittest.main()
