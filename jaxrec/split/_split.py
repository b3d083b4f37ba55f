"""Splits a graph into planes: runs the passes of this stage, and makes the program of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxrec.graph._check import check_graph
from jaxrec.graph._ir import Graph, Value
from jaxrec.split._ahead import decided_ahead
from jaxrec.split._binding import Binding, bind, needed_control
from jaxrec.split._bound import visits_of
from jaxrec.split._bundles import Bundles
from jaxrec.split._cells import Cell, Cells, split_cells
from jaxrec.split._classes import Classes, result_values
from jaxrec.split._cost import cell_flops, nested_work, shared_elements
from jaxrec.split._emit import Code, emit_function
from jaxrec.split._encode import encode
from jaxrec.split._memo import check_shared
from jaxrec.split._most import most_of, sure_calls
from jaxrec.split._names import shown_names
from jaxrec.split._outer import find_outers
from jaxrec.split._program import CellSpec, Program
from jaxrec.split._ready import most_ready
from jaxrec.split._registers import ArrayTable


def split(graph: Graph, tangents: frozenset[Value] = frozenset()) -> Program:
    """Splits a graph into the two planes.

    Args:
        graph: the graph.
        tangents: of one that computes derivatives.

    Raises:
        SignatureError: a function is shared whose calls cannot be compared.
    """
    program = _program(graph, tangents)
    if not program.is_stepped or program.native is not None:
        return program
    told = decided_ahead(graph, program.binding)
    return program if told is graph else _program(told, tangents)


def _program(graph: Graph, tangents: frozenset[Value]) -> Program:
    check_graph(graph)
    outer_of = find_outers(graph)
    binding = bind(graph, outer_of)
    cells = split_cells(graph, binding)
    needed = needed_control(graph, binding, [v for cell in cells.cells for v in cell.exports])
    table = ArrayTable(binding)
    bundles = Bundles(graph, binding, cells, Classes(graph, binding, cells))
    codes = [
        emit_function(graph, f, binding, cells, needed, bundles, table) for f in graph.functions
    ]
    for function, code in zip(graph.functions, codes, strict=True):
        check_shared(function, code.data_params)
    return _assemble(graph, binding, cells, bundles, codes, table, tangents)


def _assemble(
    graph: Graph,
    binding: Binding,
    cells: Cells,
    bundles: Bundles,
    codes: Sequence[Code],
    table: ArrayTable,
    tangents: frozenset[Value],
) -> Program:
    entry, entry_code = graph.entry, codes[0]
    outers = tuple(v for v in entry.params if v in binding.outer_of) + graph.captured
    calls = sure_calls(graph, cells)
    specs = tuple(_cell_spec(cell, outers, bundles, calls[cell]) for cell in cells.cells)
    result_rows = _rows(result_values(entry.body, cells), bundles)
    data_rows = _rows(entry_code.data_params, bundles)
    words = encode(graph, cells, codes, table, specs, bundles)
    names = shown_names(graph, [code.control_params for code in codes], table.values)
    count = len(bundles.members)
    visits = visits_of(graph, binding, [code.control_params for code in codes])
    return Program(
        graph=graph,
        binding=binding,
        outers=outers,
        control=tuple(entry.params.index(v) for v in entry_code.control_params),
        data=tuple(entry.params.index(v) for v in entry_code.data_params),
        cells=specs,
        members=tuple(bundles.members),
        data_rows=data_rows,
        result_rows=result_rows,
        imports=tuple(bundles.imports),
        control_outers=tuple(table.values),
        words=np.asarray(words, np.int64),
        names=names,
        writes=most_of(graph, cells, specs, count, lambda s: s.outputs),
        reads=most_of(graph, cells, specs, count, lambda s: s.inputs),
        fires=sum(most_of(graph, cells, specs, len(specs), lambda s: (s.cell.index,), total=True)),
        visits=visits,
        most_ready=most_ready(graph, cells, visits),
        row_flops=max((cell_flops(cell) for cell in cells.cells), default=0.0),
        nested=nested_work(graph, cells),
        shared_elements=max(map(shared_elements, cells.cells), default=0),
        tangents=tangents,
    )


def _cell_spec(cell: Cell, outers: Sequence[Value], bundles: Bundles, calls: int) -> CellSpec:
    written = [v for _, v in cell.outputs]
    outputs = bundles.groups(written)
    return CellSpec(
        cell,
        tuple(outers.index(v) for v in cell.outers),
        tuple(bundles.of(v) for v in bundles.rows(cell.inputs)),
        tuple(bundles.of(written[g[0]]) for g in outputs),
        tuple(bundles.parts(v) for v in bundles.rows(cell.inputs)),
        tuple(tuple(cell.outputs[k][0] for k in g) for g in outputs),
        calls,
    )


def _rows(values: Sequence[Value], bundles: Bundles) -> tuple[tuple[int, tuple[int, ...]], ...]:
    return tuple((bundles.of(values[g[0]]), g) for g in bundles.groups(values))
