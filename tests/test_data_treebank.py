"""Reading and writing treebanks: round trips, every error, and the Stanford treebank."""

import pickle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jaxrec.data import Tree, Treebank, TreebankError, Vocabulary, pack, read_treebank, unpack
from jaxrec.data import write_treebank as write

SEPARATORS = "() \t\n\r\f\v"
words = st.text(
    st.characters(exclude_characters=SEPARATORS, exclude_categories=["Cs"]), min_size=1, max_size=8
)
tricky = st.sampled_from(["8\u00a01/2", "/", "*", "\\", "\\/", "\\\\*", "-LRB-", "\x85", "\u2028"])
leaves = st.builds(Tree, st.integers(0, 4), words | tricky)


def inner(children, arity: tuple[int, int]):
    several = st.lists(children, min_size=arity[0], max_size=arity[1]).map(tuple)
    return st.builds(lambda label, kids: Tree(label, children=kids), st.integers(0, 4), several)


binary_trees = st.recursive(leaves, lambda kids: inner(kids, (2, 2)), max_leaves=12)
nary_trees = st.recursive(leaves, lambda kids: inner(kids, (1, 4)), max_leaves=12)
relaxed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@relaxed
@given(st.lists(binary_trees, min_size=1, max_size=5))
@example([Tree(2, "\ufeff"), Tree(2, "\x1c")])
def test_trees_survive_writing_and_reading(tmp_path: Path, trees: list[Tree]) -> None:
    write(tmp_path / "trees.txt", trees)
    assert read_treebank(tmp_path / "trees.txt") == trees


@relaxed
@given(st.lists(nary_trees, min_size=1, max_size=5))
def test_trees_of_any_arity_survive(tmp_path: Path, trees: list[Tree]) -> None:
    write(tmp_path / "trees.txt", trees)
    assert read_treebank(tmp_path / "trees.txt", binary=False) == trees


@relaxed
@given(st.text(st.sampled_from("()012 a\\/*\t\u00a0-"), max_size=30))
def test_a_line_is_a_tree_or_a_treebank_error(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trees.txt"
    path.write_text(line, encoding="utf-8")
    try:
        trees = read_treebank(path)
    except TreebankError as error:
        assert (error.path, error.line) == (path, 1)
        assert 1 <= error.column <= len(line) + 1
        again = pickle.loads(pickle.dumps(error))
        assert (again.column, str(again)) == (error.column, str(error))
    else:
        write(path, trees[:1])  # pyright: ignore[reportArgumentType]
        assert read_treebank(path) == trees


def read(tmp_path: Path, content: bytes | str, **options) -> list[Tree] | Treebank:
    path = tmp_path / "bank.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_treebank(path, **options)


def test_white_space_line_ends_and_escapes(tmp_path: Path) -> None:
    text = "\ufeff(2 (2\t1\\/2 )(3  a\\*) )\r\n\n  \t\r\n (0 -LRB-)  \n(1 8\u00a01\\/2)"
    trees = [
        Tree(2, children=(Tree(2, "1/2"), Tree(3, "a*"))),
        Tree(0, "-LRB-"),
        Tree(1, "8\u00a01/2"),
    ]
    assert read(tmp_path, text) == trees


def test_options_widen_what_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "(17 a)", num_labels=None) == [Tree(17, "a")]
    assert read(tmp_path, f"({2**31 - 1} a)", num_labels=None) == [Tree(2**31 - 1, "a")]
    assert read(tmp_path, "(-1 a)", unlabelled=True) == [Tree(-1, "a")]
    assert read(tmp_path, "(1 (1 a))", binary=False) == [Tree(1, children=(Tree(1, "a"),))]


DEEP_OPEN = "(1 " * 100_000

MALFORMED = [
    ("(2 (2 a) (2 b)", 15, r"expected '\)' for the '\(' at column 1 \(1 unclosed\), found the end"),
    ("(2 (2 a) (2 b", 14, r"expected '\)' for the '\(' at column 10 \(2 unclosed\)"),
    ("(2 a)) ", 6, r"expected the end of the line after a whole tree, found '\)'"),
    ("(2 a) (3 b)", 7, r"expected the end of the line after a whole tree, found '\('"),
    ("(2 a) b", 7, r"expected the end of the line after a whole tree, found 'b'"),
    ("a", 1, r"expected '\(' at the start of a tree, found 'a'"),
    (")", 1, r"expected '\(' at the start of a tree, found '\)'"),
    ("\u00a0", 1, r"expected '\(' at the start of a tree"),
    ("()", 2, r"expected an integer label after '\(' \(the tree is empty\), found '\)'"),
    ("(", 2, r"expected '\)' for the '\(' at column 1"),
    ("(2)", 3, r"expected a word or subtrees after the label 2, found '\)'"),
    ("((2 a) (2 b))", 2, r"expected an integer label after '\(', found '\('"),
    ("(good)", 2, r"expected an integer label after '\(', found 'good'"),
    ("(2.5 a)", 2, r"expected an integer label after '\(', found '2\.5'"),
    ("(\u0663 a)", 2, r"expected an integer label"),
    (f"({'9' * 5000} a)", 2, r"expected an integer label after '\(', found '9{40}\.\.\.'"),
    ("(2 (5 a) (2 b))", 5, r"expected a label in the range 0 to 4, found '5'"),
    ("(-1 a)", 2, r"expected a label in the range 0 to 4, found '-1'"),
    ("(2 (2 a) (2 b) (2 c))", 16, r"expected '\)' after two subtrees, the trees being binary"),
    ("(2 (2 a))", 9, r"expected a second subtree, the trees being binary, found '\)'"),
    ("(2 two words)", 8, r"expected '\)' after the word 'two', found 'words'"),
    ("(2 a (2 b))", 6, r"expected '\)' after the word 'a', found '\('"),
    ("(2 (2 a) b)", 10, r"expected '\(' or '\)' after a subtree, found 'b'"),
    (DEEP_OPEN, len(DEEP_OPEN), r".*\(100000 unclosed\), found the end of the line"),
]


@pytest.mark.parametrize(("line", "column", "message"), MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_lines_say_where_and_what(
    tmp_path: Path, line: str, column: int, message: str
) -> None:
    where = rf"bank\.txt, line 3, column {column}: {message}"
    with pytest.raises(TreebankError, match=where):
        read(tmp_path, f"(2 fine)\n\n{line}\n(2 fine)\n")


def test_label_errors_name_the_range_in_force(tmp_path: Path) -> None:
    with pytest.raises(TreebankError, match=r"in the range 0 to 9, or -1 for none, found '10'"):
        read(tmp_path, "(10 a)", num_labels=10, unlabelled=True)
    with pytest.raises(TreebankError, match=r"in the range 0 to 2147483647, found '-1'"):
        read(tmp_path, "(-1 a)", num_labels=None)


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    message = r"line 2, column 5: expected UTF-8 text, found the byte 0xe9; re-encode the file"
    with pytest.raises(TreebankError, match=message):
        read(tmp_path, "(2 a)\n(2 ü".encode() + b"\xe9)\n")


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_without_trees(tmp_path: Path, content: str) -> None:
    with pytest.raises(TreebankError, match=r"line 1, column 1: expected at least one tree"):
        read(tmp_path, content)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no file or directory .*nowhere"):
        read_treebank(tmp_path / "nowhere")
    write(tmp_path / "train.txt", [Tree(0, "a")])
    with pytest.raises(FileNotFoundError, match=r"has no dev\.txt, test\.txt; expected train\.txt"):
        read_treebank(tmp_path)


def test_a_directory_gives_three_splits(tmp_path: Path) -> None:
    for number, split in enumerate(Treebank._fields):
        write(tmp_path / f"{split}.txt", [Tree(number, split)])
    bank = read_treebank(tmp_path)
    assert isinstance(bank, Treebank)
    assert bank == ([Tree(0, "train")], [Tree(1, "dev")], [Tree(2, "test")])


@pytest.mark.parametrize("word", ["(", "a)b", "two words", "a\nb"])
def test_words_that_the_format_cannot_spell(tmp_path: Path, word: str) -> None:
    path = tmp_path / "trees.txt"
    with pytest.raises(ValueError, match=r"holds a bracket or white space; spell brackets -LRB-"):
        write(path, [Tree(0, "fine"), Tree(0, word)])
    assert not path.exists()


def test_the_stanford_treebank_is_read_whole(sst: Treebank) -> None:
    assert [len(split) for split in sst] == [8544, 1101, 2210]
    nodes = [sum(tree.num_nodes for tree in split) for split in sst]
    assert nodes == [318_582, 41_447, 82_600]


def test_the_stanford_treebank_keeps_its_odd_words(sst: Treebank) -> None:
    found = [word for split in sst for tree in split for word in tree.words()]
    assert sum("\u00a0" in word for word in found) == 3
    assert "8\u00a01/2" in found
    assert "-LRB-" in found
    assert not any("\\" in word for word in found)


def test_the_stanford_treebank_survives_packing(sst: Treebank) -> None:
    vocabulary = Vocabulary.build(sst.dev)
    assert unpack(pack(sst.dev, vocabulary), vocabulary) == sst.dev
