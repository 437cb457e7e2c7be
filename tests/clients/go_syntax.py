"""Parses a file of Go: `go_syntax.py FILE`. Ends with 1, and the place of the first error, when it is not legal."""

import sys
from pathlib import Path

import tree_sitter_go
from tree_sitter import Language, Parser


def first_error(node):
    if node.is_error or node.is_missing:
        return node
    return next((found for child in node.children if (found := first_error(child))), None)


tree = Parser(Language(tree_sitter_go.language())).parse(Path(sys.argv[1]).read_bytes())
if wrong := first_error(tree.root_node):
    line, column = wrong.start_point
    sys.exit(f"{sys.argv[1]}:{line + 1}:{column + 1}: not legal Go")
