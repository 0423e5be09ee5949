"""What can be changed in a module, one place at a time: found in its syntax tree, made in its text.

| kind | what is changed |
|---|---|
| comparison | its operator: `<` is `<=`, `==` is `!=`, `in` is `not in` |
| logic | `and` is `or`; a `not` is left out; `True` is `False` |
| number | is one more |
| condition | an `if` (also of a comprehension or a case) is taken always, or never |
| return | another value: nothing, or the opposite |
| leaving | a `return`, `continue` or `break` before the end is left out |
| element | of a tuple, a list or a set is left out |
| effect | a call or a `yield` whose value nobody uses is left out |

Left alone is what does not decide: annotations, decorators, base classes, assertions, `__all__`, what only type
checkers read, and what stands in f-strings.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

_OPERATORS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "in": "not in",
    "not in": "in",
    "is": "is not",
    "is not": "is",
}
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass(frozen=True, slots=True)
class Mutation:
    """`start` and `end` count the characters of the module's source; between them stands `before`. `text` is the line
    without its indentation. `file` is relative to the package, `function` has the names of its classes before it.
    `dropped`: the element that is left out, in place of `before` where people read it. `nth`: of the mutations of that
    line that read the same, which one it is."""

    file: str
    function: str
    line: int
    text: str
    kind: str
    start: int
    end: int
    before: str
    after: str
    dropped: str = ""
    nth: int = 1

    @property
    def change(self) -> str:
        """What becomes what, in one line."""
        nth = f" ({self.nth})" if self.nth > 1 else ""
        after = _in_one_line(self.after) if not self.dropped else ""
        return f"{_in_one_line(self.dropped or self.before)} -> {after or 'nothing'}{nth}"

    def applied_to(self, source: str) -> str:
        """The module with this mutation in it."""
        assert source[self.start : self.end] == self.before, f"{self.file} is another one"
        return source[: self.start] + self.after + source[self.end :]


def mutations_of(source: str, file: str) -> list[Mutation]:
    """All mutations of a module, in the order of its text."""
    found = _Places(source, file)
    found.block(ast.parse(source).body, returns=False, goes_on=False)
    ordered = sorted(found.mutations, key=lambda one: (one.start, one.end, one.kind, one.after))
    alike: Counter[tuple[int, str]] = Counter()
    numbered = []
    for one in ordered:
        alike[one.line, one.change] += 1
        numbered.append(replace(one, nth=alike[one.line, one.change]))
    return numbered


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


class _Places:
    """Walks through a module and gathers what can be changed."""

    def __init__(self, source: str, file: str) -> None:
        self.mutations: list[Mutation] = []
        self._source = source
        self._file = file
        self._lines = source.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._names: list[str] = []

    # --- statements --------------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt], *, returns: bool, goes_on: bool) -> None:
        """`returns`: after the block the function returns anyway; `goes_on`: the loop goes on anyway."""
        for statement in statements:
            is_last = statement is statements[-1]
            self._statement(statement, returns=returns and is_last, goes_on=goes_on and is_last)

    def _statement(self, statement: ast.stmt, *, returns: bool, goes_on: bool) -> None:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._names.append(statement.name)
            self._all(
                [*statement.args.defaults, *(default for default in statement.args.kw_defaults if default is not None)]
            )
            self.block(statement.body, returns=True, goes_on=False)
            self._names.pop()
        elif isinstance(statement, ast.ClassDef):
            self._names.append(statement.name)
            self.block(statement.body, returns=False, goes_on=False)
            self._names.pop()
        elif isinstance(statement, ast.If):
            if not _is_for_type_checkers(statement.test):
                self._condition(statement.test)
                self.block(statement.body, returns=returns, goes_on=goes_on)
            self.block(statement.orelse, returns=returns, goes_on=goes_on)
        elif isinstance(statement, (ast.For, ast.AsyncFor)):
            self._expression(statement.iter)
            self.block(statement.body, returns=False, goes_on=True)
            self.block(statement.orelse, returns=returns, goes_on=goes_on)
        elif isinstance(statement, ast.While):
            if not isinstance(statement.test, ast.Constant):
                self._replace(statement.test, "condition", "False")
                self._expression(statement.test)
            self.block(statement.body, returns=False, goes_on=True)
            self.block(statement.orelse, returns=returns, goes_on=goes_on)
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            self._all([item.context_expr for item in statement.items])
            self.block(statement.body, returns=returns, goes_on=goes_on)
        elif isinstance(statement, (ast.Try, ast.TryStar)):
            ends = not statement.orelse and not statement.finalbody
            for body in (
                statement.body,
                *(handler.body for handler in statement.handlers),
                statement.orelse,
                statement.finalbody,
            ):
                self.block(body, returns=returns and ends, goes_on=goes_on and ends)
        elif isinstance(statement, ast.Match):
            self._expression(statement.subject)
            for case in statement.cases:
                if case.guard is not None:
                    self._condition(case.guard)
                self.block(case.body, returns=returns, goes_on=goes_on)
        elif isinstance(statement, ast.Return):
            self._return(statement, is_last=returns)
        elif isinstance(statement, (ast.Continue, ast.Break)):
            if not (goes_on and isinstance(statement, ast.Continue)):
                self._replace(statement, "leaving", "pass")
        elif isinstance(statement, ast.Expr):
            self._effect(statement.value)
        elif isinstance(statement, ast.AnnAssign):
            if statement.value is not None:
                self._expression(statement.value)
        elif not isinstance(statement, ast.Assert) and not _says_what_is_public(statement):
            self._all([child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)])

    def _return(self, statement: ast.Return, *, is_last: bool) -> None:
        value = statement.value
        if not is_last:
            self._replace(statement, "leaving", "pass")
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return
        if isinstance(value, ast.BoolOp) or (
            isinstance(value, ast.Compare) and (len(value.ops) > 1 or isinstance(value.ops[0], _ORDERS))
        ):
            self._replace(value, "return", f"not ({self._text(value)})")
        elif not isinstance(value, (ast.Compare, ast.UnaryOp)) and not (
            isinstance(value, ast.Constant) and isinstance(value.value, bool)
        ):
            self._replace(value, "return", "None")
        self._expression(value)

    def _effect(self, value: ast.expr) -> None:
        if isinstance(value, ast.Call):
            self._replace(value, "effect", "pass")
        elif isinstance(value, (ast.Yield, ast.YieldFrom)) and not (
            isinstance(value.value, ast.Tuple) and not value.value.elts
        ):
            # It stays a generator.
            self._replace(value, "effect", "yield from ()")
        self._expression(value)

    # --- expressions -------------------------------------------------------------------------------------------------

    def _all(self, expressions: Sequence[ast.expr]) -> None:
        for expression in expressions:
            self._expression(expression)

    def _condition(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Constant):
            for taken in ("True", "False"):
                self._replace(test, "condition", taken)
        self._expression(test)

    def _expression(self, expression: ast.expr) -> None:
        if isinstance(expression, ast.JoinedStr):
            return  # Python 3.11 does not say where the parts of an f-string stand.
        if isinstance(expression, ast.Constant):
            if isinstance(expression.value, bool):
                self._replace(expression, "logic", str(not expression.value))
            elif isinstance(expression.value, (int, float)):
                self._replace(expression, "number", repr(expression.value + 1))
            return
        if isinstance(expression, ast.Compare):
            for left, right in zip((expression.left, *expression.comparators), expression.comparators):
                self._between(left, right, "comparison", _OPERATORS)
        elif isinstance(expression, ast.BoolOp):
            for left, right in zip(expression.values, expression.values[1:]):
                self._between(left, right, "logic", {"and": "or", "or": "and"})
        elif isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.Not):
            start = self._start(expression)
            word = re.compile(r"not\s*").match(self._source, start)
            assert word is not None
            self._add(expression.lineno, "logic", start, word.end(), "")
        elif isinstance(expression, (ast.Tuple, ast.List, ast.Set)):
            self._elements(expression)
        if isinstance(expression, ast.IfExp):
            self._condition(expression.test)
            self._all([expression.body, expression.orelse])
        elif isinstance(expression, ast.Subscript):
            self._expression(expression.value)
            self._subscript(expression.slice)
        elif isinstance(expression, ast.Lambda):
            self._expression(expression.body)
        elif isinstance(expression, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            made = [expression.key, expression.value] if isinstance(expression, ast.DictComp) else [expression.elt]
            self._all(made)
            for part in expression.generators:
                self._expression(part.iter)
                for test in part.ifs:
                    self._condition(test)
        elif isinstance(expression, ast.Call):
            self._all([expression.func, *expression.args, *(keyword.value for keyword in expression.keywords)])
        else:
            self._all([child for child in ast.iter_child_nodes(expression) if isinstance(child, ast.expr)])

    def _subscript(self, inside: ast.expr) -> None:
        """What stands in brackets. Elements stay there: a type or a key of several parts would be no such thing."""
        if isinstance(inside, (ast.Tuple, ast.List)):
            for element in inside.elts:
                self._subscript(element)
        elif isinstance(inside, ast.Slice):
            self._all([part for part in (inside.lower, inside.upper, inside.step) if part is not None])
        else:
            self._expression(inside)

    def _elements(self, expression: ast.Tuple | ast.List | ast.Set) -> None:
        elements = expression.elts
        if not isinstance(getattr(expression, "ctx", ast.Load()), ast.Load) or (
            len(elements) == 1 and isinstance(expression, ast.Set)
        ):
            return
        brackets = {ast.Tuple: "()", ast.List: "[]", ast.Set: "{}"}[type(expression)]
        for index, element in enumerate(elements):
            others = [self._text(other) for other in (*elements[:index], *elements[index + 1 :])]
            comma = "," if isinstance(expression, ast.Tuple) and len(others) == 1 else ""
            after = f"{brackets[0]}{', '.join(others)}{comma}{brackets[1]}"
            self._add(
                element.lineno,
                "element",
                self._start(expression),
                self._end(expression),
                after,
                dropped=self._text(element),
            )

    # --- places ------------------------------------------------------------------------------------------------------

    def _between(self, left: ast.expr, right: ast.expr, kind: str, others: dict[str, str]) -> None:
        """Changes the operator between two operands."""
        start, end = self._end(left), self._start(right)
        # Beside it stand at most blanks and brackets; a comment has words of its own.
        match = re.fullmatch(r"[\s)\\]*(.*?)[\s(\\]*", self._source[start:end], re.DOTALL)
        assert match is not None
        operator = " ".join(match[1].split())
        if operator in others:
            line = self._source.count("\n", 0, start + match.start(1)) + 1
            self._add(line, kind, start + match.start(1), start + match.end(1), others[operator])

    def _replace(self, node: ast.expr | ast.stmt, kind: str, after: str) -> None:
        self._add(node.lineno, kind, self._start(node), self._end(node), after)

    def _add(self, line: int, kind: str, start: int, end: int, after: str, dropped: str = "") -> None:
        before, text = self._source[start:end], self._lines[line - 1].strip()
        self.mutations.append(
            Mutation(self._file, ".".join(self._names), line, text, kind, start, end, before, after, dropped)
        )

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        """Columns of a syntax tree count bytes of UTF-8."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _text(self, node: ast.expr) -> str:
        return self._source[self._start(node) : self._end(node)]


def _says_what_is_public(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id == "__all__"
    )


def _is_for_type_checkers(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
