"""The one package that touches JAX internals.

What is here has no public counterpart yet in the versions that jaxrec supports. Everything else in
jaxrec uses public names of JAX, and of their objects a few methods that the documentation leaves
out.
"""

from jaxrec._compat._arrays import (
    Put,
    aval_of,
    is_concrete,
    is_uncommitted,
    sums_shared_products,
    typed,
    weak,
)
from jaxrec._compat._jaxprs import (
    ALWAYS_INLINED,
    axes_named_by,
    called,
    collectives,
    inlined,
    is_literal,
    is_of_debugging,
    is_of_jax,
    moved_results,
    named_axes,
    opened,
    scan_counts,
    side_effects,
    traced_under,
    without_dead,
    written_at,
)
from jaxrec._compat._meshes import (
    as_if_alone,
    common_vma,
    is_on_explicit_mesh,
    vary_over,
    with_axes_of,
    with_vma,
    without_mesh,
)
from jaxrec._compat._rules import (
    Zero,
    batched_by,
    define_impl,
    devices_of,
    is_compiled_anew,
    is_undefined_primal,
    keep_weakly,
    leaves_keys,
    platforms_of,
    register_batching,
    register_batching_by_axis,
    register_jvp,
    register_lowering,
    register_lowering_rule,
    register_transpose,
    shows_nan,
)
from jaxrec._compat._settings import (
    compiled_count,
    context,
    is_wide,
    setting,
    settings,
    with_types_of,
    without_checks,
)
from jaxrec._compat._tracers import (
    current_trace,
    differentiates_inside,
    evaluates_now,
    is_batched,
    is_folded,
    is_known,
    is_staged,
    let_go_of,
    mapped_by,
    maps_now,
    not_mapped,
    on_known,
    traces_behind,
    unbatched_once,
    value_behind,
)
