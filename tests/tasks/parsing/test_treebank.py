"""Treebank: every byte comes back, and what is not a treebank is refused by file and line."""

import io
import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from undirected.errors import FileError
from undirected.tasks.parsing import treebank
from undirected.tasks.parsing.treebank import Sentence, read, write


def row(identity, form="w", head="0", label="root", columns=10):
    rest = ["l", "X", "_", "F=1|G=2", str(head), label, "_", "_"]
    return "\t".join([str(identity), form, *rest][:columns])


def stream(text, name="some.conllu"):
    made = io.BytesIO(text if isinstance(text, bytes) else text.encode())
    made.name = name
    return made


def written(sentences):
    out = io.BytesIO()
    write(sentences, out)
    return out.getvalue()


SIMPLE = f"# text = ab\n{row(1)}\n{row(2, head=1, label='dep')}\n"
HARD = (
    "\ufeff# newdoc\n# no value =\n#\n# twice = 1\n# twice = 2\n"
    + row("0.1", "_", "_", "_")
    + "\n"
    + row("1-2", "w w", "_", "_")
    + "\n"
    + row(1, "é ́")
    + "\n"
    + row(2, head=1, label="acl:relcl")
    + "\n"
    + row("2.1", head="_", label="_")
    + "\n"
    + row(3, "#", 1, "x")
    + "\n"
)


@pytest.mark.parametrize("part", ["train", "dev", "test"])
@pytest.mark.parametrize("language", ["af", "en", "hu", "te", "pt"])
def test_universal_dependencies_come_back_byte_by_byte(data, language, part):
    (path,) = data.glob(f"ud/*/{language}_*-ud-{part}.conllu")
    raw = path.read_bytes()
    sentences = list(itertools.islice(read(path), 600 if part == "train" else None))
    assert raw.startswith(written(sentences))
    assert part == "train" or len(raw) == len(written(sentences))
    assert raw.startswith(written(sentence.with_tree(sentence.heads, sentence.labels) for sentence in sentences))


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n", "\n\n\n"])
@pytest.mark.parametrize("first", ["", "\n"])
def test_line_ends_comments_and_odd_rows_come_back(first, last, ends):
    text = (first + HARD + "\n\n" + SIMPLE + "\n" + SIMPLE.rstrip("\n") + last).replace("\n", ends).encode()
    sentences = list(read(stream(text)))
    assert [sentence.words for sentence in sentences] == [("é ́", "w", "#"), ("w", "w"), ("w", "w")]
    assert sentences[0].heads == (0, 1, 1)
    assert sentences[0].labels == ("root", "acl:relcl", "x")
    assert written(sentences) == text
    assert written(sentence.with_tree(sentence.heads, sentence.labels) for sentence in sentences) == text


@given(st.lists(st.tuples(st.text("ab\u0644\u2028\x85 \xa0", min_size=1), st.sampled_from(["\n", "\n\n", ""]))))
def test_any_words_come_back(parts):
    text = "".join(f"# text = x\n{row(1, word)}\n\n{gap if gap != '' else ''}" for word, gap in parts)
    if parts:
        sentences = list(read(stream(text)))
        assert [sentence.words[0] for sentence in sentences] == [word for word, _ in parts]
        assert written(sentences) == text.encode()


def test_a_sentence_from_the_end_of_a_file_keeps_its_distance():
    for ending in ("", "\n", "\n\n"):
        (sentence,) = read(stream(SIMPLE.rstrip("\n") + ending))
        assert [len(found) for found in read(stream(written([sentence, sentence])))] == [2, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{SIMPLE}\n{row(1)}\n{row(2, head=3)}\n{row(3, head=2)}\n", "line 6: words 2 -> 3 -> 2 form a cycle"),
        (f"{row(1)}\n{row(2)}\n", "line 2: words 1 and 2 both have head 0"),
        (f"{row(1, head=2)}\n{row(2, head=1)}\n", "line 1: no word has head 0"),
        (f"{row(1)}\n{row(2, head=3)}\n", "line 2: word 2 has head 3, but the heads of 2 words are 0 to 2"),
        (f"{row(1)}\n{row(2, head=-1)}\n", "line 2: word 2 has head -1"),
        (f"{row(1, head='one')}\n", "line 1: HEAD is 'one', not the number"),
        (f"{row(1, head='_')}\n", "line 1: HEAD is _: this sentence has no tree"),
        (f"{row(1, label='_')}\n", "line 1: word 1 has no relation"),
        (f"{row(1, columns=9)}\n", "line 1: 9 columns, but CoNLL-U has 10"),
        (f"{row(1)}\tmore\n", "line 1: 11 columns"),
        (f"{row(1)}\n   \n", "line 2: 1 columns"),
        (f"{row(1, form='')}\n", "line 1: column 2 is empty"),
        (f"{row(1)}\n{row(3, head=1)}\n", "line 2: ID is '3', but after word 1 comes 2"),
        (f"{row('1a')}\n", "line 1: ID is '1a'"),
        (f"{row('_')}\n", "line 1: ID is '_'"),
        (f"{row('2-1')}\n{row(1)}\n", "line 1: ID is '2-1'"),
        (f"{row('1-2')}\n{row(1)}\n", "line 1: a multiword token ends at word 2, but there are 1"),
        (f"{row(1)}\n{row('3.1')}\n", "line 2: ID is '3.1'"),
        (f"{row(1)}\n\n# text = lost\n\n{row(1)}\n", "line 3: a sentence without words"),
        (f"{row(1)}\n".encode("utf-16"), r"line 1: byte 1 \(0xff\) is not UTF-8"),
        (f"# naïve\n{row(1)}\n".encode("latin-1"), r"line 1: byte 5 \(0xef\) is not UTF-8"),
        ("", "has no sentences"),
        ("\n\n", "has no sentences"),
        ("just text\n", "line 1: 1 columns"),
    ],
)
def test_what_is_not_a_treebank_is_refused(text, message):
    with pytest.raises(FileError, match=rf"^some\.conllu.*{message}"):
        list(read(stream(text)))


def test_text_without_trees_can_be_read_to_be_parsed():
    text = f"{row('1-2')}\n{row(1, 'a', '_', '_')}\n{row(2, 'b', 'nonsense', '_')}\n\n"
    (sentence,) = read(stream(text), trees=False)
    assert (sentence.words, sentence.heads, sentence.labels) == (("a", "b"), (), ())
    assert [found.heads for found in read(stream(written([sentence.with_tree([2, 0], ["x", "root"])])))] == [(2, 0)]
    assert [found.words for found in read(stream(written([Sentence.of(["a", "b"])])), trees=False)] == [("a", "b")]


def test_reading_streams():
    def lines():
        while True:
            yield from SIMPLE.encode().splitlines(keepends=True)
            yield b"\n"

    tracemalloc.start()
    for count, sentence in enumerate(read(lines())):
        assert len(sentence) == 2
        if count == 5000:
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000  # the text alone has 350 kB


def test_the_test_part_is_read_when_it_is_asked_for(tmp_path):
    folder = tmp_path / "UD_Test-Bank"
    folder.mkdir()
    for part in ("train", "dev"):
        (folder / f"xx_bank-ud-{part}.conllu").write_text(SIMPLE)
    with pytest.raises(FileError, match=r"should hold one file \*-ud-test.conllu, but has none"):
        treebank.load(str(folder))
    (folder / "xx_bank-ud-test.conllu").write_text("broken")
    bank = treebank.load(str(folder))
    assert bank.name == "UD_Test-Bank"
    assert [len(sentence) for sentence in (*bank.train, *bank.dev)] == [2, 2]
    with pytest.raises(FileError, match=r"xx_bank-ud-test.conllu, line 1: 1 columns"):
        _ = bank.test


def test_treebanks_are_found_by_name_and_language(tmp_path, monkeypatch):
    for folder, code in (("UD_A-One", "aa_one"), ("UD_B-One", "bb_one"), ("UD_B-Two", "bb_two")):
        (tmp_path / "ud" / folder).mkdir(parents=True)
        for part in ("train", "dev", "test"):
            (tmp_path / "ud" / folder / f"{code}-ud-{part}.conllu").write_text(SIMPLE)
    monkeypatch.setenv("UNDIRECTED_DATA", str(tmp_path))
    assert treebank.load("aa").name == treebank.load("UD_A-One").name == "UD_A-One"
    with pytest.raises(FileError, match="--data bb: several treebanks of this language: UD_B-One, UD_B-Two"):
        treebank.load("bb")
    with pytest.raises(FileError, match=r"--data cc: neither toy nor a folder.*UD_A-One, UD_B-One"):
        treebank.load("cc")
    monkeypatch.delenv("UNDIRECTED_DATA")
    with pytest.raises(FileError, match=r"\$UNDIRECTED_DATA"):
        treebank.load("aa")


def test_files_are_written_by_name(tmp_path):
    (tmp_path / "a.conllu").write_text(SIMPLE + "\n")
    write(read(tmp_path / "a.conllu"), tmp_path / "b.conllu")
    assert (tmp_path / "b.conllu").read_text() == SIMPLE + "\n"
