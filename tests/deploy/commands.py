"""Command lines of Terrace's programs, as they stand in files of deploy/ and in documents: does the program take them?

A line is not read by patterns but given to the program itself, with --print-config, so that flags, values and ranges
are judged by the one who will judge them.
"""

import re
import shlex

import support

PROGRAMS = ("terrace", "terrace-node")


def installed(path):
    """The file of the repository that lies at `path` of a machine; /etc/terrace is deploy/config."""
    return re.sub(r"^/etc/terrace/(?=[\w-]+\.toml$)", f"{support.DEPLOY}/config/", path)


def problem_with(words):
    """What the program says against the command, or nothing. words[0]: the program, with or without its folder."""
    name = words[0].rsplit("/", 1)[-1]
    if name not in PROGRAMS:
        return f"{name} is not a program of ours"
    done = support.run(support.program(name), *map(installed, words[1:]), "--print-config", cwd="/")
    return None if done.returncode == 0 else done.stdout.strip()


def in_shell(text):
    """Each command of ours in a shell text: continued lines joined, comments, prompts, pipes and `sudo` taken away."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        for part in re.split(r"\s(?:\||&&|;|&)(?:\s|$)|\s\d?>", re.sub(r"(^|\s)#.*", "", line)):
            words = shlex.split(part.strip().removeprefix("$ ").removeprefix("sudo "), posix=True)
            while words and re.match(r"[A-Z_]+=", words[0]):
                words = words[1:]
            if words and words[0].rsplit("/", 1)[-1] in PROGRAMS:
                yield words


def check(test, words, where):
    """Fails `test` where the program refuses the command."""
    problem = problem_with(words)
    test.assertIsNone(problem, f"{where}: {shlex.join(words)}: {problem}")
