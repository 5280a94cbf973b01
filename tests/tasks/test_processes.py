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
    flags = ["--hidden=8", "--words=20", "--epochs=1", "--dropout=0", "--single=0", "--encoder_learning_rate=1e-3"]
    return ["parser", f"--encoder={bert}", *flags], "parser.safetensors"


@pytest.mark.slow
@pytest.mark.parametrize("task", [sequences, parser])
def test_two_processes_do_what_one_does_with_the_same_whole_batch(task, tmp_path):
    words, name = task(tmp_path)
    command = ["train", *words, "--precision=64", "--quiet"]
    assert main([*command, f"--out={tmp_path / 'one'}"]) == 0
    done = subprocess.run(
        [*TORCHRUN, "undirected", *command, f"--out={tmp_path / 'two'}"], capture_output=True, text=True
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
