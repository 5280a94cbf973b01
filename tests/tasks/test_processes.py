"""Two processes learn what one learns from the same whole batches, also where their parts differ in size."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from tests.tasks.parsing.tiny_bert import save_tiny_bert
from tests.tasks.sequences.conftest import DAYS
from undirected.cli import main
from undirected.tasks.parsing import treebank

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "--"]


def sequences(folder):  # of many lengths, so that some parts miss more tokens; orders that leave weights out
    file = folder / "days.txt"
    file.write_text("\n".join(" ".join(DAYS[i % 7] for i in range(j, j + 5 + 2 * j)) for j in range(12)))
    flags = ["--size=16", "--batch=5", "--steps=6", "--epochs=2", "--order=random", "--iterations=1"]
    return ["sequences", f"--data={file}", *flags], "model.safetensors"


def parser(folder):  # few words a step, so that some batches have one sentence; an encoder without dropout
    bert = save_tiny_bert(folder / "bert")
    config = json.loads((bert / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (bert / "config.json").write_text(json.dumps(config))
    toy, data = treebank.load("toy"), folder / "UD_Toy"
    data.mkdir()
    for part, sentences in (("train", toy.train[:40]), ("dev", toy.dev[:8]), ("test", toy.test[:8])):
        treebank.write(sentences, data / f"toy-ud-{part}.conllu")
    flags = ["--hidden=8", "--words=20", "--epochs=1", "--dropout=0", "--single=0", "--encoder_learning_rate=1e-3"]
    return ["parser", f"--data={data}", f"--encoder={bert}", *flags], "parser.safetensors"


def spawned(folder):  # by Lightning itself, with a strategy by its name
    words, name = sequences(folder)
    return [*words, "--devices=2", "--strategy=ddp_spawn_find_unused_parameters_true"], name


@pytest.mark.slow
@pytest.mark.parametrize("task", [sequences, parser, spawned])
def test_two_processes_do_what_one_does_with_the_same_whole_batch(task, tmp_path):
    words, name = task(tmp_path)
    alone = [word for word in words if not word.startswith(("--devices", "--strategy"))]
    flags = ["--precision=64", "--quiet"]
    assert main(["train", *alone, *flags, f"--out={tmp_path / 'one'}"]) == 0
    launcher = [sys.executable, "-m"] if task is spawned else TORCHRUN
    done = subprocess.run(
        [*launcher, "undirected", "train", *words, *flags, f"--out={tmp_path / 'two'}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("metrics.csv") == 1  # the first process speaks for all
    one, two = (load_file(tmp_path / folder / name) for folder in ("one", "two"))
    for part, weight in one.items():
        torch.testing.assert_close(two[part], weight, rtol=1e-4, atol=1e-6, msg=part)
    results = [json.loads((tmp_path / folder / "result.json").read_text()) for folder in ("one", "two")]
    for measure in results[0]:
        if measure.startswith(("test", "val")):
            assert results[0][measure] == pytest.approx(results[1][measure], abs=1e-6), measure


@pytest.mark.slow
def test_what_another_process_refuses_is_told_as_if_it_had_been_this_one(tmp_path):  # the energy has no lower bound
    words = ["train", "parser", "--until=1e-3", "--single=0", "--size=8", "--hidden=8", "--learning_rate=0.5"]
    command = [sys.executable, "-m", "undirected", *words, "--epochs=3", "--devices=2", "--quiet", f"--out={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "no lower bound" in done.stderr
    assert "--activation tanh" in done.stderr
    assert "Traceback" not in done.stderr
