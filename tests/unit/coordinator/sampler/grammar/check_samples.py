"""check_samples.py FILE: validates texts that were generated under a schema.

FILE is a list of {"schema": ..., "texts": [...]}. Each text must be JSON, strictly, with at most one white-space
character between tokens, and valid against its schema by the jsonschema package. Exit 77: the package is missing.
"""
import json
import re
import sys
import uuid
from datetime import datetime

try:
    import jsonschema
except ImportError:
    print("the Python package jsonschema is missing")
    sys.exit(77)

formats = jsonschema.FormatChecker(formats=())


@formats.checks("date", raises=ValueError)
def is_date(value):
    return not isinstance(value, str) or bool(datetime.strptime(value, "%Y-%m-%d"))


@formats.checks("time", raises=ValueError)
def is_time(value):
    return not isinstance(value, str) or bool(datetime.fromisoformat("2000-01-01T" + shorter(value)))


@formats.checks("date-time", raises=ValueError)
def is_date_time(value):
    return not isinstance(value, str) or bool(datetime.fromisoformat(shorter(value)))


@formats.checks("uuid", raises=ValueError)
def is_uuid(value):
    return not isinstance(value, str) or str(uuid.UUID(value)) == value.lower()


def shorter(time):
    """Digits that datetime does not keep are left out; an RFC 3339 time has an offset."""
    assert re.search(r"(Z|[+-]\d\d:\d\d)$", time), time
    return re.sub(r"\.(\d{6})\d+", r".\1", re.sub(r"\.(\d{1,6})(?!\d)", lambda m: "." + m[1].ljust(6, "0"), time))


def without_twins(pairs):
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), f"members named alike: {names}"
    return dict(pairs)


def refuse(constant):
    raise ValueError(f"{constant} is not JSON")


def check(schema, text):
    outside_of_strings = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    assert not re.search(r"\s\s", outside_of_strings), "two white-space characters"
    assert text == text.strip(), "white space around the value"
    value = json.loads(text, object_pairs_hook=without_twins, parse_constant=refuse)
    json.dumps(value, ensure_ascii=False).encode("utf-8")  # fails for half a surrogate pair
    jsonschema.Draft202012Validator(schema, format_checker=formats).validate(value)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        samples = json.load(file)
    n_bad = n_texts = 0
    for sample in samples:
        for text in sample["texts"]:
            n_texts += 1
            try:
                check(sample["schema"], text)
            except Exception as error:  # whatever the checks above raise is a finding
                n_bad += 1
                print(f"{json.dumps(sample['schema'])}\n  {text!r}\n  {type(error).__name__}: {error}\n")
    print(f"{n_texts} texts, {n_bad} of them not valid")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
