"""The trainer from its command line: runs, results, errors, and going on after a kill."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from jaxrec import data
from jaxrec.train import TrainError, _loop, parse_settings, train
from jaxrec.train.__main__ import main
from jaxrec.train._checkpoint import Checkpoints
from jaxrec.train._place import alone_in, choose_out
from jaxrec.train._progress import Progress
from jaxrec.train._report import last_line
from jaxrec.train._task import load_task

TINY = ["--hidden", "8", "--embed", "8", "--batch", "16", "--epochs", "2"]
TINY_LISTOPS = ["--trees", "32", *TINY]
ONE_EPOCH = [*TINY_LISTOPS, "--epochs", "1"]
DROPPING = [*TINY_LISTOPS, "--batch", "8", "--dropout", "0.3"]
RESUMABLE = [*DROPPING, "--checkpoint-every", "1"]


@pytest.fixture(scope="module", autouse=True)
def programs_are_kept(tmp_path_factory):
    """Most runs compile what an earlier one did, also those in processes of their own."""
    if jax.config.values["jax_compilation_cache_dir"]:
        yield
        return
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("programs")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    with pytest.MonkeyPatch.context() as patch:
        before = {name: getattr(jax.config, name) for name in settings}
        for name, value in settings.items():
            patch.setenv(name.upper(), str(value))
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def run(*args):
    return train(parse_settings([str(arg) for arg in args]))


def without_time(result):
    """What must not depend on how often a run was interrupted."""
    history = [{**entry, "trees_per_s": None} for entry in result["history"]]
    kept = ("epochs", "train_loss", "best_epoch", "dev", "test", "trees", "vocabulary")
    return {name: result[name] for name in kept} | {"history": history}


def test_the_whole_run(tmp_path, capsys):
    assert main([*TINY_LISTOPS, "--out", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    result = json.loads(lines[-1])
    assert lines[0].startswith("epoch 1/2: loss ")
    assert result["settings"]["hidden"] == 8
    assert result["epochs"] == 2
    assert len(result["history"]) == 2
    assert result["history"][1]["loss"] < result["history"][0]["loss"]
    assert set(result["test"]) == {"root", "nodes"}
    assert 0 < result["test"]["nodes"] < 1
    assert result["trees_per_s"] > 0
    assert set(result["versions"]) >= {"jaxrec", "jax", "python", "device"}
    assert Path(result["curve"]).read_bytes().startswith(b"\x89PNG")
    words = data.Vocabulary.load(tmp_path / "run" / "vocabulary.json")
    assert len(words) == result["vocabulary"]


@pytest.mark.parametrize("model", ["treernn", "rntn"])
def test_a_treebank_has_three_accuracies(model, treebank, tmp_path):
    result = run("--data", treebank, "--model", model, *TINY, "--out", tmp_path / "run")
    assert set(result["dev"]) == {"root", "nodes", "binary"}
    assert result["trees"] == {"train": 4, "dev": 4, "test": 4}


def test_binary_drops_neutral_roots(treebank, tmp_path):
    args = ["--data", treebank, "--binary", *TINY]
    long = ["--epochs", "12", "--optimizer", "adam", "--lr", "0.05", "--checkpoint-every", "99"]
    result = run(*args, *long, "--out", tmp_path / "run")
    assert result["trees"]["train"] == 3
    assert result["dev"]["binary"] == 1.0
    assert set(result["test"]) == {"binary", "nodes"}


def test_binary_labels_are_three(treebank):
    task = load_task(parse_settings(["--data", str(treebank), "--binary"]))
    assert task.num_classes == 3
    assert task.train.label.tolist() == [2, 1, 2, 0, 1, 1, 1, 0, 1, 2, 2, 2, 2]


def test_word_vectors_from_a_file(treebank, tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("good 1 2\nfilm 3 4\n", encoding="utf-8")
    args = ["--data", str(treebank), "--glove", str(file)]
    task = load_task(parse_settings([*args, "--embed", "2"]))
    assert task.embedding is not None
    assert task.embedding[task.vocabulary.encode("film")].tolist() == [3.0, 4.0]
    with pytest.raises(TrainError, match=r"vectors of size 2, but --embed is 300\. Pass --embed 2"):
        load_task(parse_settings(args))
    file.write_text("good 1 2\nfilm 3\n", encoding="utf-8")
    with pytest.raises(TrainError, match="line 2"):
        load_task(parse_settings([*args, "--embed", "2"]))


def test_the_best_epoch_is_kept(tmp_path, monkeypatch):
    """Where the dev accuracy falls, what is tested is the first epoch's, after others too."""
    measured = _loop.accuracies

    def tested(epochs):
        falling = iter([{"root": 1 - k / 10, "all": 0.0} for k in range(epochs)])
        monkeypatch.setattr(_loop, "accuracies", lambda *of: next(falling, None) or measured(*of))
        out = tmp_path / str(epochs)
        made = run(*TINY_LISTOPS, "--lr", "0.2", "--epochs", epochs, "--out", out)
        assert made["best_epoch"] == 1
        return made["test"]

    assert tested(1) == tested(3)
    assert not Progress(best_accuracy=0.5).improved_by(0.5)


def test_the_checkpoint_of_an_epoch_has_its_evaluation(tmp_path):
    """Also where it is due by the number of steps at once."""
    args = [*ONE_EPOCH, "--checkpoint-every", "1", "--out", tmp_path]
    first = run(*args)
    assert run(*args, "--resume")["history"] == first["history"]


def test_a_checkpoint_under_another_number_is_passed_over(tmp_path, capsys):
    args = [*ONE_EPOCH, "--checkpoint-every", "1", "--out", tmp_path]
    run(*args)
    steps = [p for p in (tmp_path / "checkpoints").iterdir() if p.name.isdecimal()]
    max(steps, key=lambda p: int(p.name)).rename(tmp_path / "checkpoints" / "9")
    run(*args, "--resume")
    assert "is damaged: ValueError: it is of step 2" in capsys.readouterr().err


def test_json_has_no_nan():
    assert json.loads(last_line({"a": [float("nan"), 1.5], "b": {"c": (1, None)}})) == {
        "a": [None, 1.5],
        "b": {"c": [1, None]},
    }


@pytest.mark.exhaustive
def test_going_on_after_the_end_trains_further(tmp_path):
    whole = run(*DROPPING, "--epochs", "2", "--out", tmp_path / "whole")
    run(*DROPPING, "--epochs", "1", "--out", tmp_path / "parts")
    again = run(*DROPPING, "--epochs", "2", "--out", tmp_path / "parts", "--resume")
    assert without_time(again) == without_time(whole)


def test_an_out_that_is_a_file_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(TrainError, match=r"--out .*: the directory cannot be made: "):
            choose_out(parse_settings(["--out", str(out)]))


def test_an_out_that_the_storage_cannot_spell():
    message = r"--out 'caf\\udce9': the name is not UTF-8\. Give another one"
    with pytest.raises(TrainError, match=message):
        run(*TINY_LISTOPS, "--out", "caf\udce9")


def test_other_settings_are_not_resumed(tmp_path):
    out = tmp_path / "run"
    run(*ONE_EPOCH, "--out", out)
    with pytest.raises(TrainError, match=r"--lr: the checkpoint has 0\.01, now it is 0\.1"):
        run(*ONE_EPOCH, "--out", out, "--resume", "--lr", "0.1")
    with pytest.raises(TrainError, match="--seed: the checkpoint has 0, now it is 1"):
        run(*ONE_EPOCH, "--out", out, "--resume", "--seed", "1")
    with pytest.raises(TrainError, match=r"holds checkpoints of an earlier run\. Add --resume"):
        run(*ONE_EPOCH, "--out", out)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--trees", "32", "--resume", "--out", "nowhere"], "there is no checkpoint in nowhere"),
        (["--trees", "32", "--resume"], "there is no checkpoint in runs/treelstm-listops"),
        (["--data", "nowhere"], "there is no such directory"),
        (["--hidden", "0"], "--hidden is a number from 1 to 16,777,216, got 0"),
        (["--checkpoint-every", "0"], "--checkpoint-every is a number from 1 to 16,777,216, got 0"),
        (["--lr", "-1"], "--lr is a number from 0 upwards, got -1.0"),
        (["--l2", "nan"], "--l2 is a number from 0 upwards, got nan"),
        (["--dropout", "1"], "--dropout is a probability below 1"),
        (["--seed", "-1"], "--seed is a number from 0 to 4294967295, got -1"),
        (["--seed", str(1 << 80)], "--seed is a number from 0 to 4294967295"),
        (["--model", "rntn", "--hidden", "3", "--embed", "4"], "be equal, got 3 and 4"),
        (["--binary"], "--binary and --glove need a sentiment treebank"),
        (["--out", ""], "--out is a directory, got an empty name"),
        (["--data", ""], "--data is a directory, got an empty name"),
        (
            ["--trees", "99999999999"],
            "from 1 to 16,777,216, got 99,999,999,999",
        ),
        ([*TINY_LISTOPS, "--hidden", "300000"], "not enough memory for this run"),
    ],
)
def test_errors_say_what_to_do(args, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    assert message in capsys.readouterr().err


def test_a_malformed_tree_is_named(treebank, capsys):
    (treebank / "dev.txt").write_text("(2 (2 a) (2 b))\n(2 (2 a)\n", encoding="utf-8")
    assert main(["--data", str(treebank)]) == 2
    message = capsys.readouterr().err
    assert "dev.txt, line 2, column" in message


def test_a_diverging_run_ends(tmp_path):
    huge = ["--optimizer", "sgd", "--lr", "1e38", "--embed-lr", "1e38"]
    with pytest.raises(TrainError, match="training diverged: the loss is"):
        run(*TINY_LISTOPS, *huge, "--out", tmp_path / "run")


@pytest.mark.slow
def test_a_killed_run_goes_on_exactly(tmp_path):
    whole = run(*RESUMABLE, "--out", tmp_path / "whole")
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "jaxrec.train", *RESUMABLE, "--out", str(out)]
    kill_after_checkpoint(command, out / "checkpoints" / "6")
    done = subprocess.run(
        [*command, "--resume"], capture_output=True, text=True, check=True, timeout=300
    )
    assert "epoch 1/2" not in done.stdout
    resumed = json.loads(done.stdout.strip().splitlines()[-1])
    assert without_time(resumed) == without_time(whole)


@pytest.mark.slow
def test_half_a_checkpoint_is_none(tmp_path):
    """What a kill in the middle of writing leaves behind neither counts nor harms."""
    out = tmp_path / "run"
    first = run(*RESUMABLE, "--out", out)
    (out / "checkpoints" / "9.orbax-checkpoint-tmp").mkdir()
    (out / "checkpoints" / "9.orbax-checkpoint-tmp" / "arrays").write_text("half")
    again = run(*RESUMABLE, "--out", out, "--resume")
    assert without_time(again) == without_time(first)


def test_a_damaged_checkpoint_is_passed_over(tmp_path, capsys):
    """Steps 1, 2, ... have checkpoints, of which two are kept."""
    out = tmp_path / "run"
    first = run(*TINY_LISTOPS, "--checkpoint-every", "1", "--out", out)
    before, last = sorted((out / "checkpoints").iterdir(), key=lambda path: int(path.name))
    (last / "about" / "metadata").write_text("")
    again = run(*TINY_LISTOPS, "--checkpoint-every", "1", "--out", out, "--resume")
    assert without_time(again) == without_time(first)
    assert f"checkpoint {last} is damaged" in capsys.readouterr().err
    about = last / "about" / "metadata"
    changed = json.loads(about.read_text())
    changed["content"]["progress"]["best_epoch"] = 0
    about.write_text(json.dumps(changed))
    again = run(*TINY_LISTOPS, "--checkpoint-every", "1", "--out", out, "--resume")
    assert without_time(again) == without_time(first)
    assert f"checkpoint {last} is damaged: ValueError: what it says" in capsys.readouterr().err
    (last / "about" / "metadata").write_text("")  # once more
    again = run(*TINY_LISTOPS, "--checkpoint-every", "1", "--out", out, "--resume")
    assert without_time(again) == without_time(first)
    for path in (before, last):
        (path / "about" / "metadata").write_text("")
    with pytest.raises(TrainError, match="none of 2 checkpoints can be read"):
        run(*TINY_LISTOPS, "--checkpoint-every", "1", "--out", out, "--resume")


def test_changed_bits_are_noticed(tmp_path, capsys, monkeypatch):
    """The storage gives arrays back that are not quite what it was given."""
    args = [*TINY_LISTOPS, "--checkpoint-every", "1", "--out", tmp_path / "run"]
    first, read = run(*args), Checkpoints._read

    def read_wrongly(self, step, **items):
        found = read(self, step, **items)
        if "arrays" in items and step == 4:
            best = found["arrays"]["best"]
            best["table"] = jax.tree.map(lambda x: x.at[0].add(1e-3), best["table"])
        return found

    monkeypatch.setattr(Checkpoints, "_read", read_wrongly)
    again = run(*args, "--resume")
    assert "4 is damaged: ValueError: its arrays are not what" in capsys.readouterr().err
    assert without_time(again) == without_time(first)


def test_a_refused_run_changes_nothing(treebank, tmp_path):
    out = tmp_path / "run"
    args = ["--data", treebank, "--hidden", "4", "--embed", "4", "--epochs", "1", "--out", out]
    run(*args)
    before = (out / "vocabulary.json").read_bytes()
    for part in treebank.iterdir():
        spaced = part.read_text(encoding="utf-8").replace("(", "( ")
        part.write_text(spaced, encoding="utf-8")
    (treebank / "train.txt").write_text("(3 (2 other) (2 words))\n" * 4, encoding="utf-8")
    with pytest.raises(TrainError, match="--data: the trees are not those"):
        run(*args, "--resume")
    assert (out / "vocabulary.json").read_bytes() == before


def test_two_runs_do_not_write_to_one_directory(tmp_path):
    with alone_in(tmp_path), pytest.raises(TrainError, match="another run is writing there"):
        run(*TINY_LISTOPS, "--out", tmp_path)


def kill_after_checkpoint(command, checkpoint, timeout=300):
    """Starts a run and kills it, unwarned, as soon as a checkpoint is there."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + timeout
        while not checkpoint.exists():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline, "the run wrote no such checkpoint"
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()


def test_runs_are_numbered_after_the_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(*ONE_EPOCH)
    run(*ONE_EPOCH)
    first, second = (tmp_path / "runs" / f"treelstm-listops{end}" for end in ("", "-run2"))
    assert first.is_dir()
    assert second.is_dir()
    shutil.rmtree(first)
    run(*ONE_EPOCH, "--resume")
    assert not first.exists()
    run(*ONE_EPOCH)
    assert (tmp_path / "runs" / "treelstm-listops-run3").is_dir()


def test_word_vectors_that_come_or_go(treebank, tmp_path):
    """With them the vocabulary is larger; what is in the file is in the checkpoint."""
    file, out = tmp_path / "vectors.txt", tmp_path / "run"
    file.write_text("good 1 2\nfilm 3 4\n", encoding="utf-8")
    args = ["--data", treebank, "--hidden", "4", "--embed", "2", "--epochs", "1", "--out", out]
    run(*args, "--glove", file)
    with pytest.raises(TrainError, match=r"--glove: the checkpoint has '.*', now it is None"):
        run(*args, "--resume")
    run(*args, "--glove", "elsewhere", "--resume", "--trees", "7")


def test_a_full_disk(tmp_path, monkeypatch):
    def full(*args, **options):
        reason = "No space left on device [os_error_code='28']"
        raise ValueError(f"RESOURCE_EXHAUSTED: Error writing /here: {reason}\nmore of it")

    monkeypatch.setattr("orbax.checkpoint.CheckpointManager.save", full)
    message = (
        r"a checkpoint cannot be written to .*checkpoints: No space left on device\. Make room"
    )
    with pytest.raises(TrainError, match=message):
        run(*TINY_LISTOPS, "--out", tmp_path / "run")
    monkeypatch.undo()
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=100))
    message = r"cannot be written to .*checkpoints: it takes .* MB, of which 0\.0 free\. Make room"
    with pytest.raises(TrainError, match=message):
        run(*TINY_LISTOPS, "--out", tmp_path / "other")


def test_no_room_for_the_curve(tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    message = r"the curve cannot be written to .*curve.png: .*No space left on device. Make room"
    with pytest.raises(TrainError, match=message):
        run(*ONE_EPOCH, "--out", tmp_path / "run")
    monkeypatch.undo()
    assert run(*ONE_EPOCH, "--out", tmp_path / "run", "--resume")["epochs"] == 1


def test_neutral_roots_alone(treebank):
    (treebank / "dev.txt").write_text("(2 (2 a) (2 b))\n", encoding="utf-8")
    with pytest.raises(TrainError, match=r"--binary: all roots of dev.txt are neutral"):
        load_task(parse_settings(["--data", str(treebank), "--binary"]))


def test_a_file_in_the_place_of_a_directory(treebank):
    with pytest.raises(TrainError, match=r"dev.txt: this is no directory. Give one that holds"):
        load_task(parse_settings(["--data", str(treebank / "dev.txt")]))


def test_without_what_training_needs(monkeypatch):
    for name in [x for x in sys.modules if x == "jaxrec.train" or x.startswith("jaxrec.train.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    message = r"jaxrec.train needs tqdm, which is not installed: pip install 'jaxrec\[train\]'"
    with pytest.raises(ModuleNotFoundError, match=message):
        importlib.import_module("jaxrec.train")
