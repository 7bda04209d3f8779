"""Lays graphs out in a process of its own: DOT on standard input, SVG or PNG on standard output.

Several graphs stand with a NUL between them; their drawings follow each other.

Run by its path, with the format, the resolution and the folder that holds pygraphviz as arguments. It imports nothing
of gradkit, so that it starts fast and a crash of the layout library stays here.
"""

from __future__ import annotations

import sys

# Run by path, Python puts this file's folder first: its modules would hide those of the standard library.
del sys.path[0]


def main(form: str, dpi: str, folder: str) -> int:
    """Read DOT, write the drawings; 0 if that went well, otherwise 1 and the reason on standard error."""
    if folder not in sys.path:
        sys.path.append(folder)
    import pygraphviz

    try:
        drawn = b""
        for text in sys.stdin.buffer.read().decode("utf-8").split("\0"):
            graph = pygraphviz.AGraph(string=text)
            graph.graph_attr["dpi"] = dpi
            drawn += graph.draw(format=form, prog="dot")
    except (pygraphviz.DotError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
