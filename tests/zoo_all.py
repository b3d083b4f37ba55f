"""All programs of the zoo."""

import zoo_control
import zoo_functions
import zoo_trees
import zoo_types
from zoo import PROGRAMS as PROGRAMS

assert zoo_control and zoo_functions and zoo_trees and zoo_types
