"""Computes the hash of a prompt: `prompt_hash.py FILE`, with what `trellis turn show NAME --prompt --output json` prints.

Prints the SHA-256 of that request without `turn`, as canonical JSON after RFC 8785: the `prompt` of the ledger that
`trellis turn show NAME --output json` prints. Needs nothing but Python.
"""

import hashlib
import json
import sys


def number(value):
    """As ECMAScript writes a double."""
    value = float(value)
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, part = mantissa.partition(".")
    part = "" if part == "0" else part
    digits = (whole + part).lstrip("0")
    # Where the point is, counted from the first digit.
    point = len(whole) + int(exponent or 0)
    if whole == "0":
        point = int(exponent or 0) - (len(part) - len(part.lstrip("0")))
    digits = digits.rstrip("0") or "0"
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    rest = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{point - 1:+d}"


def canonical(value):
    """RFC 8785."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
    return "{" + ",".join(canonical(key) + ":" + canonical(value[key]) for key in keys) + "}"


def check(json_text, expected):
    actual = canonical(json.loads(json_text))
    if actual != expected:
        raise SystemExit(f"canonical form of {json_text}: expected {expected}, got {actual}")


def main():
    check('[333333333.33333329, 1E30, 4.50, 2e-3, 1e-27, -0.0]', "[333333333.3333333,1e+30,4.5,0.002,1e-27,0]")
    check('[100, 1e21, 0.000001, 1e-7, 123.456, 9007199254740993]', "[100,1e+21,0.000001,1e-7,123.456,9007199254740992]")
    check('{"\\ufb33": 1, "\\ud83d\\ude00": 2, "a": "\\u000f\\n\\u007f"}', '{"a":"\\u000f\\n\x7f","😀":2,"\ufb33":1}')
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    del request["turn"]
    print(hashlib.sha256(canonical(request).encode("utf-8")).hexdigest())


main()
