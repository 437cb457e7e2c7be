"""What the client scripts say when something is not as it should be."""

from covia.exceptions import GridError


def expect(what, actual, expected):
    if actual != expected:
        raise SystemExit(f"{what}: expected {expected!r}, got {actual!r}")


def refused(what, status, call):
    """The text of the refusal."""
    try:
        call()
    except GridError as error:
        expect(f"{what}: status", error.status_code, status)
        return str(error)
    raise SystemExit(f"{what}: expected status {status}, got an answer")
