"""All programs of the zoo."""

import zoo_computed
import zoo_control
import zoo_functions
import zoo_lanes
import zoo_loops
import zoo_memo
import zoo_shapes
import zoo_stepped
import zoo_trees
import zoo_types
from zoo import PROGRAMS as PROGRAMS

MODULES = (
    zoo_computed,
    zoo_control,
    zoo_functions,
    zoo_lanes,
    zoo_loops,
    zoo_memo,
    zoo_shapes,
    zoo_stepped,
    zoo_trees,
    zoo_types,
)
