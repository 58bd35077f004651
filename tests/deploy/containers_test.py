"""deploy/containers: the Dockerfile and the compose file."""

import ctypes
import json
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

import commands
import support
import units

CONTAINERS = support.DEPLOY / "containers"
DOCKERFILE = CONTAINERS / "Dockerfile"


def instructions():
    """(instruction, arguments) of the Dockerfile, continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.M)
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip():
            yield tuple(line.split(None, 1))


def stages():
    """Name of each stage -> its (instruction, arguments)."""
    found = {}
    for name, arguments in instructions():
        if name == "FROM":
            current = found.setdefault(arguments.rsplit(" ", 1)[1], [])
        elif found:
            current.append((name, arguments))
    return found


def needed_packages(program):
    """Debian packages of the libraries that the program itself names, without what each Debian has: libc6 is one, whose
    loader ldd shows without an arrow."""
    dynamic = support.run(support.tool("objdump"), "-p", program).stdout
    paths = dict(re.findall(r"^\s*(\S+) => (\S+)", support.run("ldd", program).stdout, re.M))
    libraries = [name for name in re.findall(r"NEEDED\s+(\S+)", dynamic) if not name.startswith("ld-linux")]
    files = [str(Path(paths[library]).resolve()) for library in libraries]
    # /lib is a link to /usr/lib, and a package may know its file by either. One question for all: each takes a second.
    names = files + [file.removeprefix("/usr") for file in files]
    owners = support.run(support.tool("dpkg-query"), "-S", *names, stderr=subprocess.DEVNULL)
    lines = re.findall(r"^([^:]+):.*? (/\S+)$", owners.stdout, re.M)
    owned = {path.removeprefix("/usr"): package for package, path in lines}
    return {owned[file.removeprefix("/usr")] for file in files} - {"libc6", "libgcc-s1"}


class Dockerfile(unittest.TestCase):
    def lint(self, path):
        return support.run(support.tool("hadolint"), path)

    def test_lint_finds_nothing(self):
        done = self.lint(DOCKERFILE)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_lint_finds_a_planted_fault(self):
        with tempfile.NamedTemporaryFile("w", suffix=".Dockerfile") as planted:
            planted.write(DOCKERFILE.read_text().replace("USER 65532:65532", "USER root"))
            planted.flush()
            self.assertIn("DL3002", self.lint(planted.name).stdout)

    def test_each_copied_path_exists(self):
        for name, arguments in instructions():
            if name == "COPY" and not arguments.startswith("--from"):
                for source in arguments.split()[:-1]:
                    self.assertTrue((support.ROOT / source).exists(), source)

    def test_all_that_the_build_reads_is_copied(self):
        copied = {
            source.split("/")[0]
            for name, arguments in stages()["build"]
            if name == "COPY"
            for source in arguments.split()[:-1]
        }
        folders = set(re.findall(r"^add_subdirectory\((\w+)\)", (support.ROOT / "CMakeLists.txt").read_text(), re.M))
        self.assertLessEqual(folders | {"cmake", "CMakeLists.txt", "CMakePresets.json"}, copied)

    def test_build_configures_from_what_is_copied_alone(self):
        configure = next(arguments for name, arguments in stages()["build"] if name == "RUN" and "cmake" in arguments)
        words = shlex.split(configure.split("&&")[0])
        self.assertEqual(words[:3], ["cmake", "--preset", "release"])
        with tempfile.TemporaryDirectory() as folder:
            for name, arguments in stages()["build"]:
                for source in arguments.split()[:-1] if name == "COPY" else ():
                    place = Path(folder) / source.rstrip("/")
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.symlink_to(support.ROOT / source.rstrip("/"))
            done = support.run(*words, "-DTERRACE_CUDA=OFF", cwd=folder, timeout=200)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_runtime_has_the_libraries_of_both_programs_and_no_more(self):
        needed = needed_packages(support.program("terrace")) | needed_packages(support.program("terrace-node"))
        listed = (support.DEPLOY / "runtime_packages.txt").read_text().split()
        self.assertEqual(listed, sorted(needed))

    def test_images_run_as_a_user_that_is_not_root(self):
        for stage in ("coordinator", "node"):
            self.assertNotIn("USER", [name for name, _ in stages()[stage]])
        users = [arguments for name, arguments in stages()["runtime"] if name == "USER"]
        self.assertEqual(users, ["65532:65532"])

    def test_each_image_starts_a_command_that_its_program_takes(self):
        for stage in ("coordinator", "node"):
            words = dict(stages()[stage])
            commands.check(self, json.loads(words["ENTRYPOINT"]) + json.loads(words["CMD"]), f"stage {stage}")


COMPOSE_TEXT = (CONTAINERS / "compose.yaml").read_text()


def compose(text=COMPOSE_TEXT):
    """The file as compose has it before it looks at keys: variables at their defaults, merges done."""
    return support.module("yaml").safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


class Compose(unittest.TestCase):
    def parse(self, text):
        """Reads the text by the compose specification; ValueError names what it does not allow."""
        compose_spec = support.module("compose_spec")
        parsed = compose_spec.PyCompose.from_json(json.dumps(compose(text)))
        parsed.validate()
        return parsed

    def test_file_is_valid_by_the_compose_specification(self):
        parsed = self.parse(COMPOSE_TEXT)
        self.assertEqual(sorted(parsed.service_names()), ["coordinator", "node-1", "node-2"])

    def test_an_unknown_key_is_invalid(self):
        with self.assertRaisesRegex(ValueError, "stop_grace_time"):
            self.parse(COMPOSE_TEXT.replace("stop_grace_period:", "stop_grace_time:"))

    def test_each_service_is_a_stage_and_starts_what_its_program_takes(self):
        for name, service in compose()["services"].items():
            stage = dict(stages()[service["build"]["target"]])
            commands.check(self, json.loads(stage["ENTRYPOINT"]) + list(map(str, service["command"])), name)
            if "healthcheck" in service:
                self.assertEqual(service["healthcheck"]["test"][0], "CMD")
                commands.check(self, service["healthcheck"]["test"][1:], f"{name}, health check")

    def test_every_variable_is_one_that_the_program_reads(self):
        shown = support.help_of("terrace", "serve")
        for service in compose()["services"].values():
            for variable in service.get("environment", {}):
                flag = "--" + variable.removeprefix("TERRACE_").lower().replace("_", "-")
                self.assertRegex(shown, rf"{flag}\b")

    def test_coordinator_names_the_nodes_where_they_listen(self):
        services = compose()["services"]
        listening = {
            f"{name}:{word.rsplit(':', 1)[1]}"
            for name, service in services.items()
            if name.startswith("node")
            for word in service["command"]
            if word.startswith("--listen=0.0.0.0:")
        }
        self.assertEqual(len(listening), 2)
        named = {
            word.removeprefix("--node=") for word in services["coordinator"]["command"] if word.startswith("--node=")
        }
        self.assertEqual(named, listening)

    def test_each_service_and_its_health_check_has_the_secret_and_nothing_else_is_published(self):
        parsed = compose()
        self.assertIn("secret", parsed["secrets"])
        for name, service in parsed["services"].items():
            self.assertIn("secret", service["secrets"], name)
            self.assertIn("--secret-file=/run/secrets/secret", service["command"], name)
            if "healthcheck" in service:
                self.assertIn("/run/secrets/secret", service["healthcheck"]["test"], name)
            self.assertEqual("ports" in service, name == "coordinator", name)
            self.assertNotIn("network_mode", service, name)

    def test_containers_can_do_nothing_that_they_need_not(self):
        for name, service in compose()["services"].items():
            self.assertTrue(service["read_only"], name)
            self.assertEqual(service["cap_drop"], ["ALL"], name)
            self.assertIn("no-new-privileges:true", service["security_opt"], name)
            self.assertEqual(service["ulimits"]["memlock"], -1, name)
            self.assertNotIn("privileged", service, name)

    def test_stopping_has_the_time_that_the_units_give(self):
        services = compose()["services"]
        for name, unit in (("coordinator", "terrace"), ("node-1", "terrace-node"), ("node-2", "terrace-node")):
            self.assertEqual(services[name]["stop_grace_period"], f"{units.stop_seconds(unit)}s")


class Seccomp(unittest.TestCase):
    def test_rule_names_system_calls_that_exist(self):
        rule = json.loads((CONTAINERS / "seccomp-io-uring.json").read_text())
        self.assertEqual(rule["action"], "SCMP_ACT_ALLOW")
        library = ctypes.CDLL("libseccomp.so.2")
        for name in rule["names"]:
            self.assertGreaterEqual(library.seccomp_syscall_resolve_name(name.encode()), 0, name)


if __name__ == "__main__":
    support.main()
