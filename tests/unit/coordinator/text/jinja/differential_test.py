#!/usr/bin/env python3
"""Templates made at random, rendered by the package jinja2 and by terrace-render-templates: the same text, or both refuse.

    differential_test.py RENDERER [SEED] [CASES]

RENDERER reads a JSON object a line {"source", "context"} and writes one for each: {"text"}, or {"error", "code"}.
A case that this interpreter does not have by name (code Unsupported, OutOfMemory) is counted, not compared; there may
be few of them. Exit 77 where jinja2 is missing.
"""
import json
import random
import subprocess
import sys
import warnings

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("skipped: the Python package jinja2 is missing")
    sys.exit(77)

SEED = 4711
CASES = 1500

CONTEXT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Größe?\n<|im_end|> "},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nJa.", "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, None, True]}}}]},
        {"role": "tool", "content": [{"type": "text", "text": "a & b"}, {"type": "image"}]},
    ],
    "tools": None,
    "flag": True,
    "n": 7,
    "m": -3,
    "x": 2.5,
    "tiny": 1e-7,
    "big": 1e22,
    "s": "Hello, World",
    "t": "a-b  c\td\n",
    "u": "ÄÖ ß 猫 e\u0301",
    "empty": "",
    "words": ["b", "A", "c", "a", "B"],
    "numbers": [3, 1, 2, -5, 2.5],
    "nested": [[1, 2], [3, 4]],
    "d": {"one": 1, "Two": 2, "items": "entry", "list": [1, 2]},
}
NAMES = list(CONTEXT) + ["missing", "loop"]


class Maker:
    """One random template after another, of one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *options):
        return self.random.choice(options)

    def chance(self, p):
        return self.random.random() < p

    def literal(self):
        return self.pick("1", "0", "-2", "3.5", "1e3", "'x'", "'a,b,c'", "\"it's\"", "'\\n'", "'\\u00e9'", "true", "none", "false",
                         "[]", "[1, 'a']", "(1, 2)", "(1,)", "{'k': 1}", "''", "10", "2", "'%s-%s'", "'<b>'", "[3, 1, 2]")

    def name(self):
        return self.pick(*NAMES)

    def filter(self):
        e = self.expression
        return self.pick(
            "upper", "lower", "capitalize", "title", "trim", "trim('H \\n')", "length", "count", "first", "last", "list", "string",
            "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))",
            "join", "join(', ')", "join('-', attribute='role')", f"default({self.literal()})", "default('d', true)", "d(1)",
            "replace('a', 'XY')", "replace('', '.')", "replace('l', '', 1)", "sort", "sort(reverse=true)", "sort(case_sensitive=true)",
            "sort(attribute='role')", "unique|list", "reverse|list", "reverse", "map('upper')|list", "map(attribute='role')|list",
            "map(attribute='content.0', default='-')|list", "map('default', 'x')|join(',')", "select|list", "reject|list",
            "select('string')|list", "selectattr('role', 'equalto', 'user')|list", "selectattr('tool_calls')|list",
            "selectattr('tool_calls', 'defined')|list|length", "rejectattr('role', 'in', ['user', 'tool'])|list", "min", "max", "sum",
            "sum(start=1)", "abs", "round", "round(1)", "round(0, 'floor')", "round(1, 'ceil')", "int", "int(-1)", "float", "safe",
            "escape", "e", "items|list", "dictsort", "dictsort(reverse=true)", "dictsort(false, 'value')", "indent", "indent(2, true)",
            "indent('>> ', blank=true)", "truncate(5)", "truncate(7, true, '!')", "center(20)", "wordcount", "format(1, 2)",
            "attr('upper')", "forceescape", f"default({e(0)})", "int(base=16)")

    def test(self):
        return self.pick("defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float",
                         "boolean", "true", "false", "odd", "even", "divisibleby 3", "divisibleby(2)", "lower", "upper", "callable",
                         "eq 1", "equalto('x')", "ne none", "gt 2", "lessthan(2)", "in [1, 'x', none]", "sameas true", "escaped",
                         "filter", "test")

    def method(self):
        return self.pick("upper()", "lower()", "strip()", "strip('H!d')", "lstrip()", "rstrip('\\n ')", "split()", "split(',')",
                         "split('l', 1)", "rsplit('l', 1)", "split(none, 1)", "rsplit(none, 1)", "split('</think>')[-1]", "splitlines()",
                         "startswith('He')", "startswith(('x', 'H'))", "endswith('d')", "endswith('d', 1, 5)", "find('o')", "rfind('o')",
                         "count('l')", "count('')", "replace('l', 'L')", "replace('l', 'L', 1)", "title()", "capitalize()", "get('one')",
                         "get('zzz', 5)", "items()", "keys()", "values()", "items()|list", "keys()|list", "partition('o')",
                         "rpartition('o')", "removeprefix('He')", "removesuffix('d')", "zfill(15)", "ljust(14, '.')", "rjust(14)",
                         "center(15, '*')", "isdigit()", "isalpha()", "isspace()", "isupper()", "islower()", "isalnum()", "join(['a', 'b'])",
                         "index('o')", "role", "content", "one", "0", "1.role", "append(1)", "pop()", "index(1)", "count(1)", "nothing",
                         "isnumeric()", "copy()")

    def index(self):
        return self.pick("0", "-1", "1", "99", "'role'", "'one'", "'items'", "1:", ":-1", "::2", "::-1", "-3:", "1:3", ":0", "n", "5:1:-2",
                         "'zzz'", "none", "true")

    def key(self):
        return self.pick("0", "-1", "1", "99", "n", "'role'", "none")

    def operator(self):
        return self.pick("+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "+", "~",
                         "**")

    def expression(self, depth):
        if depth <= 0:
            return self.pick(self.literal(), self.name())
        e = lambda: self.expression(depth - 1)  # noqa: E731
        return self.pick(
            lambda: self.literal(), lambda: self.name(), lambda: f"{e()}|{self.filter()}", lambda: f"{self.name()}|{self.filter()}",
            lambda: f"({e()}).{self.method()}", lambda: f"{self.name()}.{self.method()}", lambda: f"{self.name()}[{self.index()}]",
            # No slice of a literal: jinja2's optimiser makes something else of (2.5)[1:] than it is when it runs.
            lambda: f"({e()})[{self.key()}]", lambda: f"{e()} {self.operator()} {e()}", lambda: f"({e()}) {self.operator()} ({e()})",
            lambda: f"{e()} is {self.test()}", lambda: f"({e()}) is not {self.test()}", lambda: f"not {e()}",
            lambda: f"{e()} if {e()} else {e()}", lambda: f"({e()} if {e()})", lambda: f"-({e()})", lambda: f"[{e()}, {e()}]",
            lambda: f"({e()}, {e()})", lambda: f"{{'a': {e()}, {self.name()}: 2}}", lambda: f"range({self.pick('3', '1, 5', '5, 0, -2')})|list",
            lambda: f"dict(a={e()})", lambda: f"'%s|%5.2f|%-4d|%r' % ({e()}, {e()}, {e()}, {e()})",
            lambda: f"namespace(v={e()}).v", lambda: f"{e()} {self.operator()} {e()} {self.operator()} {e()}")()

    def tag(self, text):
        return "{%" + self.pick("", "", "-", "+") + " " + text + " " + self.pick("", "", "-", "+") + "%}"

    def text(self):
        return self.pick("", " ", "\n", "x", " a \n", "\n  ", "\n\n ", "é", "\t", "}}", "{", "%}", "{# c #}", "{#- c -#}\n", "  {# c #}\n",
                         "{% raw %}{{ x }}{% endraw %}", "\r\n", "- ")

    def print(self):
        return "{{" + self.pick("", "", "-") + " " + self.expression(self.pick(0, 1, 1, 2, 2, 3)) + " " + self.pick("", "", "-") + "}}"

    def loop_print(self):
        return "{{ " + self.pick("loop.index", "loop.index0", "loop.first", "loop.last", "loop.length", "loop.revindex", "loop.previtem",
                                 "loop.nextitem", "loop.cycle('a', 'b')", "loop.changed(i is odd)", "loop.depth", "i", "i",
                                 "ns.c", "v") + " }}"

    def statement(self, depth, in_loop=False):
        if depth <= 0:
            return self.loop_print() if in_loop and self.chance(0.5) else self.print()
        body = lambda loop=in_loop: "".join(  # noqa: E731
            self.pick(self.text(), self.text(), self.statement(depth - 1, loop)) for _ in range(self.pick(1, 2, 3)))
        e = lambda: self.expression(self.pick(0, 1, 1, 2))  # noqa: E731
        t = self.tag
        jump = lambda: t("if " + self.pick("loop.index > 1", "i == 2", "loop.last")) + t(  # noqa: E731
            self.pick("break", "continue")) + t("endif")
        iterable = lambda: self.pick("numbers", "words", "messages", "d", "s", "range(4)", "missing", "d.items()", "[]", e())  # noqa: E731
        return self.pick(
            lambda: self.print(),
            lambda: t(f"if {e()}") + body() + t(f"elif {e()}") + body() + t("else") + body() + t("endif"),
            lambda: t(f"for i in {iterable()}") + body(True) + t("endfor"),
            lambda: t(f"for i in {iterable()} if {self.pick('i', 'i is string', 'i != 2')}") + body(True) + t("else") + body() + t("endfor"),
            lambda: t(f"for i in {iterable()}") + body(True) + jump() + body(True) + t("endfor"),
            lambda: t("for k, v in d.items()") + "{{ k }}={{ v }};" + t("endfor"),
            lambda: t(f"set v = {e()}") + body() + "{{ v }}",
            lambda: t("set ns = namespace(c=0)") + t(f"for i in {iterable()}") + t("set ns.c = ns.c + 1") + body(True) + t("endfor") + "{{ ns.c }}",
            lambda: t("set v") + body() + t("endset") + "[{{ v }}]",
            lambda: t("set v | upper | trim") + body() + t("endset") + "[{{ v }}]",
            lambda: t(f"macro f(a, b={e()}, c=a)") + body(False) + "{{ a }}{{ b }}{{ c }}" + t("endmacro") + self.pick(
                "{{ f(1) }}", "{{ f() }}", "{{ f(1, c=2) }}", "{{ f(1, 2, 3) }}", "{{ f(b=s) | upper }}", "{{ f(1, 2, 3, 4) }}", "{{ f(z=1) }}"),
            lambda: t("macro g()") + "<{{ caller(1) }}{{ varargs }}{{ kwargs }}>" + t("endmacro") + t("call(q) g(2, k=3)") + body(False) + "{{ q }}" + t("endcall"),
            lambda: t("filter " + self.pick("upper", "trim", "replace('a', 'b')", "indent(1)")) + body(in_loop) + t("endfilter"),
            lambda: t(f"with v = {e()}, w = v") + body(in_loop) + "{{ v }}{{ w }}" + t("endwith"),
            lambda: t("generation") + body(False) + t("endgeneration"),
            lambda: t("for i in nested recursive") + "{{ i if i is number else loop(i) }}" + t("endfor"),
        )()

    def template(self):
        return "".join(self.pick(self.text(), self.statement(self.pick(0, 1, 1, 2, 3))) for _ in range(self.pick(1, 2, 3, 4)))


class Generation(jinja2.ext.Extension):
    """As transformers has it: a call block around the body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    @staticmethod
    def _body(caller):
        return caller()


def environment():
    # Lists may be changed: some model files do.
    env = jinja2.sandbox.SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda value, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return env


def python_renders(env, source):
    """The text, or None: it refuses. An address in the text (of a generator) counts as refused."""
    try:
        text = env.from_string(source).render(**json.loads(json.dumps(CONTEXT)))
        text.encode("utf-8")
    except Exception:  # noqa: BLE001: jinja2 lets through whatever Python raises
        return None
    return None if " at 0x" in text or "<function" in text or "<class" in text else text


def main():
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else SEED
    cases = int(sys.argv[3]) if len(sys.argv) > 3 else CASES
    warnings.simplefilter("ignore")  # what Python thinks of a constant that is called or indexed
    maker = Maker(seed)
    env = environment()
    sources = [maker.template() for _ in range(cases)]
    lines = "".join(json.dumps({"source": s, "context": CONTEXT}, ensure_ascii=False) + "\n" for s in sources)
    ran = subprocess.run([sys.argv[1]], input=lines.encode(), capture_output=True, timeout=240)
    answers = ran.stdout.decode().split("\n")[:-1]
    if ran.returncode != 0 or len(answers) != cases:
        print(f"the renderer ended with {ran.returncode} after {len(answers)} of {cases}: {ran.stderr.decode()[-500:]}")
        return 1
    wrong = refused = texts = missing = 0
    for source, answer in zip(sources, map(json.loads, answers)):
        expected = python_renders(env, source)
        if answer.get("code") in ("Unsupported", "OutOfMemory"):
            missing += 1
            continue
        if expected == answer.get("text"):
            texts += expected is not None
            refused += expected is None
            continue
        wrong += 1
        if wrong <= 10:
            print(f"---- differs\n{source!r}\njinja2: {expected!r}\nours:   {answer}")
    print(f"seed {seed}: {cases} cases, {texts} texts, {refused} refused by both, {missing} not in this interpreter, {wrong} wrong")
    return 1 if wrong or texts < cases // 4 or missing > cases // 20 else 0


if __name__ == "__main__":
    sys.exit(main())
