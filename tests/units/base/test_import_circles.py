"""No two modules import each other, directly or in a circle, for types or at run time. Import contracts cannot express
that."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import grimp


def _circles(imports: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yields groups of modules each of which reaches all the others (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    for root in imports:
        if root in number:
            continue
        work = [(root, iter(sorted(imports[root])))]
        number[root] = lowest[root] = len(number)
        stack.append(root)
        while work:
            module, rest = work[-1]
            for other in rest:
                if other not in number:
                    number[other] = lowest[other] = len(number)
                    stack.append(other)
                    work.append((other, iter(sorted(imports[other]))))
                    break
                if other in stack:
                    lowest[module] = min(lowest[module], number[other])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[module])
                if lowest[module] == number[module]:
                    found = stack[stack.index(module) :]
                    del stack[stack.index(module) :]
                    if len(found) > 1:
                        yield sorted(found)


def _imports() -> dict[str, set[str]]:
    graph = grimp.build_graph("jesenska", cache_dir=None)
    imports = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    # Modules that are loaded by name: a broker's handlers, and the messages of the protocol.
    handlers = importlib.import_module("jesenska.broker.handlers")
    imports["jesenska.broker.server"] |= {
        f"{handlers.__name__}.{item.name}" for item in pkgutil.iter_modules(handlers.__path__)
    }
    messages = importlib.import_module("jesenska.wire.messages")
    imports["jesenska.wire.registry"] |= {
        f"{messages.__name__}.{item.name}" for item in pkgutil.iter_modules(messages.__path__)
    }
    return imports


def test_no_import_circle_is_in_the_tree() -> None:
    assert list(_circles(_imports())) == []


def test_circles_are_found() -> None:
    assert list(_circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == [["a", "b", "c"]]
