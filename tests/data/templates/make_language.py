#!/usr/bin/env python3
"""Writes language.json: small templates, a feature each, and what the package jinja2 makes of them.

    build/venv/bin/python tests/data/templates/make_language.py [--check]

--check only compares. A case whose `expect` is null is one that jinja2 refuses.
"""
import json
import sys
from pathlib import Path

try:
    import jinja2
except ImportError:
    print("skipped: the Python package jinja2 is missing")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit/coordinator/text/jinja"))
from differential_test import CONTEXT, environment, python_renders  # noqa: E402

FILE = Path(__file__).with_name("language.json")

CASES = {
    "whitespace": [
        "{% if true %}\nx\n{% endif %}\n", "  {% if true %}\n  x\n  {% endif %}\ny", "a  {%- if true -%}  b  {%- endif -%}  c",
        "a {%+ if true +%}\nb{% endif %}", "{{ 1 }}\n", "{{ 1 }}\n\n", "  {{- 1 -}}  \nx", "a\n   {# c #}\nb", "a\n   {#- c -#}\n b",
        "a\n  {%+ if true %}b{% endif %}", "a\r\nb\rc\n", "{% raw %}\n{{ x }} {% if %}\n{% endraw %}\n!", "x {%- raw -%}  {{ y }}  {%- endraw -%}  z",
        "\u00a0 {%- if true -%} \u2003 x{% endif %}", "{# a #}{# b\nc #}d", "{# a +#}\nb", "  {% set a = 1 %}  \n  {% set b = 2 %}{{ a }}",
        "\t{% if true %}\t\nx{% endif %}", "{{ '}}' }}{{ \"%}\" }}", "{{ {'a': {'b': 1}}['a'] }}", "{%if true%}x{%endif%}", "{% if true %}\n\n{% endif %}|",
        "{{ x }}\n  {%- set y = 1 %}\nz",
    ],
    "literals": [
        "{{ 1 }} {{ 1.0 }} {{ 1e20 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e-7 }} {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }} {{ 1_000 }}",
        "{{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 9223372036854775807 }} {{ 123456789.123456789 }} {{ 1e308 * 10 }} {{ 2.5e-324 }}",
        "{{ 'a' 'b' \"c\" }}", "{{ 'it\\'s \\\"q\\\" \\\\ \\n \\t \\x41 \\101 \\u00e9 \\U0001F600 \\q \\\n.' }}", "{{ true }}{{ True }}{{ none }}{{ None }}{{ false }}",
        "{{ [1, 'a', none, true, 2.0, [], {}, (), (1,), (1, 2)] }}", "{{ {'a': 1, 2: 'b', none: true, 1.5: [], (1, 2): {}} }}",
        "{{ 'a\"b' }} {{ ['a\"b', \"a'b\", 'a\\'\"b', '\\n\\t\\r\\\\', '\\x00\\x7f', '\\u00a0é猫', '\\u200b', '\\U0001F600', '\\ue000'] }}",
        "{{ 1, 2 }}", "{{ (1) }}", "{{ [1, 2,] }}", "{{ {'a': 1,} }}", "{{ 1.0 == 1 }}{{ {1: 'a'}[1.0] }}{{ {1: 'a'}[true] }}", "{{ 1e1 }}{{ 100.0 }}{{ 12345678901234567890.0 }}",
    ],
    "operators": [
        "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7 / 2 }} {{ 6 / 2 }}",
        "{{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ (-1) ** 1000000 }} {{ 4 ** 0.5 }} {{ 0 ** 0 }}",
        "{{ 1 + 2.5 }} {{ true + true }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'ab' * 3 }} {{ 2 * [1] }} {{ 'x' * -1 }}",
        "{{ 1 ~ 'a' ~ none ~ 2.0 ~ [1] ~ missing }}", "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ 'é' > 'z' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }}",
        "{{ 'a' in 'abc' }} {{ '' in '' }} {{ 2 in [1, 2] }} {{ 'one' in d }} {{ 'zzz' not in d }} {{ 1 in missing }} {{ true in [1] }}",
        "{{ 0 or 'x' }} {{ '' and 1 }} {{ 1 and 2 }} {{ none or missing or 3 }} {{ not 0 }} {{ not [] }}",
        "{{ 'a' if true }}{{ 'a' if false }}|{{ 'a' if false else 'b' }}{{ 1 if 0 else 2 if 0 else 3 }}", "{{ -n }} {{ +n }} {{ - -n }} {{ -n|abs }} {{ -1.5|abs }}",
        "{{ 1 - 1 - 1 }} {{ 2 * 3 + 4 * 5 }} {{ (2 + 3) * 4 }} {{ 1 ~ 2 * 3 }}", "{{ [1, [2, {'a': 3}]] == [1, [2, {'a': 3.0}]] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1] == (1,) }}",
        "{{ missing == missing2 }} {{ missing == none }} {{ none == false }} {{ 9007199254740993 == 9007199254740992.0 }}", "{{ '%s is %d and %5.1f|%-5s|%05d|%x|%r|%%' % ('a', 3, 2.55, 'b', 42, 255, 'q') }}",
        "{{ '%(a)s-%(b)s' % {'a': 1, 'b': 2} }} {{ 'x%s' % 1 }} {{ '%s' % [1] }} {{ '%c%c' % ('a', 98) }} {{ '%+d % d %e %G' % (1, 2, 1234.5, 1e-9) }}",
        "{{ '<' + ('&'|safe) }} {{ ('&'|safe) + '<' }} {{ ('&'|safe) ~ '<' }} {{ ('a'|safe).upper() + '<' }} {{ 'a<'|e + '<' }}",
    ],
    "lookup": [
        "{{ d.one }} {{ d['one'] }} {{ d.items }}" [:22], "{{ d['items'] }} {{ d.items() | list | length }} {{ d.get('items') }}", "{{ s[0] }}{{ s[-1] }}{{ u[3] }}{{ u[5] }}", "{{ numbers[1:3] }} {{ numbers[::-1] }} {{ numbers[-2:] }} {{ numbers[:-1] }} {{ numbers[10:] }} {{ numbers[::2] }}",
        "{{ s[1:4] }} {{ s[::-1] }} {{ u[::-1] }} {{ u[2:4] }} {{ s[4:0:-2] }}", "{{ messages[0].role }} {{ messages.0.role }} {{ messages[-1]['content'][0].text }}", "{{ missing }}|{{ d.zzz }}|{{ numbers[99] }}|{{ s.zzz }}|{{ none.x }}|{{ n.x }}",
        "{{ missing.x }}", "{{ d.zzz.x }}", "{{ missing['x'] }}", "{{ missing() }}", "{{ missing + 1 }}", "{{ missing < 1 }}", "{{ -missing }}", "{{ d.one() }}", "{{ missing[1:] }}", "{{ n[1:] }}",
        "{{ d[[]] }}|{{ s['x'] }}|{{ numbers['append'] is callable }}", "{{ {'a': 1}.a }} {{ {'get': 1}['get'] }} {{ {'get': 1}.get is callable }}", "{{ 'abc'[n] }}|{{ 'abc'[true] }}",
    ],
    "scopes": [
        "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i * 10 %}{{ x }} {% endfor %}{{ x }}", "{% set ns = namespace(a=1, b='x') %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}|{{ ns.zzz }}",
        "{% if true %}{% set y = 1 %}{% endif %}{{ y }}", "{% macro m() %}{{ q }}{% endmacro %}{% set q = 5 %}{{ m() }}{% set q = 6 %}{{ m() }}", "{% macro m(a) %}{% set n = a %}{{ n }}{% endmacro %}{{ m(1) }}{{ n }}",
        "{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}", "{% set a %}x{{ n }}{% endset %}{{ a }}", "{% set a | upper | replace('X', '_') %}x{{ s }}{% endset %}{{ a }}",
        "{% for i in [1] %}{% set z = 1 %}{% endfor %}{{ z }}", "{% set n.x = 1 %}", "{% set a, b = [1] %}", "{% set a, b = [1, 2, 3] %}", "{% generation %}{% set g = 1 %}a{{ g }}{% endgeneration %}b{{ g }}", "{% filter upper %}{% set g = 'x' %}a{{ g }}{% endfilter %}{{ g }}",
        "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}", "{% set loop = 3 %}{% for i in [1] %}{{ loop.index }}{% endfor %}{{ loop }}",
    ],
    "loops": [
        "{% for i in numbers %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex0 }} {% endfor %}", "{% for i in [] %}x{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }} {% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}",
        "{% for i in range(10) if i % 3 == 0 %}{{ loop.index0 }}:{{ i }} {% endfor %}", "{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in [1, 2, 3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
        "{% for a in [1, 2] %}{% for b in [1, 2] %}{{ loop.index }}{{ a }}{{ b }} {% endfor %}{{ loop.index }};{% endfor %}", "{% for i in 'ab' %}{{ loop.cycle('odd', 'even') }} {{ loop.changed(i) }} {% endfor %}", "{% for i in [[1, [2]], 3] recursive %}{{ loop.depth }}{% if i is number %}{{ i }}{% else %}({{ loop(i) }}){% endif %}{% endfor %}",
        "{% for i in missing %}x{% else %}y{% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for a, b in [[1, 2], (3, 4)] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for i in [1, 2] %}{{ loop.nextitem is defined }}{% endfor %}", "{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
        "{{ range(3) }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(0) | list }} {{ range(3)[1] }} {{ range(3) | length }}", "{% for i in [3, 1] | sort %}{{ i }}{% endfor %}", "{% for (a, b) in [[1, 2]] %}{{ a + b }}{% endfor %}", "{% for i in numbers if i > 1 and i < 3 %}{{ i }}{% else %}no{% endfor %}",
    ],
    "macros": [
        "{% macro f(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=5) }} {{ f(b=7, a=0) }} {{ f() }}", "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}",
        "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% macro dialog(t) %}<{{ t }}:{{ caller() }}>{% endmacro %}{% call dialog('x') %}body{% endcall %}", "{% macro each(l) %}{% for i in l %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i) each([5, 6]) %}{{ i }}={{ v }} {% endcall %}", "{% macro f(a=[]) %}{{ a }}{% endmacro %}{{ f() }}{{ f([1]) }}",
        "{% macro f() %} x {% endmacro %}[{{ f() | trim }}]{{ f.name }}", "{{ f(*[1, 2], **{'c': 3}) if false }}{% macro g(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ g(*[1, 2], **{'c': 3}) }}", "{% macro f(a, b=1, c) %}{% endmacro %}",
    ],
    "filters": [
        "{{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ words | sort(reverse=true) }} {{ messages | sort(attribute='role') | map(attribute='role') | list }}", "{{ words | unique | list }} {{ [1, 1.0, true, 2] | unique | list }}", "{{ d | dictsort }} {{ d | tojson(sort_keys=true) }}", "{{ {'b': 2, 'a': 3}|dictsort(by='value') }} {{ {'B': 1, 'a': 2}|dictsort(true) }} {{ {'b': 1}|dictsort(reverse=true) }}",
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | join(',') }} {{ messages | selectattr('tool_calls') | list | length }}", "{{ [1, 2, 3, 4] | select('even') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ [1, 'a'] | reject('string') | list }} {{ [3, 5] | select('>', 4) | list }}",
        "{{ ['a', 'b'] | map('upper') | join('-') }} {{ messages | map(attribute='content.0', default='-') | list }} {{ [[1, 2], [3]] | map('length') | list }} {{ [' a '] | map('trim') | list }}", "{{ [1, 2, 3] | sum }} {{ [{'a': 1}, {'a': 2}] | sum(attribute='a') }} {{ [] | sum(start=10) }} {{ [1.5, 2] | sum }}", "{{ numbers | min }} {{ numbers | max }} {{ words | min }} {{ words | max(case_sensitive=true) }} {{ [] | max }}",
        "{{ 'a b c' | replace(' ', '_') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 'ab' | replace('', '-') }} {{ 12 | replace(1, 'x') }}", "{{ ' x ' | trim }}| {{ 'xxaxx' | trim('x') }} {{ '\\u2003a\\u00a0' | trim }}", "{{ 'hello wORLD-foo (bar' | title }} {{ 'hELLO' | capitalize }} {{ 'ß' | upper }} {{ 'ÄÖ' | lower }} {{ 'ßx' | capitalize }}", "{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb\n' | indent('> ', blank=true) }}",
        "{{ 3.14159 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ -2.5 | round }} {{ 2.675 | round(2) }} {{ 1.1 | round(0, 'ceil') }} {{ 1.9 | round(method='floor') }} {{ 5 | round }} {{ 1234.5 | round(-2) }}", "{{ '42' | int }} {{ ' 4_2 ' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '3.9' | int }} {{ 3.9 | int }} {{ -3.9 | int }} {{ 'ff' | int(base=16) }} {{ '0x1A' | int(0, 16) }} {{ none | int }} {{ true | int }}", "{{ '1.5' | float }} {{ 'x' | float }} {{ '1e3' | float }} {{ 3 | float }} {{ 'x' | float(2.0) }} {{ ' inf ' | float }}",
        "{{ '' | default('d') }}|{{ '' | default('d', true) }}|{{ missing | default }}|{{ none | default('d') }}|{{ none | d('d', boolean=true) }}", "{{ [1, none, missing, true, 1.5] | join('|') }} {{ 'abc' | join('.') }} {{ d | join(',') }}", "{{ s | length }} {{ u | length }} {{ d | length }} {{ missing | length }} {{ [] | count }}", "{{ words | first }} {{ words | last }} {{ [] | first }}|{{ '' | last }}| {{ s | first }} {{ d | last }}",
        "{{ 'abc' | reverse }} {{ [1, 2] | reverse | list }} {{ u | reverse }}", "{{ 'abc' | list }} {{ d | list }} {{ d | items | list }} {{ missing | items | list }}", "{{ '<a href=\"x\">\\'&' | escape }} {{ '<' | e | e }} {{ '<' | e | forceescape }} {{ '<' | safe | escape }}", "{{ 'a long text here' | truncate(8) }} {{ 'a long text here' | truncate(8, true) }} {{ 'a long text here' | truncate(12, leeway=0) }}", "{{ 'foo' | truncate(1) }}", "{{ 'abc' | center(9) }}| {{ 'a b-c d_e' | wordcount }} {{ '%s %s' | format('a', 1) }} {{ '%(x)s' | format(x=1) }}",
        "{{ 5 | string + 'x' }} {{ none | string }} {{ [1] | string }} {{ -5 | abs }}", "{{ d | attr('one') }}|{{ s | attr('upper') is callable }}", "{{ messages | sort(attribute='role,content') | map(attribute='role') | list }}" ,
        "{{ [1, 2] | map('nosuch') | list }}", "{{ 1 | length }}", "{{ [1, 'a'] | sort }}", "{{ none | join }}", "{{ messages | map | list }}", "{{ 'x' | replace('a') }}", "{{ 5 | trim(chars='5') }}|", "{{ ([1, 2] | select('odd')) is sequence }}{{ 'always' if [] | select('odd') }}{{ 'never' if [] | select('odd') | list }}",
        "{% set g = [1, 2] | map('string') %}{{ g | list }}{{ g | list }}", "{{ nothing | from_nowhere if false else 'ok' }}{% if false %}{{ 1 | nosuch }}{% endif %}",
    ],
    "tojson": [
        "{{ messages | tojson }}", "{{ messages | tojson(indent=2) }}", "{{ d | tojson(indent=4, ensure_ascii=true) }}", "{{ u | tojson }} {{ u | tojson(ensure_ascii=true) }} {{ '\\U0001F600' | tojson(ensure_ascii=true) }}", "{{ [1.0, 1e-7, 1e22, -0.0, 9007199254740993, true, none, '<>&\\'\"\\\\/', '\\n\\t\\r\\x08\\x0c\\x01\\x7f\\u2028'] | tojson }}", "{{ {1: 2, true: 3, none: 4, 1.5: 5} | tojson }}", "{{ [] | tojson }} {{ {} | tojson(indent=1) }} {{ [[], {}] | tojson(indent=1) }} {{ (1, 2) | tojson }}", "{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }} {{ [1, 2] | tojson(indent='--') }} {{ [1, 2] | tojson(indent=0) }}", "{{ missing | tojson }}", "{{ [missing] | tojson }}", "{{ d.items() | tojson }}", "{{ {(1, 2): 3} | tojson }}", "{{ x | tojson }} {{ tiny | tojson }} {{ big | tojson }} {{ 1e400 | tojson }} {{ s | tojson | safe }}",
    ],
    "tests": [
        "{% for v in [none, true, 1, 1.5, 'a', [1], (1,), {'a': 1}, range(2), missing] %}{{ v is defined }}{{ v is none }}{{ v is boolean }}{{ v is integer }}{{ v is float }}{{ v is number }}{{ v is string }}{{ v is mapping }}{{ v is iterable }}{{ v is sequence }}{{ v is true }}{{ v is callable }} {% endfor %}", "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }}", "{{ 'a' is lower }} {{ 'A' is upper }} {{ 'aB' is lower }} {{ '1' is lower }}", "{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 1 is in [1] }} {{ 1 is not in [1] }}", "{{ none is sameas none }} {{ 'upper' is filter }} {{ 'nosuch' is filter }} {{ 'odd' is test }}", "{{ 1 is not none and 2 is defined }} {{ not 1 is none }} {{ 'x' is string and 'y' is string }}", "{{ missing is undefined }} {{ d.zzz is defined }} {{ d.one is defined }} {{ ('<'|e) is escaped }}", "{{ 1 is nosuch }}", "{{ 1 is odd is even }}", "{{ [] is false }} {{ false is false }} {{ 1 is true }}",
    ],
    "methods": [
        "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b  c '.split(none, 1) }} {{ 'a.b.c'.rsplit('.', 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ 'aaa'.rsplit('aa', 1) }} {{ ''.split() }} {{ ''.split(',') }}", "{{ 'xxaxx'.strip('x') }} {{ ' a '.lstrip() }}| {{ ' a '.rstrip() }}| {{ 'abcba'.strip('ab') }} {{ '\\n a\\t'.strip() }} {{ 'éaé'.strip('é') }}", "{{ 'abc'.startswith('a') }} {{ 'abc'.startswith(('x', 'ab')) }} {{ 'abc'.endswith('c', 1) }} {{ 'abc'.startswith('b', 1, 2) }} {{ 'abc'.startswith('', 5) }}", "{{ 'hello'.find('l') }} {{ 'hello'.rfind('l') }} {{ 'hello'.find('z') }} {{ 'ähello'.find('l') }} {{ 'hello'.count('l') }} {{ 'abc'.count('') }} {{ 'hello'.index('e') }} {{ 'hello'.find('l', -2) }}", "{{ 'hello'.index('z') }}", "{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }}", "{{ 'a\\nb\\r\\nc\\x0bd\\u2028e\\n'.splitlines() }}", "{{ 'aXbX'.replace('X', '-') }} {{ 'aXbX'.replace('X', '-', 1) }} {{ 'ab'.replace('', '.') }}", "{{ 'hello world'.title() }} {{ \"they're\".title() }} {{ 'hELLO'.capitalize() }} {{ 'Ab'.upper() }} {{ 'Ab'.lower() }}", "{{ 'x'.join(['a', 'b']) }} {{ 'x'.join('abc') }} {{ ''.join([]) }}", "{{ ', '.join([1]) }}", "{{ '42'.zfill(5) }} {{ '-42'.zfill(5) }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '*') }} {{ 'ab'.center(5, '.') }} {{ 'abc'.center(6, '.') }}", "{{ 'ab'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'A'.isupper() }} {{ 'a'.islower() }} {{ ''.isalpha() }} {{ '½'.isnumeric() }} {{ '²'.isdigit() }} {{ '1'.isdecimal() }}", "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}", "{% set l = [1] %}{{ l.append(2) }}{{ l }}{{ l.pop() }}{{ l.pop(0) }}{{ l }}{{ l.extend([3, 4]) }}{{ l.insert(0, 9) }}{{ l.insert(-1, 8) }}{{ l }}{{ l.index(3) }}{{ l.count(9) }}{{ l.reverse() }}{{ l }}{{ l.copy() }}", "{% set l = [] %}{{ l.pop() }}", "{% set e = {'a': 1} %}{{ e.get('a') }}{{ e.get('b') }}{{ e.get('b', 2) }}{{ e.pop('a') }}{{ e }}{{ e.update({'x': 1}) }}{{ e.update(y=2) }}{{ e.setdefault('z', 3) }}{{ e }}{{ e.keys() }}{{ e.values() }}{{ e.items() }}{{ e.keys() | list }}", "{{ d.pop('zzz') }}", "{{ d.pop('zzz', 4) }}", "{{ s.nosuch() }}", "{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'a': 1}, b=2) }}", "{{ (1, 2, 1).count(1) }} {{ (1, 2).index(2) }}", "{{ [].append is defined }}{{ (1,).append is defined }}",
        "{{ s.split(1) }}", "{{ s.split('') }}", "{{ s.startswith(1) }}",
    ],
    "errors": [
        "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [] + () }}", "{{ 'a' < 1 }}", "{{ none < none }}", "{{ -'a' }}", "{{ 1 in 2 }}", "{{ 1 in 'a' }}", "{{ {[]: 1} }}", "{{ 'a' * 1.5 }}", "{{ '%d' % 'a' }}", "{{ '%s' % (1, 2) }}", "{{ '%s %s' % 'a' }}", "{{ '%q' % 1 }}", "{{ range(0, 1, 0) }}", "{{ range('a') }}", "{{ range() }}", "{{ namespace(1) }}", "{{ loop }}", "{{ numbers[1.5].x }}", "{{ s.upper(1) }}", "{{ caller() }}", "{{ 1() }}", "{{ [1, 2][::0] }}",
    ],
    "syntax": [
        "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ 1 2 }}", "{% if %}{% endif %}", "{% if x %}", "{% for i in x %}", "{% endif %}", "{% nosuch %}", "{{ 'a }}", "{{ x", "{% if x", "{# x", "{% raw %}x", "{% for 1 in x %}{% endfor %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{{ x! }}", "{{ x ] }}", "{{ [x) }}", "{{ x.}}", "{{ x|}}", "{{ x is }}", "{{ f(a=1, 2) }}", "{{ f(**a, b) }}", "{% macro %}{% endmacro %}", "{% macro f(a.b) %}{% endmacro %}", "{% break %}", "{% for i in x %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}", "{% call x %}{% endcall %}", "{% else %}", "{% if 1 %}{% else %}{% elif 1 %}{% endif %}", "{% set x %}", "{% with x %}{% endwith %}", "{% filter %}{% endfilter %}", "{{ 1__0 }}", "{{ 1_ }}", "{{ 09 }}", "{{ a b }}", "{{ {'a' 1} }}", "{{ {1} }}", "{{ not }}", "{% for x %}{% endfor %}", "{% do x %}", "{{ '\\x4' }}", "{{ '\\u12' }}", "{% macro f(a, a) %}{% endmacro %}",
        "{% if true: %}x{% endif %}", "{% print 1, 2 %}", "{{ x if }}", "{{ ((((((((((1)))))))))) }}", "{{ 1 }}{% if false %}{{ 1 | nosuchfilter }}{% endif %}" , "{{ 1,}}", "{{ () }}", "{{ [,] }}",
    ],
}


def main():
    env = environment()
    rows = []
    for feature, sources in CASES.items():
        for source in sources:
            rows.append({"feature": feature, "source": source, "expect": python_renders(env, source)})
    lines = ["{", ' "context": ' + json.dumps(CONTEXT, ensure_ascii=False) + ",", ' "cases": [']
    lines += [",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows), " ]", "}"]
    text = "\n".join(lines) + "\n"
    if "--check" not in sys.argv:
        FILE.write_text(text, encoding="utf-8", newline="")
    elif FILE.read_text(encoding="utf-8") != text:
        print(f"{FILE} is not what this script writes")
        return 1
    print(f"{len(rows)} cases with jinja2 {jinja2.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
