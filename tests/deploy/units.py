"""What tests of other files look up in the units."""

import re
import shlex

import support

SYSTEMD = support.DEPLOY / "systemd"
NAMES = ("terrace.service", "terrace-node.service")


def setting(unit, key):
    """The value of the one line `key=...` of the unit, named without its ending."""
    return re.search(rf"^{key}=(.*)$", (SYSTEMD / f"{unit}.service").read_text(), re.M).group(1)


def stop_seconds(unit):
    return int(setting(unit, "TimeoutStopSec"))


def command(unit):
    """The words of ExecStart."""
    return shlex.split(setting(unit, "ExecStart"))
