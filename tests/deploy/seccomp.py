"""Runs a program under the system call filter of a unit: `seccomp.py UNIT_FILES... -- PROGRAM ARGUMENTS...`.

systemd as process 1 is not needed: the filter's groups are what `systemd-analyze syscall-filter` says, libseccomp turns
them into the same kind of kernel filter. A call outside the filter fails with EPERM, as SystemCallErrorNumber says.
--without CALL,... takes further calls away, as a container's default profile does.
"""

import ctypes
import errno
import os
import re
import subprocess
import sys
from pathlib import Path

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_NO_SUCH_CALL = -1  # __NR_SCMP_ERROR


def expand(word):
    """The calls behind a word of SystemCallFilter=: a call's name, or @group with its groups expanded."""
    if not word.startswith("@"):
        return {word}
    listed = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", word],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    calls = set()
    for line in listed.splitlines()[1:]:
        if line.strip() and not line.strip().startswith("#"):
            calls |= expand(line.strip())
    return calls


def allowed_calls(texts):
    """What the SystemCallFilter= lines of a unit and its drop-ins, in their order, leave. An allow list comes first;
    `~` takes from it."""
    calls = set()
    for line in "\n".join(texts).splitlines():
        match = re.match(r"SystemCallFilter=(~?)(.*)", line)
        if match:
            for word in match.group(2).split():
                calls = calls - expand(word) if match.group(1) else calls | expand(word)
    # systemd never filters what it needs to start the program and end its threads.
    return calls | expand("@default") | {"execve"}


def apply(calls):
    """Confines this process and what it starts."""
    library = ctypes.CDLL("libseccomp.so.2")  # systemd needs it too
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ERRNO | errno.EPERM)))
    for call in sorted(calls):
        number = library.seccomp_syscall_resolve_name(call.encode())
        if number != _NO_SUCH_CALL:
            library.seccomp_rule_add(context, ctypes.c_uint32(_ALLOW), number, 0)
    failed = library.seccomp_load(context)
    if failed:
        raise OSError(-failed, os.strerror(-failed))


def main(arguments):
    split = arguments.index("--")
    names, command = arguments[:split], arguments[split + 1 :]
    without = set()
    if names[0] == "--without":
        without = set(names[1].split(","))
        names = names[2:]
    apply(allowed_calls([Path(name).read_text(encoding="utf-8") for name in names]) - without)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
