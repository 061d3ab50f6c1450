# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Symbolic sizes as text: from the expressions of ``torch.export`` to expressions in the batch B.

The grammar is that of ``kerf::Expr``: + - * // % **, max(a, b), min(a, b), B and whole numbers.
"""

import ast
import operator

import sympy
import torch


class NotAnExpression(ValueError):
    """A symbolic number that is no integer expression in B; ``expression`` is torch's own."""

    def __init__(self, expression):
        super().__init__(f"{expression} is not an integer expression in the batch size")
        self.expression = expression


class Symbols:
    """What each of export's symbols is in terms of B; texts are made once an expression."""

    def __init__(self):
        self._known = {}  # sympy.Symbol -> text
        self._texts = {}  # sympy.Expr -> int or text
        self.divisors = []  # conditions that the sizes themselves make

    def define(self, dim):
        """Says that ``dim``, a size of an input, is B. False when that cannot be solved."""
        expr = dim.node.expr
        symbols = expr.free_symbols
        if len(symbols) != 1:
            return False
        (symbol,) = symbols
        slope, rest = expr.coeff(symbol, 1), expr.coeff(symbol, 0)
        if sympy.expand(slope * symbol + rest - expr) != 0 or not slope.is_Integer:
            return False
        text = "B" if rest == 0 else f"(B-({int(rest)}))"
        if slope != 1:
            self.divisors.append((f"{text}%{int(slope)}", "==", 0))
        self._known[symbol] = text if slope == 1 else f"({text}//{int(slope)})"
        return True

    def conditions(self, expr):
        """What is true when ``expr`` is, as (left, relation, right). Raises NotAnExpression."""
        if expr is sympy.true or not expr.free_symbols:
            return []
        if isinstance(expr, sympy.And):
            return [c for part in expr.args for c in self.conditions(part)]
        if not isinstance(expr, sympy.core.relational.Relational):
            raise NotAnExpression(expr)
        name, swapped = _RELATIONS[type(expr).__name__]
        left, right = reversed(expr.args) if swapped else expr.args
        try:
            return [(self._print(left), name, self._print(right))]
        except NotAnExpression:
            return [(self._print(_whole(left - right, expr)), name, 0)]

    def text(self, value):
        """An int for what is fixed, else an expression in B. Raises NotAnExpression."""
        if isinstance(value, int):
            return value
        if not isinstance(value, torch.SymInt):
            raise NotAnExpression(value.node.expr)
        expr = value.node.expr
        found = self._texts.get(expr)
        if found is None:
            found = self._texts[expr] = self._print(expr)
        return found

    def _print(self, expr):
        if expr.is_Integer:
            return int(expr)
        return _Printer(self._known, expr).text(expr)


class _Printer:
    def __init__(self, known, whole):
        self.known = known
        self.whole = whole

    def text(self, expr):
        if expr.is_Integer:
            return str(int(expr)) if expr >= 0 else f"({int(expr)})"
        if expr.is_Symbol:
            if expr not in self.known:
                raise NotAnExpression(self.whole)
            return self.known[expr]
        name = type(expr).__name__
        args = expr.args
        if name == "Add":
            return self.joined(args, "+")
        if name == "Mul":
            return self.joined(args, "*")
        if name in ("Pow", "PowByNatural"):
            return self.power(*args)
        if name in ("FloorDiv", "CleanDiv"):
            return self.joined(args, "//")
        if name in ("Mod", "PythonMod"):
            return self.joined(args, "%")
        if name in ("Max", "Min"):
            return self.nested(name.lower(), list(args))
        if name in ("TruncToInt", "ToFloat", "Identity"):  # of an integer: itself
            return self.text(args[0])
        raise NotAnExpression(self.whole)

    def joined(self, args, sign):
        return "(" + sign.join(self.text(a) for a in args) + ")"

    def power(self, base, exponent):
        if not exponent.is_Integer or exponent < 0:
            raise NotAnExpression(self.whole)
        return f"({self.text(base)}**{int(exponent)})"

    def nested(self, function, args):
        first = self.text(args[0])
        if len(args) == 1:
            return first
        return f"{function}({first},{self.nested(function, args[1:])})"


# sympy's class -> the graph's relation, and whether the sides change places.
_RELATIONS = {
    "Equality": ("==", False),
    "Unequality": ("!=", False),
    "StrictLessThan": ("<", False),
    "LessThan": ("<=", False),
    "StrictGreaterThan": ("<", True),
    "GreaterThan": ("<=", True),
}


def _whole(difference, whole):
    """``difference``, which is compared with zero, without fractions. Raises NotAnExpression."""

    def exact(expr):
        name = type(expr).__name__
        if expr.is_Float:
            return sympy.Rational(str(expr)) if float(expr).is_integer() else sympy.nsimplify(expr)
        if not expr.args:
            return expr
        args = [exact(a) for a in expr.args]
        if name in ("ToFloat", "Identity"):
            return args[0]
        if name in ("IntTrueDiv", "FloatTrueDiv") and args[1].is_Rational and args[1] > 0:
            return args[0] / args[1]
        return expr.func(*args)

    numerator, denominator = sympy.fraction(sympy.together(exact(difference)))
    if not denominator.is_Integer or denominator <= 0:
        raise NotAnExpression(whole)
    return sympy.expand(numerator)


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS = {"max": max, "min": min}


def evaluate(expression, batch):
    """The value of an expression text at a batch size. Raises ValueError for anything else."""

    def walk(node):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id == "B":
            return batch
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _apply(node.op, walk(node.left), walk(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand)
        if isinstance(node, ast.Call) and len(node.args) == 2 and isinstance(node.func, ast.Name):
            return _FUNCTIONS[node.func.id](*map(walk, node.args))
        raise ValueError(f"'{expression[:80]}' is not an expression in B")

    try:
        return walk(ast.parse(expression, mode="eval").body)
    except ZeroDivisionError:
        raise ValueError(f"'{expression[:80]}' divides by zero at B = {batch}") from None
    except (SyntaxError, RecursionError, MemoryError, KeyError):
        raise ValueError(f"'{expression[:80]}' is not an expression in B") from None


def _apply(sign, a, b):
    # Files may be hostile: a tower of powers must not fill the memory.
    if isinstance(sign, ast.Pow) and not (0 <= b <= 64 and abs(a) < 2**63):
        raise ValueError(f"{a}**{b} is not the size of a tensor")
    return _OPERATORS[type(sign)](a, b)
