"""Runs: a parser is trained, tested once, kept, and what is stopped goes on exactly."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from undirected.cli import main
from undirected.errors import Diverged, FileError, QueryError
from undirected.structure.heads import crosses
from undirected.tasks.folder import read_result, read_settings
from undirected.tasks.parsing import learner as learners
from undirected.tasks.parsing.evaluation import evaluate
from undirected.tasks.parsing.learner import Learner
from undirected.tasks.parsing.parser import load
from undirected.tasks.parsing.run import train
from undirected.tasks.parsing.settings import Settings
from undirected.tasks.parsing.tables import reproduce, settings, treebanks
from undirected.tasks.parsing.treebank import Treebank, write
from undirected.tasks.parsing.treebank import load as load_treebank

from .tiny_bert import save_tiny_bert

# Dropout, hidden words and several iterations: all that could differ after a restart.
SMALL = Settings(iterations=2, size=8, layers=1, hidden=8, words=300, epochs=2, checkpoint_every=5, seed=3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(SMALL, tmp_path_factory.mktemp("run"), progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A treebank on disk: some sentences of the toy grammar."""
    toy, folder = load_treebank("toy"), tmp_path_factory.mktemp("ud") / "UD_Toy"
    folder.mkdir()
    for part, sentences in (("train", toy.train[:48]), ("dev", toy.dev[:12]), ("test", toy.test[:12])):
        write(sentences, folder / f"toy-ud-{part}.conllu")
    return folder


def weights(parser) -> dict[str, torch.Tensor]:
    return parser.network.state_dict()


def test_a_run_leaves_a_parser_that_does_as_well_as_it_says(trained):  # from the sentences, parsed again
    parser, sentences = load(trained.folder), trained.treebank.test
    found = parser.many(sentence.words for sentence in sentences)
    right = sum(
        a == b for parse, s in zip(found, sentences, strict=True) for a, b in zip(parse.heads, s.heads, strict=True)
    )
    assert right / sum(map(len, sentences)) == pytest.approx(trained.result["test_uas"], abs=1e-6)
    assert json.loads((trained.folder / "result.json").read_text()) == trained.result
    found = evaluate(str(trained.folder))
    assert found.metrics["las"] == pytest.approx(trained.result["test_las"], abs=1e-6)
    assert (found.iterations, found.sentences) == (2, 120)


def test_a_stopped_run_goes_on_exactly(trained, tmp_path, monkeypatch):  # from the run that was not stopped
    class Stop(Exception):
        pass

    def stop(self, *arguments):
        if self.global_step == 22:  # in the second epoch
            raise Stop
        return resumed(self, *arguments)

    resumed = Learner.on_train_batch_start
    monkeypatch.setattr(Learner, "on_train_batch_start", stop)
    with pytest.raises(Stop):
        train(SMALL, tmp_path, progress=False)
    monkeypatch.setattr(Learner, "on_train_batch_start", resumed)
    again = train(SMALL, tmp_path, resume=True, progress=False)
    assert all(
        torch.equal(a, b) for a, b in zip(weights(trained.parser).values(), weights(again.parser).values(), strict=True)
    )
    assert again.result["test_uas"] == trained.result["test_uas"]


def test_training_opens_the_test_part_only_at_the_end(monkeypatch):  # from the promise
    toy = load_treebank("toy")

    def forbidden():
        raise AssertionError("opened")

    learner = Learner(SMALL, Treebank("toy", lambda: toy.train, lambda: toy.dev, forbidden))
    next(iter(learner.train_dataloader()))
    next(iter(learner.val_dataloader()))
    learner.configure_optimizers()


def test_projective_training_leaves_out_sentences_that_cross():
    learner = Learner(replace(SMALL, projective=True), load_treebank("toy"))
    kept = [bool(crosses(torch.tensor([s.heads]))) for s in learner.sentences]
    every = [bool(crosses(torch.tensor([s.heads]))) for s in load_treebank("toy").train]
    assert not any(kept)
    assert len(kept) == every.count(False) < len(every)


@pytest.mark.parametrize("gradient", ["implicit", "one-step"])
def test_training_at_equilibrium(gradient, folder, tmp_path):
    chosen = replace(
        SMALL, data=str(folder), until=1e-3, gradient=gradient, activation="tanh", epochs=1, single=0.0, words=30
    )
    result = train(chosen, tmp_path / gradient, progress=False)
    assert result.parser.way.until == 1e-3
    assert 0 <= result.result["test_uas"] <= 1


def test_equilibria_begin_after_the_epochs_with_one_sweep():
    chosen = replace(SMALL, until=1e-3, gradient="implicit", activation="tanh")
    toy = load_treebank("toy")
    sweeps = {}
    for single in (0.0, 0.5):  # without a trainer, the epoch is the first
        learner = Learner(replace(chosen, single=single), toy).train()
        sweeps[single] = learner(toy.train[:4]).solution.iterations.max().item()
    assert sweeps[0.5] == 1 < sweeps[0.0]


def test_training_that_diverges_says_what_to_do(folder, tmp_path):  # from the energy, which has no lower bound
    chosen = replace(SMALL, data=str(folder), until=1e-3, learning_rate=0.1, epochs=3, single=0.0, words=30)
    with pytest.raises(Diverged, match=r"no lower bound.*--activation tanh"):
        train(chosen, tmp_path, progress=False)


def test_training_with_a_strong_V_says_what_to_do(folder, tmp_path, monkeypatch):  # the features overflow by themselves
    begun = Learner.__init__

    def strong(learner, *arguments):
        begun(learner, *arguments)
        learner.network.net.factors["y-h-m"].V.data *= 1e15

    monkeypatch.setattr(Learner, "__init__", strong)
    chosen = replace(SMALL, data=str(folder), iterations=5, single=0.0, epochs=1, words=30)
    with pytest.raises(Diverged, match=r"left the finite numbers.*--activation tanh, or fewer --iterations"):
        train(chosen, tmp_path, progress=False)


def test_any_encoder_from_a_folder_is_fine_tuned(folder, tmp_path):  # end to end, with a BERT of random weights
    bert = save_tiny_bert(tmp_path / "bert")
    chosen = replace(SMALL, data=str(folder), encoder=str(bert), epochs=1, words=30, encoder_learning_rate=1e-2)
    before = Learner(chosen, load_treebank(str(folder))).network.state_dict()
    after = train(chosen, tmp_path / "run", progress=False).parser.network.state_dict()
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert any(name.startswith("encoder.model.embeddings") for name in moved)
    assert load(tmp_path / "run")("the dog sleeps .").words == ("the", "dog", "sleeps", ".")


def test_the_table_is_written_and_what_was_run_is_not_run_again(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("undirected.tasks.parsing.tables.Settings", lambda **chosen: replace(SMALL, words=30, **chosen))
    table = reproduce(str(folder), most=2, epochs=1, out=tmp_path)
    assert [(row["treebank"], row["k"]) for row in table.rows] == [(folder.name, 1), (folder.name, 2)]
    assert (tmp_path / "parsing.csv").is_file()
    monkeypatch.setattr(learners, "Batches", None)  # nothing can be learned any more
    assert reproduce(str(folder), most=2, epochs=1, out=tmp_path).rows == table.rows


def test_every_process_needs_a_sentence_to_validate(folder, tmp_path):
    with pytest.raises(QueryError, match="12 dev sentences for 13 processes"):
        train(replace(SMALL, data=str(folder), devices=13), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_grid_chooses_a_learning_rate_on_the_dev_part(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("undirected.tasks.parsing.tables.Settings", lambda **chosen: replace(SMALL, words=30, **chosen))
    (row,) = reproduce(str(folder), grid=True, most=1, epochs=1, out=tmp_path).rows
    runs = [path.parent for path in tmp_path.glob("*/result.json")]
    found = {read_settings(run, Settings).learning_rate: read_result(run)["val_uas"] for run in runs}
    assert set(found) == {1e-3, 2e-3, 4e-3}
    assert found[row["learning rate"]] == max(found.values())


def test_pretrained_encoders_get_the_settings_of_the_paper(folder):  # from its published configurations
    found = settings(str(folder), "bert-base-multilingual-cased")
    assert (found.hidden, found.dropout, found.learning_rate, found.epochs, found.clip) == (400, 0.3, 5e-5, 50, 1.0)
    assert found.warmup == pytest.approx(20 / (50 * 3))  # 48 sentences are three steps of 20
    assert treebanks(str(Path(folder).parent)) == [str(folder)]


def test_commands(folder, tmp_path, capsys):
    flags = ["--size=8", "--hidden=8", "--layers=1", "--words=30", "--epochs=1", "--iterations=1"]
    out = str(tmp_path / "run")
    assert main(["train", "parser", f"--data={folder}", *flags, "--quiet", "--json", f"--out={out}"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert main(["eval", "parser", out, "--json", "--iterations", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["uas"] == pytest.approx(result["test_uas"], abs=1e-6)
    assert main(["eval", "parser", f"{out}/parser.safetensors"]) == 1
    assert "Give --data" in capsys.readouterr().err


def test_wrong_settings_are_refused_before_any_work(tmp_path):
    for wrong in (
        {"iterations": 0},
        {"dropout": 1.0},
        {"gradient": "implicit"},
        {"learning_rate": 0.0},
        {"warmup": 0.0},
        {"size": 4},
        {"until": -1.0},
        {"mix": True},
    ):
        with pytest.raises(QueryError, match=next(iter(wrong))):
            Settings(**wrong)
    with pytest.raises(FileError, match="--data nowhere"):
        train(replace(SMALL, data="nowhere"), tmp_path, progress=False)


@pytest.mark.slow
def test_the_toy_treebank_is_learned(tmp_path):  # from the grammar, which is regular enough
    chosen = Settings(size=32, hidden=64, words=120, epochs=14, learning_rate=4e-3, dropout=0.1)
    result = train(chosen, tmp_path, progress=False).result
    assert result["test_uas"] > 0.9
    assert result["test_las"] > 0.85
