"""Optimizer steps that cost what a batch uses, not what a table holds."""

from jaxrec.optim._rows import RowOptimizer as RowOptimizer
from jaxrec.optim._rows import UsedRows as UsedRows
from jaxrec.optim._rows import gather_rows as gather_rows
from jaxrec.optim._rows import scatter_rows as scatter_rows
from jaxrec.optim._rows import used_rows as used_rows
