"""The tables of metrics in docs/operations.md."""

import re

import support


def of(program):
    """Name -> type of each row in the table below the heading "Metrics of `program`"."""
    text = (support.ROOT / "docs/operations.md").read_text()
    section = re.search(rf"^### Metrics of `{program}`\n(.*?)(?=^#|\Z)", text, re.M | re.S).group(1)
    return dict(re.findall(r"^\| `([\w:]+)` \| (\w+) \|", section, re.M))
