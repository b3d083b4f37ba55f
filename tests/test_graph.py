"""The static graph: its text, its drawing, and the rules that it keeps."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import pytest
import zoo_all
from zoo import JAXREC, PROGRAMS

import jaxrec as jr
from jaxrec.graph._check import GraphError, check_graph
from jaxrec.graph._ir import Call, Switch, Value, has_call, walk


@jr.rec_fn
def power(x, n):
    return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))


TEXT = """\
function power(x %0: float32[], n %1: int32[])
  %2 = eq(%1, 0): bool[]
  %3 = convert_element_type(%2): int32[]
  Switch %3
    region 0
      %5 = sub(%1, 1): int32[]
      Call_0 power(%0, %5)
      %6 = Return_0 power
      %7 = mul(%0, %6): float32[]
      yield %7
    region 1
      yield 1.0
  %4 = Merge
  Result %4"""


def test_text():
    assert str(power.graph(2.0, 3)) == TEXT
    assert repr(power.graph(2.0, 3)) == TEXT


def test_graph_does_not_depend_on_depth():
    assert str(power.graph(2.0, 3)) == str(power.graph(5.0, 3000))


def test_mutual_recursion_has_a_function_each():
    graph = (
        PROGRAMS["first_child_next_sibling"]
        .build(JAXREC)
        .graph(*PROGRAMS["first_child_next_sibling"].args)
    )
    assert [f.name for f in graph.functions] == ["node", "chain"]
    assert {op.callee for f in graph.functions for op in walk(f.body) if isinstance(op, Call)} == {
        0,
        1,
    }


def test_values_from_outside_are_captured_once():
    table = jnp.arange(5.0)

    @jr.rec_fn
    def f(n):
        return jr.cond(n == 0, lambda: table[n], lambda: table[n] + f(n - 1) * table.sum())

    assert [v.aval.shape for v in f.graph(3).captured] == [(5,)]


def test_dot_is_balanced_and_names_calls():
    dot = power.graph(2.0, 3).dot()
    assert dot.startswith("digraph {") and dot.count("{") == dot.count("}")
    for part in ("Call_0 power", "Return_0 power", "Switch", "Merge", "Arg n"):
        assert part in dot


RECURSIONS = [name for name, p in zoo_all.PROGRAMS.items() if hasattr(p.build(JAXREC), "graph")]
"""The programs that are one recursive function, not a function around some."""


@pytest.mark.parametrize("name", RECURSIONS)
def test_graphs_of_the_zoo_keep_the_rules(name):
    example = PROGRAMS[name]
    with example.precision():
        graph = example.build(JAXREC).graph(*example.args)
    assert check_graph(graph) is graph
    assert "digraph" in graph.dot() and "function" in str(graph)


class TestRules:
    """`check_graph` finds each way to break a graph."""

    @pytest.fixture
    def graph(self):
        return power.graph(2.0, 3)

    def broken(self, graph, change):
        entry = graph.entry
        body = dataclasses.replace(entry.body, **change(entry.body))
        function = dataclasses.replace(entry, body=body)
        return dataclasses.replace(graph, functions=(function, *graph.functions[1:]))

    def switch_with(self, body, change):
        old = next(op for op in body.ops if isinstance(op, Switch))
        new = dataclasses.replace(old, **change(old))
        return {"ops": tuple(new if op is old else op for op in body.ops)}

    def call_with(self, body, **changed):
        def regions(op):
            first = op.regions[0]
            ops = tuple(
                dataclasses.replace(o, **changed) if isinstance(o, Call) else o for o in first.ops
            )
            return {"regions": (dataclasses.replace(first, ops=ops), *op.regions[1:])}

        return self.switch_with(body, regions)

    def test_value_out_of_scope(self, graph):
        other = Value(99, graph.entry.params[0].aval)
        wrong = self.broken(graph, lambda body: {"results": (other,)})
        with pytest.raises(GraphError, match=r"power: %99 is read where it is not in scope"):
            check_graph(wrong)

    def test_value_made_twice(self, graph):
        wrong = self.broken(graph, lambda body: {"ops": (body.ops[0], *body.ops)})
        with pytest.raises(GraphError, match=r"%2 is made twice"):
            check_graph(wrong)

    def test_call_with_other_arguments(self, graph):
        x, n = graph.entry.params
        wrong = self.broken(graph, lambda body: self.call_with(body, inputs=(n, x)))
        with pytest.raises(GraphError, match=r"arguments of call 0: .*int32.* where .*float32"):
            check_graph(wrong)

    def test_call_with_too_few_arguments(self, graph):
        wrong = self.broken(graph, lambda body: self.call_with(body, inputs=()))
        with pytest.raises(GraphError, match=r"arguments of call 0: 0 values, expected 2"):
            check_graph(wrong)

    def test_region_with_other_results(self, graph):
        n = graph.entry.params[1]

        def regions(op):
            region = dataclasses.replace(op.regions[1], results=(n,))
            return {"regions": (op.regions[0], region)}

        wrong = self.broken(graph, lambda body: self.switch_with(body, regions))
        with pytest.raises(GraphError, match=r"results of a region"):
            check_graph(wrong)


def test_has_call():
    ops = power.graph(2.0, 3).entry.body.ops
    assert [has_call(op) for op in ops] == [False, False, True]
