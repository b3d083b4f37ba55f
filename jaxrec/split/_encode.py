"""The control program in the words that the core decodes."""

from __future__ import annotations

from collections.abc import Sequence

from jaxrec import _core
from jaxrec.graph._ir import Graph
from jaxrec.split._bundles import Bundles, row_type
from jaxrec.split._cells import Cells
from jaxrec.split._classes import result_values
from jaxrec.split._emit import Code
from jaxrec.split._program import CellSpec
from jaxrec.split._registers import ArrayTable
from jaxrec.split._scalar import DTYPES


def encode(
    graph: Graph,
    cells: Cells,
    codes: Sequence[Code],
    table: ArrayTable,
    specs: Sequence[CellSpec],
    bundles: Bundles,
) -> list[int]:
    """The words: arrays that control reads, tape classes, cells, imports, then the functions.

    `csrc/core/decode.cc` reads and checks them in this order. Lists stand behind their lengths.
    """
    functions: list[int] = [len(codes), 0]
    for function, code in zip(graph.functions, codes, strict=True):
        results = bundles.rows(result_values(function.body, cells))
        functions.append(int(function.memo))
        functions += _counted([DTYPES[v.aval.dtype.name] for v in code.control_params])
        functions += _counted([bundles.of(v) for v in bundles.rows(code.data_params)])
        functions += _counted([bundles.of(v) for v in results])
        functions += [code.num_registers, code.num_slots]
        functions += _counted(code.words)
    words = [_core.MAGIC, _core.VERSION, len(table.values)]
    for value in table.values:
        words += [DTYPES[value.aval.dtype.name], value.aval.ndim]
    words += [len(bundles.members), len(specs)]
    for spec in specs:
        words += _counted(spec.inputs)
        words += _counted(spec.outputs)
        words += _counted([DTYPES[v.aval.dtype.name] for v in spec.cell.exports])
    words.append(len(bundles.imports))
    for c in bundles.imports:
        words += [c, DTYPES[row_type(bundles.members[c]).dtype.name]]
    return words + functions


def _counted(items: Sequence[int]) -> list[int]:
    return [len(items), *items]
