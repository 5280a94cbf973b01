"""Learner: the network with its losses, metrics and optimizer, as Lightning wants them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import lightning
import torch
from torch import Tensor

from undirected.errors import QueryError
from undirected.structure.heads import crosses
from undirected.tasks.parsing.batches import Batch, Batches, pieces
from undirected.tasks.parsing.encoders import named
from undirected.tasks.parsing.metrics import TreeAccuracy
from undirected.tasks.parsing.network import Network, Reading, Way
from undirected.tasks.parsing.parser import Parser, ways
from undirected.tasks.parsing.sentence import Sentence
from undirected.tasks.parsing.settings import Settings
from undirected.tasks.parsing.treebank import Treebank
from undirected.tasks.schedule import rise
from undirected.tasks.seeds import generator

if TYPE_CHECKING:
    from jaxtyping import Int

PIECE = 2_000  # words, padding included, that are parsed at a time when nothing is learned


class Learner(lightning.LightningModule):
    """Learns trees and labels."""

    def __init__(self, settings: Settings, treebank: Treebank) -> None:
        super().__init__()
        self.settings, self.treebank = settings, treebank
        self.sentences = treebank.train
        if settings.projective:
            self.sentences = tuple(s for s in self.sentences if not bool(crosses(torch.tensor([s.heads]))))
            if not self.sentences:
                raise QueryError(f"--projective: in every training sentence of {treebank.name} some arcs cross.")
        self.labels = sorted({label for sentence in self.sentences for label in sentence.labels})
        self.numbers = {label: number for number, label in enumerate(self.labels)}
        with torch.random.fork_rng():
            torch.manual_seed(settings.seed)
            words = [sentence.words for sentence in self.sentences]
            encoder = named(settings.encoder, words, settings.size, settings.layers, settings.mix)
            self.network = Network(
                encoder,
                len(self.labels),
                settings.hidden,
                settings.dropout,
                settings.projective,
                settings.activation,
            )
        self.accuracy = TreeAccuracy(self.labels)

    @property
    def way(self) -> Way:
        return ways(self.settings.iterations, self.settings.until, self.settings.gradient)

    def parser(self) -> Parser:
        """What has been learned, ready to be used."""
        return Parser(self.network.eval(), self.labels, self.way)

    def forward(self, sentences: Sequence[Sentence]) -> Reading:
        s = self.settings
        begins = self.training and self.current_epoch < s.single * s.epochs
        way = ways(1, 0.0, "unroll") if begins else self.way
        reading: Reading = self.network([sentence.words for sentence in sentences], way)
        return reading

    def training_step(self, batch: Batch, index: int) -> Tensor:
        sentences = batch.sentences
        heads = padded([sentence.heads for sentence in sentences]).to(self.device)
        labels = padded([[self.numbers[label] for label in s.labels] for s in sentences]).to(self.device)
        trees, names = self(sentences).loss(heads, labels)
        words = sum(map(len, sentences))
        self.log("tree_loss", trees, prog_bar=True, batch_size=words)
        self.log("label_loss", names, prog_bar=True, batch_size=words)
        return (trees + names) * batch.share  # the mean over processes is that over all words

    def on_train_batch_start(self, batch: Batch, index: int) -> None:
        # A step's dropout depends on its number alone, so that a resumed run draws the same.
        source = generator(self.settings.seed, 2, self.global_step, self.global_rank)
        torch.manual_seed(int(torch.randint(2**62, (), generator=source)))

    def validation_step(self, batch: Batch, index: int) -> None:
        self._compare(batch)

    def on_validation_epoch_end(self) -> None:
        self._report("val")

    def test_step(self, batch: Batch, index: int) -> None:
        self._compare(batch)

    def on_test_epoch_end(self) -> None:
        self._report("test")

    def _compare(self, batch: Batch) -> None:
        reading = self(batch.sentences)
        self.accuracy.update(reading.heads, reading.labels(reading.heads), batch.sentences)

    def _report(self, part: str) -> None:
        for name, value in self.accuracy.compute().items():
            self.log(f"{part}_{name}", value.float(), prog_bar=name in ("uas", "las"))
        self.accuracy.reset()

    def train_dataloader(self) -> Batches:
        s = self.settings
        return Batches(self.sentences, s.words, s.seed, self.global_rank, s.devices)

    def val_dataloader(self) -> Pieces:
        return Pieces(self.treebank.dev[self.global_rank :: self.settings.devices])

    def configure_optimizers(self) -> Any:
        s = self.settings
        trained = {id(parameter) for parameter in self.network.encoder.pretrained()}
        groups = [
            {"params": [p for p in self.parameters() if id(p) not in trained], "lr": s.learning_rate},
            {"params": [p for p in self.parameters() if id(p) in trained], "lr": s.encoder_learning_rate},
        ]
        groups = [group for group in groups if group["params"]]
        # Lightning does not scale gradients back before they are clipped if it is fused.
        optimizer = torch.optim.AdamW(groups, weight_decay=s.weight_decay, fused=s.precision != "16-mixed")
        steps = s.epochs * len(Batches(self.sentences, s.words, s.seed))
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=[float(group["lr"]) for group in groups],  # type: ignore[arg-type]
            total_steps=steps,
            pct_start=rise(s.warmup, steps),
            anneal_strategy="linear" if trained else "cos",
            cycle_momentum=not trained,
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters(), self.settings.clip)


class Pieces:
    """All sentences once, those of like length together."""

    def __init__(self, sentences: Sequence[Sentence]) -> None:
        self.sentences = sentences
        self.rows = pieces([len(sentence) for sentence in sentences], PIECE)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Batch]:
        for rows in self.rows:
            yield Batch([self.sentences[row] for row in rows])


def padded(rows: Sequence[Sequence[int]]) -> Int[Tensor, "rows longest"]:
    """Rows of different lengths as one tensor, filled with -1."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[-1] * (longest - len(row))] for row in rows])
