#!/usr/bin/env python3
"""The vectors in tests/data/contract are what tests/data/contract/contract.py writes, byte for byte.

Needs the packages of tests/requirements.txt. Exit 77: skipped, they are not there.
"""
import filecmp
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

CONTRACT = Path(__file__).resolve().parents[1] / "data" / "contract"


def main():
    missing = [name for name in ("numpy", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: no Python package {', '.join(missing)} (tests/requirements.txt, build/venv)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-B", CONTRACT / "contract.py", folder], check=True, stdout=subprocess.DEVNULL)
        names = sorted(path.name for path in Path(folder).iterdir())
        _, different, unreadable = filecmp.cmpfiles(folder, CONTRACT, names, shallow=False)
    print(f"{len(names)} files, different: {different}, absent: {unreadable}")
    return 1 if different or unreadable or not names else 0


if __name__ == "__main__":
    sys.exit(main())
