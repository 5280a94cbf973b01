"""The command line: what it says, what it returns."""

import importlib
import json
import subprocess
import sys

import pytest
import yaml

from undirected.cli import TASKS, main
from undirected.tasks.command import train_arguments

TINY = ["--epochs=1", "--batch=64", "--iterations=1", "--shift=0"]


COMMANDS = [command for task in TASKS for command in importlib.import_module(task).COMMANDS]
#: These draw nothing at random.
WITHOUT_SEED = [("eval", "parser"), ("parse",), ("demo",)]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.words))
def test_every_command_has_help_with_an_example_and_the_common_flags(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.words, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "Example: undirected " + " ".join(command.words) in " ".join(text.split())
    flags = {"--config"}
    flags |= {"--json", "--device", "--precision", "--out"} if command.words != ("demo",) else set()
    flags |= {"--seed"} if command.words not in WITHOUT_SEED else set()
    for flag in flags:
        assert flag in text


@pytest.mark.parametrize("group", ["train", "eval", "reproduce"])
def test_groups_of_commands_have_help_with_examples(group, capsys):
    with pytest.raises(SystemExit):
        main([group, "--help"])
    assert f"  undirected {group} " in capsys.readouterr().out


@pytest.mark.parametrize("flags", [["--projective"], ["--projective=true"], ["--projective", "--mix", "false"]])
def test_what_is_true_or_false_needs_no_value(flags):
    import jsonargparse

    from undirected.tasks.parsing.settings import Settings

    parser = jsonargparse.ArgumentParser()
    train_arguments(parser, Settings, "out")
    chosen = parser.parse_args(flags)
    assert (chosen.projective, chosen.mix) == (True, False)


def test_help_is_quick_to_import():
    code = (
        "import sys\nfrom undirected.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('lightning', 'matplotlib', 'sklearn', 'torchmetrics', 'pooch') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"
    assert "undirected train images" in out


def test_an_untied_network_leaves_its_checkpoints(tmp_path, capsys):  # there is no network to save
    words = ["train", "images", "--epochs=1", "--batch=64", "--iterations=2", "--tied=false", "--gamma=0", "--quiet"]
    assert main([*words, f"--out={tmp_path / 'run'}"]) == 0
    assert capsys.readouterr().out.endswith("run/: settings.yaml, metrics.csv, checkpoints\n")
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_settings_come_from_a_file_and_flags_come_first(tmp_path, capsys):
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump({"gamma": 0.25, "batch": 32, "seed": 7}))
    assert main(["train", "images", "--config", str(file), *TINY, "--json", f"--out={tmp_path / 'run'}"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)  # the progress bar goes elsewhere
    assert "accuracy" in printed.err
    assert 0 <= result["test_accuracy"] <= 1
    written = yaml.safe_load((tmp_path / "run" / "settings.yaml").read_text())
    assert (written["gamma"], written["batch"], written["seed"]) == (0.25, 64, 7)
    run = str(tmp_path / "run")
    # The other commands take the run that this one left.
    assert main(["eval", "images", run, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(result["test_accuracy"])
    assert main(["generate", run, "--class", "3", "--out", str(tmp_path / "drawn")]) == 0
    drawn = capsys.readouterr().out.strip()
    assert drawn.endswith("class-3.png")
    assert main(["classify", run, drawn, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["pictures"]
    assert set(found["probabilities"]) == set("0123456789")
    assert main(["complete", run, drawn, "--hide", "left", "--out", str(tmp_path / "done")]) == 0
    assert "class-3-completed.png" in capsys.readouterr().out


def test_without_a_model_a_packaged_one_is_used(tmp_path, capsys):
    assert main(["generate", "--class", "3", "--out", str(tmp_path)]) == 0
    drawn = capsys.readouterr().out.strip()
    for model in ([], ["mnist"], ["digits"]):
        assert main(["classify", *model, drawn, drawn, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["pictures"]
        assert [(one["picture"], one["class"]) for one in found] == [(drawn, "3")] * 2
    assert main(["complete", drawn, "--hide", "left", "--class", "3", "--out", str(tmp_path)]) == 0
    assert "taken for 3" in capsys.readouterr().out
    # A word that is no picture is a model, so that a misspelt one is told the known ones.
    assert main(["classify", "mnits", drawn]) == 1
    assert "digits, mnist" in capsys.readouterr().err
    assert main(["classify", "mnist"]) == 1
    assert "of which picture" in capsys.readouterr().err
    assert main(["complete", drawn, drawn]) == 1
    assert "at a time" in capsys.readouterr().err


def test_failures_say_why_and_return_1(tmp_path, capsys):
    assert main(["classify", str(tmp_path), "picture.png"]) == 1
    assert "no network there" in capsys.readouterr().err
    assert main(["train", "images", "--data", "nothing", f"--out={tmp_path / 'a'}", "--json"]) == 1
    assert "digits, mnist, fashion-mnist" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize("wrong", [[], ["fly"], ["train"], ["train", "images", "--epochs", "many"]])
def test_wrong_calls_return_2(wrong):
    with pytest.raises(SystemExit) as stop:
        main(wrong)
    assert stop.value.code == 2
