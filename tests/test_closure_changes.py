"""What bodies lead to, and how it is changed in place: a program each, before and after."""

from __future__ import annotations

import logging
from typing import Any

import jax.numpy as jnp
import pytest

import jaxrec as jr

WITH_VALUE = "class C:\n def __init__(self, v): self._v = v\n"
DEEP = (
    "import types\nm = types.ModuleType('m')\nm.sub = types.ModuleType('sub')\n"
    "m.sub.deep = types.ModuleType('deep')\nm.sub.deep.gain = 2.0\n"
)
INSTALLED = """
import site, sys, types
lib = sys.modules['installed'] = types.ModuleType('installed')
lib.__file__ = site.getsitepackages()[0] + '/installed.py'
exec('''
class Variable:
    def __init__(self, value): self._held = value
    def get(self): return self._held
    @property
    def value(self): return self._held
    @value.setter
    def value(self, new): self._held = new
class Layer:
    def __init__(self, gain): self._gain = gain
    def __call__(self, x): return x * self._gain.value
''', vars(lib))
"""
CHANGED = {
    "a default of the class": (
        "class C: gain = 2.0\nc = C()\n"
        "def body(x): return x * c.gain",
        "c.gain = 5.0",
    ),
    "an object in an object": (
        WITH_VALUE + "c = C(C(C(2.0)))\ndef body(x): return x * c._v._v._v",
        "c._v._v._v = 5.0",
    ),
    "objects that refer to one another": (
        WITH_VALUE + "c = C(2.0)\nc.child = C(3.0)\nc.child.parent = c\n"
        "def body(x): return x * c.child.parent._v * c.child._v",
        "c.child._v = 5.0",
    ),
    "a method of an object in an object": (
        WITH_VALUE + " def m(self, x): return self._v * x\nc = C(C(2.0))\n"
        "def body(x): return c._v.m(x)",
        "c._v._v = 5.0",
    ),
    "a class": (
        "class C: gain = 2.0\ndef body(x): return x * C.gain",
        "C.gain = 5.0",
    ),
    "a class that another one inherits from": (
        "class B: gains = [2.0]\nclass C(B): pass\ndef body(x): return x * C.gains[0]",
        "B.gains[0] = 5.0",
    ),
    "a class in a class": (
        "class C:\n class D: gain = 2.0\nC.D.outer = C\ndef body(x): return x * C.D.gain",
        "C.D.gain = 5.0",
    ),
    "a module": (
        "import types\nm = types.ModuleType('m')\nm.gain = 2.0\ndef body(x): return x * m.gain",
        "m.gain = 5.0",
    ),
    "an object in a module": (
        WITH_VALUE + "import types\nm = types.ModuleType('m')\nm.c = C(2.0)\n"
        "def body(x): return x * m.c._v",
        "m.c._v = 5.0",
    ),
    "a function of a module": (
        "import types\nm = types.ModuleType('m')\nm.act = lambda x: 2.0 * x\n"
        "def body(x): return m.act(x)",
        "m.act = lambda x: 5.0 * x",
    ),
    "a function of a module in a module": (
        "import types\nm = types.ModuleType('m')\nm.sub = types.ModuleType('sub')\n"
        "m.sub.act = lambda x: 2.0 * x\ndef body(x): return m.sub.act(x)",
        "m.sub.act = lambda x: 5.0 * x",
    ),
    "a module in a module in a module": (
        DEEP + "def body(x): return x * m.sub.deep.gain",
        "m.sub.deep.gain = 5.0",
    ),
    "what code of many names reads of modules in modules": (
        DEEP + "def body(x):\n if x is None: return "
        + " or ".join(f"x.name_{k}" for k in range(300)) + "\n return x * m.sub.deep.gain",
        "m.sub.deep.gain = 5.0",
    ),
    "what a function of another module names": (
        "import types\nm = types.ModuleType('m')\nm.gain = 2.0\n"
        "exec('def act(x): return gain * x', vars(m))\nact = m.act\ndef body(x): return act(x)",
        "m.gain = 5.0",
    ),
    "a method of the class": (
        "class C:\n def m(self, x): return 2.0 * x\nc = C()\ndef body(x): return c.m(x)",
        "C.m = lambda self, x: 5.0 * x",
    ),
    "a method of a class that another one inherits from": (
        "class B:\n def m(self, x): return 2.0 * x\nclass C(B): pass\nc = C()\n"
        "def body(x): return c.m(x)",
        "B.m = lambda self, x: 5.0 * x",
    ),
    "a property of the class": (
        "class C: gain = property(lambda self: 2.0)\nc = C()\ndef body(x): return c.gain * x",
        "C.gain = property(lambda self: 5.0)",
    ),
    "a static method by its class": (
        "K = 2.0\nclass C:\n @staticmethod\n def m(x): return K * x\n"
        "def body(x): return C.m(x)",
        "K = 5.0",
    ),
    "a class method by its class": (
        "K = 2.0\nclass C:\n @classmethod\n def m(cls, x): return K * x\n"
        "def body(x): return C.m(x)",
        "K = 5.0",
    ),
    "a method of a class that inherits another": (
        "class B:\n def m(self, x): return 2.0 * x\nclass C(B): pass\nc = C()\n"
        "def body(x): return c.m(x)",
        "C.m = lambda self, x: 5.0 * x",
    ),
    "an attribute of a class that inherits another": (
        "class B: gain = 2.0\nclass C(B): pass\ndef body(x): return x * C.gain",
        "C.gain = 5.0",
    ),
    "what a method of an object in a class names": (
        "K = 2.0\nclass D:\n def m(self, x): return K * x\nclass C: d = D()\n"
        "def body(x): return C.d.m(x)",
        "K = 5.0",
    ),
    "what a helper in a class names": (
        "K = 2.0\ndef h(x): return K * x\nclass C: helpers = {'h': h}\n"
        "def body(x): return C.helpers['h'](x)",
        "K = 5.0",
    ),
    "what a partial method names": (
        "import functools\nK = 2.0\nclass C:\n def m(self, k, x): return K * k * x\n"
        " once = functools.partialmethod(m, 1.0)\nc = C()\ndef body(x): return c.once(x)",
        "K = 5.0",
    ),
    "the code of a static method": (
        "class C:\n @staticmethod\n def m(x): return 2.0 * x\ndef body(x): return C.m(x)",
        "C.m.__code__ = (lambda x: 5.0 * x).__code__",
    ),
    "the code of a property": (
        "class C: gain = property(lambda self: 2.0)\nc = C()\ndef body(x): return x * c.gain",
        "C.gain.fget.__code__ = (lambda self: 5.0).__code__",
    ),
    "an object beside a long list": (
        "class C: pass\nc = C()\nc.gain, c.words = 2.0, ['a'] * 2000\n"
        "def body(x): return x * c.gain if c.words else x",
        "c.gain = 5.0",
    ),
    "an object of a library that makes attributes up": (
        "import site, types\nm = types.ModuleType('configs')\n"
        "m.__file__ = site.getsitepackages()[0] + '/configs.py'\n"
        "import sys\nsys.modules['configs'] = m\n"
        "exec('class C:\\n def __init__(self): self.__dict__[\"_f\"] = {}\\n'\n"
        "     ' def __getattr__(self, k): return self._f[k]\\n'\n"
        "     ' def __setattr__(self, k, v): self._f[k] = v\\n', vars(m))\n"
        "c = m.C()\nc.gain = 2.0\ndef body(x): return x * c.gain",
        "c.gain = 5.0",
    ),
    "behind a property of an object of a library": (
        INSTALLED + "p = lib.Variable(2.0)\ndef body(x): return x * p.value",
        "p.value = 5.0",
    ),
    "behind a method of an object of a library": (
        INSTALLED + "p = lib.Variable(2.0)\ndef body(x): return x * p.get()",
        "p.value = 5.0",
    ),
    "behind a method that is inherited from a library": (
        INSTALLED + "class C(lib.Variable): pass\nc = C(2.0)\ndef body(x): return x * c.get()",
        "c.value = 5.0",
    ),
    "an object that an object of a library calls": (
        INSTALLED + "p = lib.Variable(2.0)\nlayer = lib.Layer(p)\ndef body(x): return layer(x)",
        "p.value = 5.0",
    ),
    "an object that is called by one of a library and not by another": (
        INSTALLED + "p = lib.Variable(2.0)\nc = [p, lib.Layer(p)]\ndef body(x): return c[1](x)",
        "p.value = 5.0",
    ),
    "a slot of an object that makes attributes up": (
        "class C:\n __slots__ = ('gain',)\n def __getattr__(self, k): return 1.0\nc = C()\n"
        "c.gain = 2.0\ndef body(x): return x * c.gain",
        "c.gain = 5.0",
    ),
    "an object that the body makes": (
        "K = 2.0\nclass C:\n def __call__(self, x): return K * x\ndef body(x): return C()(x)",
        "K = 5.0",
    ),
    "an object called in a method": (
        "K = 2.0\nclass D:\n def __call__(self, x): return K * x\n"
        "class C:\n def __init__(self): self.cell = D()\n def m(self, x): return self.cell(x)\n"
        "c = C()\ndef body(x): return c.m(x)",
        "K = 5.0",
    ),
    "a function of an object called in a method": (
        WITH_VALUE + " def m(self, x): return self._v(x)\nK = 2.0\nc = C(lambda x: K * x)\n"
        "def body(x): return c.m(x)",
        "K = 5.0",
    ),
    "what a method of a pytree names": (
        "from flax import nnx\nK = 2.0\nclass C(nnx.Module):\n"
        " def __call__(self, x): return K * x\nc = C()\ndef body(x): return c(x)",
        "K = 5.0",
    ),
    "a method of a pytree": (
        "from flax import nnx\nclass C(nnx.Module):\n"
        " def __call__(self, x): return 2.0 * x\nc = C()\ndef body(x): return c(x)",
        "C.__call__ = lambda self, x: 5.0 * x",
    ),
    "a property": (
        WITH_VALUE + " @property\n def gain(self): return self._v\nc = C(2.0)\n"
        "def body(x): return x * c.gain",
        "c._v = 5.0",
    ),
    "what a property names": (
        "K = 2.0\nclass C:\n @property\n def gain(self): return K\nc = C()\n"
        "def body(x): return x * c.gain",
        "K = 5.0",
    ),
    "an operator": (
        WITH_VALUE + " def __mul__(self, x): return self._v * x\nc = C(2.0)\n"
        "def body(x): return c * x",
        "c._v = 5.0",
    ),
    "a static method": (
        "K = 2.0\nclass C:\n @staticmethod\n def m(x): return K * x\nc = C()\n"
        "def body(x): return c.m(x)",
        "K = 5.0",
    ),
    "a method that is overridden": (
        "K = 2.0\nclass B:\n def m(self, x): return K * x\n"
        "class C(B):\n def m(self, x): return super().m(x)\nc = C()\ndef body(x): return c.m(x)",
        "K = 5.0",
    ),
    "helpers in a list": (
        "K = 2.0\ndef h(x): return K * x\nhs = [h]\ndef body(x): return hs[0](x)",
        "K = 5.0",
    ),
    "a helper of an object": (
        "K = 2.0\ndef h(x): return K * x\nclass C: pass\nc = C()\nc.h = h\n"
        "def body(x): return c.h(x)",
        "K = 5.0",
    ),
    "a bound method": (
        WITH_VALUE + " def m(self, x): return self._v * x\nm = C(2.0).m\ndef body(x): return m(x)",
        "m.__self__._v = 5.0",
    ),
    "an argument of a partial function": (
        "import functools\n" + WITH_VALUE + "def h(c, x): return c._v * x\n"
        "p = functools.partial(h, C(2.0))\ndef body(x): return p(x)",
        "p.args[0]._v = 5.0",
    ),
    "the order of a dictionary": (
        "c = {'a': 2.0, 'b': 3.0}\ndef body(x):\n"
        " for k, v in c.items(): x = x * v if k == 'a' else x + v\n return x",
        "c['a'] = c.pop('a')",
    ),
    "keys of several types": (
        "c = {'a': 2.0, 1: 3.0}\n"
        "def body(x): return x * c['a']",
        "c['a'] = 5.0",
    ),
    "a queue": (
        "import collections\nc = collections.deque([2.0])\ndef body(x): return x * c[0]",
        "c[0] = 5.0",
    ),
    "the code of a helper": (
        "def h(x): return 2.0 * x\ndef body(x): return h(x)",
        "h.__code__ = (lambda x: 5.0 * x).__code__",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
def test_what_is_changed_in_place(case):
    source, change = CHANGED[case]
    module: dict[str, Any] = {"jr": jr}
    exec(source, module)
    exec(
        "@jr.rec_fn\ndef f(x, n): return jr.cond(n <= 0, lambda: body(x), lambda: f(x, n - 1))",
        module,
    )
    before = module["f"](3.0, 1)
    assert float(before) == module["body"](3.0)
    exec(change, module)
    assert float(module["f"](3.0, 1)) == module["body"](3.0) != float(before)


def test_a_number_or_an_array_that_is_equal_and_another():
    """Of other types, or zeros of other signs."""
    held: Any = 1

    @jr.rec_fn
    def constant(n):
        return jr.cond(n == 0, lambda: jnp.asarray(held), lambda: constant(n - 1))

    @jr.rec_fn
    def inverse(n):
        return jr.cond(n == 0, lambda: 1.0 / held, lambda: inverse(n - 1))

    for held in (1, 1.0, True, jnp.array([1]), jnp.array([1.0])):
        assert constant(2).dtype == jnp.asarray(held).dtype
    for held in (jnp.array(0.0), jnp.array(-0.0)):
        assert inverse(2) == 1.0 / held


def test_what_an_object_of_a_module_of_python_knows():
    """A logger leads to all others."""
    logger = logging.getLogger("jaxrec.tests.closure")

    @jr.rec_fn
    def f(n):
        logger.debug("traced")
        return jr.cond(n <= 0, lambda: 0, lambda: f(n - 1) + 1)

    assert f(3) == 3
    logging.getLogger("jaxrec.tests.another")
    assert f(3) == 3
    assert f.cache_info().traces == 1
