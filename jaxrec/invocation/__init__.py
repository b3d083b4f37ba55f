"""One invocation: its parameters, bounds, results and differentiated cells."""
