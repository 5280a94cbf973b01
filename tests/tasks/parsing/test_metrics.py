"""Metrics: against the official evaluation, and against plain loops over sentences."""

import io
import random
from collections import defaultdict

import pytest
import torch
from udtools.udeval import evaluate, load_conllu

from undirected.tasks.parsing import toy, treebank
from undirected.tasks.parsing.metrics import TreeAccuracy
from undirected.tasks.parsing.sentence import Sentence, fault


def damaged(sentence, share, labels, source):
    """A tree that differs in some heads and labels."""
    heads = list(sentence.heads)
    for word in range(len(heads)):
        if source.random() < share and heads[word]:
            before, heads[word] = heads[word], source.randint(1, len(heads))
            if fault(heads):
                heads[word] = before
    if len(heads) > 1 and source.random() < share:  # another root
        root, other = heads.index(0), source.randrange(len(heads))
        if other != root:
            heads[other], heads[root] = 0, other + 1
    assert fault(heads) is None
    return heads, [source.choice(labels) if source.random() < share else label for label in sentence.labels]


def tensors(trees, names):
    n = max(len(heads) for heads, _ in trees)
    heads = torch.tensor([[*heads, *[source_of_noise(n)] * (n - len(heads))] for heads, _ in trees])
    labels = torch.tensor([[*map(names.index, labels), *[0] * (n - len(labels))] for _, labels in trees])
    return heads, labels


def source_of_noise(n):
    """What stands after the end of a sentence does not matter."""
    return random.Random(n).randint(-1, n)


def measured(sentences, trees, names, size=17):
    metric = TreeAccuracy(names)
    for start in range(0, len(sentences), size):
        metric.update(*tensors(trees[start : start + size], names), sentences[start : start + size])
    return {name: value.item() for name, value in metric.compute().items()}


def official(sentences):
    out = io.BytesIO()
    treebank.write(sentences, out)
    return load_conllu(
        io.StringIO(out.getvalue().decode()), "trees", {"no_empty_nodes": False, "multiple_roots_okay": 0}
    )


def compare(sentences, names, share):
    source = random.Random(0)
    trees = [damaged(sentence, share, names, source) for sentence in sentences]
    found = measured(sentences, trees, names)
    expected = evaluate(
        official(sentences), official(s.with_tree(*tree) for s, tree in zip(sentences, trees, strict=True))
    )
    assert found["uas"] == expected["UAS"].aligned_accuracy
    assert found["las"] == expected["LAS"].aligned_accuracy
    assert found["las"] < found["uas"] < 1


def test_attachment_scores_are_those_of_the_official_evaluation():
    compare(toy.part("test"), ["root", "nsubj", "det", "amod", "acl:other", "punct", *_names(toy.part("test"))], 0.2)


@pytest.mark.parametrize("language", ["te", "hu", "af", "en", "pt"])
def test_attachment_scores_of_treebanks_are_the_official_ones(data, language):
    (path,) = data.glob(f"ud/*/{language}_*-ud-dev.conllu")
    sentences = list(treebank.read(path))
    compare(sentences, _names(sentences), 0.3)


def _names(sentences):
    return sorted({label for sentence in sentences for label in sentence.labels})


def test_the_other_accuracies_are_what_their_definitions_say():
    sentences, source = toy.part("test"), random.Random(1)
    names = _names(sentences)
    trees = [damaged(sentence, 0.5, names, source) for sentence in sentences]
    exact, lists, counts = [], [], []
    for sentence, (heads, _) in zip(sentences, trees, strict=True):
        exact.append(list(sentence.heads) == heads)
        sets, gold = (defaultdict(set), defaultdict(set))
        for found, tree in ((sets, heads), (gold, sentence.heads)):
            for word, head in enumerate(tree, 1):
                found[head or word].add(word)  # a word that contains itself is the root
        lists += [sets[head] == gold[head] for head in gold]
        counts += [len(sets[head]) == len(gold[head]) for head in gold]
    found = measured(sentences, trees, names)
    assert found["exact_match"] == sum(exact) / len(exact)
    assert found["modifier_list_accuracy"] == sum(lists) / len(lists)
    assert found["modifier_count_accuracy"] == sum(counts) / len(counts)
    assert found["modifier_list_accuracy"] < found["modifier_count_accuracy"]


def test_right_trees_are_all_right():
    sentences = toy.part("dev")
    trees = [(sentence.heads, sentence.labels) for sentence in sentences]
    assert set(measured(sentences, trees, _names(sentences)).values()) == {1.0}


def test_labels_count_without_subtypes_and_unknown_ones_are_wrong():
    sentence = Sentence.of(["a", "b", "c"]).with_tree([0, 1, 1], ["root", "nsubj:pass", "novel"])
    metric = TreeAccuracy(["root", "nsubj", "dep"])
    metric.update(torch.tensor([[0, 1, 1]]), torch.tensor([[0, 1, 2]]), [sentence])
    assert metric.compute()["las"] == 2 / 3


def test_a_sum_over_batches_does_not_depend_on_their_size():
    sentences, source = toy.part("dev"), random.Random(2)
    names = _names(sentences)
    trees = [damaged(sentence, 0.2, names, source) for sentence in sentences]
    assert measured(sentences, trees, names, 1) == measured(sentences, trees, names, 120)
