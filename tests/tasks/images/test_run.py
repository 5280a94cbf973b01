"""Run: what is stopped and resumed must end as what ran through, bit for bit."""

import csv
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
import yaml

import undirected as un
from tests.tasks.images.conftest import SMALL
from undirected.equilibrium import Tolerance
from undirected.errors import FileError, QueryError
from undirected.tasks.images.evaluation import evaluate
from undirected.tasks.images.learner import Learner
from undirected.tasks.images.model import network, read
from undirected.tasks.images.run import train
from undirected.tasks.images.saved import open_model
from undirected.tasks.images.settings import Settings
from undirected.tasks.run import launched, parameters, read_settings

# Dropout, shifts, both losses and several iterations: all that could differ after a restart.
FULL = replace(SMALL, iterations=2, epochs=3, dropout=0.2, shift=1, checkpoint_every=7, seed=5)


def command(settings, out, *more):
    flags = [f"--{name}={value}" for name, value in settings.as_dict().items()]
    return [sys.executable, "-m", "undirected", "train", "images", *flags, f"--out={out}", "--quiet", *more]


def start(settings, out, *more):
    # Shells have what runs in the background ignore Ctrl-C, and tests may run there.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command(settings, out, *more), stderr=subprocess.PIPE, text=True, preexec_fn=heeds)


def wait_for(out, pattern, process):
    for _ in range(2000):
        if list(out.glob(pattern)):
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    raise AssertionError(f"no {pattern} in time")


def same(a, b):
    one, other = a.state_dict(), b.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_leaves_all_that_is_worth_keeping(trained):
    out = trained.folder
    assert Settings(**yaml.safe_load((out / "settings.yaml").read_text())) == SMALL
    result = json.loads((out / "result.json").read_text())
    assert result == trained.result
    assert (out / "metrics.csv").read_text().splitlines()[0].split(",") == [
        "accuracy",
        "drawing_loss",
        "epoch",
        "loss",
        "step",
        "val_accuracy",
        "val_loss",
    ]
    assert list((out / "tensorboard").glob("events*"))
    # The saved network is the one that was tested: its accuracy, counted again.
    net = un.load(out / "model.safetensors").eval()
    test = trained.images.test
    right = (read(net, test.images, 1)["y"].argmax(1) == test.labels).float().mean()
    assert right == pytest.approx(result["test_accuracy"])
    assert right > 0.6


def test_the_best_epoch_is_chosen_on_the_validation_images(trained):
    rows = [line.split(",") for line in (trained.folder / "metrics.csv").read_text().splitlines()]
    scores = [float(row[5]) for row in rows[1:] if row[5]]
    assert len(scores) == SMALL.epochs
    assert max(scores) == pytest.approx(trained.result["val_accuracy"])
    assert scores.index(max(scores)) + 1 == trained.result["best_epoch"]


def test_the_same_seed_gives_the_same_weights(tmp_path):
    once = train(replace(FULL, epochs=1), tmp_path / "a", progress=False)
    again = train(replace(FULL, epochs=1), tmp_path / "b", progress=False)
    other = train(replace(FULL, epochs=1, seed=6), tmp_path / "c", progress=False)
    assert same(once.net, again.net)
    assert not same(once.net, other.net)


def test_a_run_killed_in_the_middle_of_an_epoch_resumes_exactly(tmp_path):
    whole = train(FULL, tmp_path / "whole", progress=False)
    assert whole.result["epochs"] == 3
    process = start(FULL, tmp_path / "killed")
    wait_for(tmp_path / "killed", "checkpoints/step-step=28*.ckpt", process)  # 18 steps an epoch: in the second
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "result.json").exists()
    resumed = train(FULL, tmp_path / "killed", resume=True, progress=False)
    assert same(whole.net, resumed.net)
    assert whole.result["test_accuracy"] == resumed.result["test_accuracy"]
    assert len(list((tmp_path / "killed" / "logs").iterdir())) == 2
    steps = [line.split(",")[4] for line in (tmp_path / "killed" / "metrics.csv").read_text().splitlines()[1:]]
    assert steps == sorted(set(steps), key=int)


@pytest.mark.slow
def test_ctrl_c_keeps_the_last_checkpoint(tmp_path):
    long = replace(FULL, epochs=12)  # so that it is not over before the signal comes, on a busy machine
    whole = train(long, tmp_path / "whole", progress=False)
    process = start(long, tmp_path / "stopped")
    wait_for(tmp_path / "stopped", "checkpoints/step-step=2*.ckpt", process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "--resume" in errors
    resumed = train(long, tmp_path / "stopped", resume=True, progress=False)
    assert same(whole.net, resumed.net)


@pytest.mark.slow
def test_two_processes_do_what_one_does_with_the_same_whole_batch(tmp_path):
    # Without dropout, whose masks each process draws for itself. Sums in another order differ in the last digits.
    settings = replace(FULL, epochs=1, dropout=0.0, precision="64")
    one = train(settings, tmp_path / "one", progress=False)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    calls = {
        "devices": command(replace(settings, devices=2), tmp_path / "devices"),
        "torchrun": [*torchrun, "-m", "--", *command(settings, tmp_path / "torchrun")[2:]],
    }
    for name, call in calls.items():
        done = subprocess.run(call, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("test accuracy") == 1  # the first process speaks for all
        two = un.load(tmp_path / name / "model.safetensors")
        for part, weight in one.net.state_dict().items():
            torch.testing.assert_close(two.state_dict()[part].double(), weight.double(), rtol=1e-4, atol=1e-6)
        assert read_settings(tmp_path / name, Settings) == replace(settings, devices=2)
    assert not same(one.net, network(8))


def test_processes_of_torchrun_must_fit_the_training(monkeypatch, tmp_path):
    for name, value in {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "3", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert launched() == launched(3) == 3
    with pytest.raises(QueryError, match=r"--devices 2: torchrun has started 3 processes"):
        train(replace(SMALL, devices=2), tmp_path)
    with pytest.raises(QueryError, match=r"a batch of 64 does not divide among 3"):
        train(SMALL, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_holds_one_run(trained):
    with pytest.raises(FileError, match="--resume"):
        train(SMALL, trained.folder, progress=False)
    with pytest.raises(FileError, match=r"other settings \(gamma\)"):
        train(replace(SMALL, gamma=0.5), trained.folder, resume=True, progress=False)
    again = train(SMALL, trained.folder, resume=True, progress=False)
    assert same(again.net, trained.net)
    assert read_settings(trained.folder, Settings) == SMALL


def test_a_run_can_start_from_a_network(trained, tmp_path):
    settings = replace(SMALL, start=str(trained.folder), epochs=1, learning_rate=1e-12, weight_decay=0.0, seed=9)
    more = train(settings, tmp_path / "more", progress=False)
    for name, weight in trained.net.state_dict().items():
        torch.testing.assert_close(more.net.state_dict()[name], weight)
    un.save(network(28), tmp_path / "other.safetensors")
    with pytest.raises(FileError, match="other shapes"):
        Learner(replace(SMALL, start=str(tmp_path / "other.safetensors")), trained.images)


def test_early_stopping(tmp_path):
    settings = replace(SMALL, epochs=30, learning_rate=1e-9, patience=2)
    assert train(settings, tmp_path, progress=False).result["epochs"] < 30


def test_training_at_equilibrium(tmp_path):
    settings = replace(SMALL, until=1e-2, gradient="implicit", epochs=1, warmup=0.0)
    found = train(settings, tmp_path, progress=False)
    metrics = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    assert [float(row["converged"]) for row in metrics if row.get("converged")]  # how the solves went is in the log
    tolerance = open_model(tmp_path).sweeps
    assert isinstance(tolerance, Tolerance)
    assert tolerance.residual == 1e-2
    assert evaluate(tmp_path).accuracy == pytest.approx(found.result["test_accuracy"])  # tested as it was trained


def test_a_run_is_evaluated_from_where_its_classes_started(tmp_path):
    found = train(replace(SMALL, init="uniform"), tmp_path, progress=False)
    assert evaluate(tmp_path).accuracy == pytest.approx(found.result["test_accuracy"])
    uniform, zeros = (read(found.net.eval(), found.images.test.images, 1, init)["y"] for init in ("uniform", "zeros"))
    assert not torch.allclose(uniform, zeros)  # so it does make a difference


def test_untied_networks_have_no_more_parameters(trained):
    tied = parameters(Learner(SMALL, trained.images).net)
    for iterations in (2, 5):
        untied = Learner(replace(SMALL, iterations=iterations, tied=False, gamma=0.0), trained.images).net
        assert 0.85 * tied < parameters(untied) <= tied


def test_data_that_are_refused_leave_no_run_behind(tmp_path):
    with pytest.raises((FileError, QueryError), match="nowhere"):
        train(replace(SMALL, data=str(tmp_path / "nowhere")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"iterations": 0}, "iterations"),
        ({"gamma": -1.0}, "gamma"),
        ({"dropout": 1.0}, "dropout"),
        ({"batch": 5, "devices": 2}, "divide"),
        ({"tied": False}, "untied"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"until": -1e-3}, "until"),
        ({"gradient": "implicit"}, "belongs to an equilibrium"),
        ({"until": 1e-3, "tied": False, "gamma": 0.0}, "no equilibrium"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, word):
    with pytest.raises(QueryError, match=word):
        Settings(**wrong)
