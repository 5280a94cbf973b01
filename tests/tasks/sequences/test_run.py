"""Run: a network that learns a text file, and goes on after a stop as if nothing had happened."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest.mock
from dataclasses import replace

import pytest
import torch

import undirected as un
from tests.tasks.sequences.conftest import small
from undirected.errors import FileError, QueryError
from undirected.tasks.sequences.batches import Pieces
from undirected.tasks.sequences.data import load
from undirected.tasks.sequences.evaluation import evaluate
from undirected.tasks.sequences.learner import Learner
from undirected.tasks.sequences.model import scores, solve
from undirected.tasks.sequences.run import train
from undirected.tasks.sequences.settings import Settings


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_it_learns_the_days_of_the_week(trained):
    result = json.loads((trained.folder / "result.json").read_text())
    assert result == trained.result
    assert result["test_accuracy"] > 0.8  # one in seven by chance
    net = un.load(trained.folder / "model.safetensors").eval()
    assert net.notes["iterations"] == 1
    assert net.notes["order"] == "forward-backward"
    right = count = 0
    with torch.no_grad():
        for batch in Pieces(trained.sequences.test):
            found = scores(net, batch, solve(net, batch)).argmax(1)
            right, count = right + int((found == batch.targets()).sum()), count + len(found)
    assert result["test_accuracy"] == pytest.approx(right / count)
    assert evaluate(trained.folder, trained.settings.data).accuracy == pytest.approx(right / count)


def test_what_a_finished_run_gave_is_given_again(trained):
    again = train(trained.settings, trained.folder, resume=True, progress=False)
    assert same(again.net, trained.net)
    assert (again.net.notes, again.result) == (trained.net.notes, trained.result)


def test_the_same_seed_gives_the_same_weights(file, tmp_path):
    settings = small(file, order="random", iterations="1-3", epochs=1, steps=12)
    once = train(settings, tmp_path / "a", progress=False)
    again = train(settings, tmp_path / "b", progress=False)
    other = train(replace(settings, seed=1), tmp_path / "c", progress=False)
    assert same(once.net, again.net)
    assert not same(once.net, other.net)
    assert once.net.notes["iterations"] == 2


@pytest.mark.slow
def test_a_run_killed_in_the_middle_resumes_exactly(file, tmp_path):
    settings = small(file, order="random", iterations="1-2", steps=40, epochs=2, checkpoint_every=5)
    whole = train(settings, tmp_path / "whole", progress=False)
    words = [f"--{name}={value}" for name, value in settings.as_dict().items() if value not in ("", None)]
    command = [sys.executable, "-m", "undirected", "train", "sequences", *words, f"--out={tmp_path / 'killed'}"]
    process = subprocess.Popen([*command, "--quiet"], env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("checkpoints/step-step=[1-7]*.ckpt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "result.json").exists()
    resumed = train(settings, tmp_path / "killed", resume=True, progress=False)
    assert same(whole.net, resumed.net)
    assert whole.result["test_accuracy"] == resumed.result["test_accuracy"]


def test_gradients_are_clipped(file, tmp_path):  # Muon's steps have the learning rate's size, unless clipped to 0
    assert Settings().clip == 10
    still = train(small(file, clip=1e-30, epochs=1, steps=10), tmp_path / "a", progress=False)
    moved = train(small(file, epochs=1, steps=10), tmp_path / "b", progress=False)
    begun = train(small(file, epochs=1, steps=10, learning_rate=1e-12), tmp_path / "c", progress=False)
    torch.testing.assert_close(still.net.state_dict(), begun.net.state_dict())
    assert not torch.allclose(moved.net.factors["x-q"].weight, begun.net.factors["x-q"].weight)


def test_a_run_can_start_from_a_network(trained, file, tmp_path):
    settings = small(file, start=str(trained.folder), epochs=1, steps=10, learning_rate=1e-12, seed=5)
    more = train(settings, tmp_path / "more", progress=False)
    torch.testing.assert_close(more.net.state_dict(), trained.net.state_dict())
    lines = "\n".join(f"{a} {b} c" for a in "abcd" for b in "efgh")
    (tmp_path / "other.txt").write_text(lines)
    with pytest.raises(FileError, match="another vocabulary"):
        train(replace(settings, data=str(tmp_path / "other.txt")), tmp_path / "other", progress=False)
    with pytest.raises(FileError, match=r"rows of 64, not of 16. Add --size 64"):
        train(replace(settings, size=16), tmp_path / "narrow", progress=False)
    with pytest.raises(FileError, match="no network there"):
        train(replace(settings, start=str(tmp_path)), tmp_path / "none", progress=False)
    assert not any((tmp_path / name).exists() for name in ("other", "narrow", "none"))  # what is refused leaves nothing


def test_a_start_may_have_read_shorter_lines(trained, file, tmp_path):
    longer = tmp_path / "longer.txt"
    longer.write_text(file.read_text() + " ".join(file.read_text().split()[:20]) + "\n")
    settings = small(longer, start=str(trained.folder), epochs=1, steps=2, learning_rate=1e-12)
    more = train(settings, tmp_path / "more", progress=False)
    torch.testing.assert_close(dict(more.net.named_parameters()), dict(trained.net.named_parameters()))


@pytest.mark.parametrize("steps", [1, 2, 20])  # a twentieth of 20 steps is one
def test_few_steps_are_enough(file, tmp_path, steps):
    assert train(small(file, size=16, epochs=1, steps=steps), tmp_path / "run", progress=False).result["epochs"] == 1


def test_a_file_that_has_changed_is_not_gone_on_with(file, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text(file.read_text())
    settings = small(mine, size=16, epochs=1, steps=10, checkpoint_every=5)
    train(settings, tmp_path / "run", progress=False)
    (tmp_path / "run" / "result.json").unlink()
    mine.write_text(file.read_text() + "mon holiday wed\n")
    with pytest.raises(FileError, match="has changed since this run began"):
        train(settings, tmp_path / "run", resume=True, progress=False)


def test_a_finished_run_needs_no_checkpoints(trained, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(trained.folder, copy)
    shutil.rmtree(copy / "checkpoints")
    assert same(train(trained.settings, copy, resume=True, progress=False).net, trained.net)


def test_a_device_that_is_not_there_is_refused(file, tmp_path, monkeypatch):
    for name in ("CUDAAccelerator", "MPSAccelerator"):
        monkeypatch.setattr(f"undirected.tasks.run.{name}.is_available", lambda: False)
    with pytest.raises(QueryError, match="there is no GPU here"):
        train(small(file, device="gpu"), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_stopped_while_it_is_tested(file, tmp_path):
    settings = small(file, size=16, epochs=1, steps=5)
    with (
        unittest.mock.patch.object(Learner, "on_test_epoch_start", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt, match="goes on with --resume"),
    ):
        train(settings, tmp_path / "run", progress=False)
    assert train(settings, tmp_path / "run", resume=True, progress=False).result["epochs"] == 1


def test_the_course_is_written_down(trained):
    with (trained.folder / "metrics.csv").open(newline="") as file:
        scores_ = [float(row["val_accuracy"]) for row in csv.DictReader(file) if row["val_accuracy"]]
    assert len(scores_) == trained.settings.epochs
    assert max(scores_) == pytest.approx(trained.result["val_accuracy"])


def test_every_process_needs_something_to_learn_from(file, tmp_path):
    with pytest.raises(QueryError, match="1000 processes"):
        train(small(file, batch=1000, devices=1000), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_equilibria_begin_after_the_warm_up(file):
    chosen = small(file, activation="tanh", until=1e-2, gradient="implicit", size=16, iterations=2)
    data = load(str(file))
    batch = next(iter(Pieces(data.validation)))
    asked = {}
    for warmup in (0.0, 0.5):  # without a trainer, the step is the first
        learner = Learner(replace(chosen, warmup=warmup), data).train()
        with unittest.mock.patch("undirected.tasks.sequences.learner.solve", wraps=solve) as spy:
            learner(batch)
        asked[warmup] = spy.call_args.kwargs.get("until")
    assert asked[0.5] is None
    assert asked[0.0].residual == 1e-2


def test_with_tanh_it_learns_at_equilibrium(file, tmp_path):
    more = {
        "activation": "tanh",
        "until": 1e-2,
        "gradient": "implicit",
        "size": 16,
        "epochs": 1,
        "warmup": 0.0,
        "steps": 3,
    }
    net = train(small(file, **more), tmp_path / "run", progress=False).net
    assert net.bounded().verdict == "always"  # nothing observed: even then
    assert net.notes["iterations"] > 1
    first = train(small(file, **{**more, "steps": 1, "learning_rate": 1e-9}), tmp_path / "first", progress=False).net
    assert not torch.equal(net.factors["x-q"].weight, first.factors["x-q"].weight)


def test_sweeps_are_learned_by_turns_first_but_not_in_random_orders(file):
    data = load(str(file))
    for more, expected in (({}, 1), ({"warmup": 0.0}, (3, 3)), ({"order": "random"}, (3, 3))):
        learner = Learner(small(file, size=16, iterations=3, **more), data)
        assert learner.train().iterations == expected  # in the first step
        assert learner.eval().iterations == (3, 3)


def test_hard_questions_are_repeated_of_the_numbers_alone(file):
    learner = Learner(small(file, size=16), load(str(file)))
    assert len(learner.train_dataloader()._index) == len(learner.sequences.train)
    hard = [
        len(Learner(Settings(size=16, activation=activation), load("numbers")).train_dataloader()._index)
        for activation in ("identity", "tanh")
    ]
    assert len(load("numbers").train) < hard[0] < hard[1]


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"iterations": "0"}, "at least 1"),
        ({"iterations": "5-1"}, "in order"),
        ({"iterations": "many"}, "range such as 1-5"),
        ({"size": 7}, "even"),
        ({"warmup": 2.0}, "warmup"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"steps": 0}, "steps"),
        ({"clip": 0.0}, "clip"),
        ({"until": 1e-3}, "--activation tanh"),
        ({"gradient": "implicit"}, "give until"),
        ({"batch": 2, "devices": 3}, "each of 3 devices"),
        ({"until": 1e-3, "activation": "tanh", "order": "random"}, "fixed order"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, word):
    with pytest.raises(QueryError, match=word):
        Settings(**wrong)


def test_a_range_is_tested_in_its_middle(file, tmp_path):
    settings = small(file, size=16, iterations="1-5", epochs=1, steps=3)
    with unittest.mock.patch("undirected.tasks.sequences.learner.solve", wraps=solve) as spy:
        net = train(settings, tmp_path / "run", progress=False).net
    assert net.notes["iterations"] == 3
    tested = spy.call_args_list[-1].args  # a range, of which a solve in eval mode takes the middle
    with torch.inference_mode():
        found, expected = (solve(net, tested[1], k)["x"] for k in (tested[2], 3))
    assert torch.equal(found, expected)
    assert Settings(iterations=2).iterations == "2"


def test_a_step_draws_several_random_orders(file):
    data = load(str(file))
    batch = data.validation.batch(torch.arange(9))
    for order, count in (("forward-backward", 1), ("random", 2)):
        learner = Learner(small(file, size=16, order=order), data).train()
        learner.log = unittest.mock.Mock()
        with unittest.mock.patch("undirected.tasks.sequences.learner.solve", wraps=solve) as spy:
            learner.training_step(batch, 0)
        assert spy.call_count == count
        assert sum(len(call.args[1]) for call in spy.call_args_list) == len(batch)
