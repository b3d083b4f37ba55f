"""The documents: what they show runs, and what they name is there."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))

by_name = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.M | re.S)


def shown(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell as Jupyter does: the value of a last expression is what it shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_readme_starts_with_the_two_commands() -> None:
    first = blocks(README, "sh")[0]
    assert README.index(first) < 100
    assert [line.split("#")[0].strip() for line in first.splitlines()] == [
        "make train",
        "make test",
    ]


def test_readme_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in blocks(README, "python"):
        exec(compile(block, "README.md", "exec"), names)
    first = capsys.readouterr().out.splitlines()[0].split()
    # tanh(0.5 (tanh(0.5 (0.1 + 0.2)) + 0.3)), and its derivative by 0.5, worked out by hand.
    assert [float(x) for x in first] == pytest.approx([0.2207, 0.5665], abs=1e-4)


@pytest.mark.parametrize("target", ["train", "test", "slow", "lint", "format", "sanitize"])
def test_commands_of_the_readme_are_targets(target: str) -> None:
    assert f"make {target}" in README
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", makefile, flags=re.M)


def test_names_of_the_contract_are_exported() -> None:
    import jaxrec as jr

    table = README[README.index("## The contract in brief") : README.index("## Executors")]
    names = set(re.findall(r"`jr\.(\w+)", table))
    assert names >= {"rec_fn", "cond", "switch", "collect", "data", "models"}
    assert all(hasattr(jr, name) for name in names)
    methods = set(re.findall(r"`f\.(\w+)", table))
    assert methods >= {"graph", "schedule", "profile", "with_options", "cache_info"}
    assert all(hasattr(jr.rec_fn(lambda x: x), name) for name in methods)


def test_executors_of_the_readme_are_those_there_are() -> None:
    from jaxrec._executor import EXECUTORS

    section = README[README.index("## Executors") : README.index("## What recursion may do")]
    assert set(re.findall(r'^\* `"(\w+)"`', section, flags=re.M)) == set(EXECUTORS)


@by_name
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target


@by_name
def test_paths_named_in_code_exist(path: Path) -> None:
    roots = ("jaxrec", "csrc", "tests", "benchmarks", "examples", "notebooks", "docs")
    for name in re.findall(r"`([\w./]+)`", path.read_text(encoding="utf-8")):
        if name.split("/")[0] in roots and "/" in name and name != "benchmarks/results/":
            assert (ROOT / name).exists(), name


@by_name
def test_definitions_named_with_their_file_are_there(path: Path) -> None:
    """`name` in `path` and `path`: `name` are checked; `Class.method` by its last part."""
    text = path.read_text(encoding="utf-8")
    for name, file in re.findall(r"`([\w.]+)`\s+in\s+`([\w./]+\.(?:py|h|cc))`", text):
        assert re.search(rf"\b{name.split('.')[-1]}\b", (ROOT / file).read_text()), (name, file)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_runs(path: Path) -> None:
    names: dict[str, Any] = {}
    drawings = 0
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            value = shown("".join(cell["source"]), names)
            drawings += hasattr(value, "_repr_svg_") and value._repr_svg_().startswith("<svg")
    assert drawings >= 2
    assert names["losses"][-1] < 0.8 * names["losses"][0]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)


STAGES = re.findall(r"^\| `jaxrec/(\w+)/` \|", README, flags=re.M)


def imported(path: Path) -> set[str]:
    """The folders of the package that a file imports from."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[1] for name in names if name.startswith("jaxrec.")}


@pytest.mark.parametrize("number", range(len(STAGES)), ids=STAGES)
def test_no_stage_imports_a_later_one(number: int) -> None:
    files = (ROOT / "jaxrec" / STAGES[number]).rglob("*.py")
    assert not set().union(*map(imported, files)).intersection(STAGES[number + 1 :])


def test_stages_are_known() -> None:
    assert STAGES[0] == "trace"
    assert {"graph", "lowering", "primitives", "report"} <= set(STAGES)
