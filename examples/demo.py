"""One network, both ways: it reads handwritten digits, and it draws them.

    python examples/demo.py

trains an undirected network on scikit-learn's 8 x 8 digits, prints how well it reads digits that it has not seen,
and saves four pictures: what it draws for each class, its energy falling, its graph, and the plan of a call.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import undirected as un

READ = "h1 h2 y h2"  # from the image up to the class, and a step back
DRAW = "h2 h1 x h1"  # from the class down to the image, and a step back


def network() -> un.UNN:
    """An image x, its class y, and two hidden layers; every factor works in both directions."""
    return un.UNN(
        un.Variable("x", (8, 8), un.Tanh(), bias=False),  # pixels from -1 (paper) to 1 (ink)
        un.Variable("h1", (256,), un.Tanh()),
        un.Variable("h2", (128,), un.Tanh()),
        un.Variable("y", (10,), un.Softmax()),
        un.Linear("x", "h1"),
        un.Linear("h1", "h2"),
        un.Linear("h2", "y"),
    )


def digits(seed: int) -> list[torch.Tensor]:
    """Images to train on, images to test on, and the labels of both."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).view(-1, 8, 8) / 8 - 1
    return train_test_split(images, torch.tensor(labels), test_size=0.2, stratify=labels, random_state=seed)


def train(net: un.UNN, images: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    batches = (len(images) + 63) // 64
    optimizer = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.002, total_steps=epochs * batches)
    begin = time.perf_counter()
    net.train()
    for epoch in range(1, epochs + 1):
        losses = torch.zeros(2)
        for batch in torch.randperm(len(images)).split(64):
            x, y = images[batch], labels[batch]
            # The number of iterations is drawn anew each time, so that any number will do later.
            reading = net(observe={"x": x}, want="y", order=READ, iterations=(1, 5))
            drawing = net(observe={"y": y}, want="x", order=DRAW, iterations=5)
            # Cross-entropy of the class, and the logistic loss of each pixel.
            reading_loss = un.fenchel_young(reading, "y", y)
            drawing_loss = un.fenchel_young(drawing, "x", x)
            optimizer.zero_grad()
            (reading_loss + 0.01 * drawing_loss).backward()
            optimizer.step()
            schedule.step()
            losses += torch.stack([reading_loss, drawing_loss]).detach() / batches
        if epoch % max(1, epochs // 6) == 0:
            seconds = time.perf_counter() - begin
            print(f"epoch {epoch:3}   loss of reading {losses[0]:.3f}, of drawing {losses[1]:5.2f}   {seconds:3.0f} s")
    net.eval()


@torch.no_grad()
def accuracy(net: un.UNN, images: torch.Tensor, labels: torch.Tensor, iterations: int) -> float:
    found = net(observe={"x": images}, want="y", order=READ, iterations=iterations)["y"]
    return (found.argmax(1) == labels).double().mean().item()


@torch.no_grad()
def draw_prototypes(net: un.UNN, path: Path) -> None:
    """What the network draws when it is told a class and nothing else."""
    images = net(observe={"y": torch.arange(10)}, want="x", order=DRAW, iterations=5)["x"]
    figure, axes = plt.subplots(2, 5, figsize=(6.4, 3.1), layout="constrained")
    for label, (axis, image) in enumerate(zip(axes.flat, images, strict=True)):
        axis.imshow(image, cmap="gray_r", vmin=-1, vmax=1)
        axis.set_title(label, fontsize=11)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_color("#c3c9d2")
    figure.savefig(path, dpi=120)
    plt.close(figure)


@torch.no_grad()
def draw_energy(net: un.UNN, images: torch.Tensor, labels: torch.Tensor, path: Path) -> None:
    """The energy after every update, for one image of each class. It may only fall; `check=True` makes sure."""
    chosen = [int((labels == label).nonzero()[0]) for label in range(10)]
    trace = net(observe={"x": images[chosen]}, order=READ, iterations=3, check=True, trace=True).trace
    steps = trace.steps[-len(trace.energy) :]  # the energy is known once every variable has a value
    figure, axis = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for label, energy in enumerate(trace.energy.T):
        axis.plot(energy, marker="o", markersize=3.5, color=plt.cm.tab10(label), label=label)
    axis.set_xticks(range(len(steps)), [f"{step.variable}\n{step.iteration}" for step in steps])
    axis.set_xlabel("variable updated, in iteration")
    axis.set_ylabel("energy")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(title="digit", ncols=2, frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60, help="how often the training images are gone through (60)")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="the folder for the pictures (demo)")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the first weights and the batches (0)")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # layers this small are slower on several
    options.out.mkdir(parents=True, exist_ok=True)

    net = network()
    train_images, test_images, train_labels, test_labels = digits(options.seed)
    print(f"{len(train_images)} digits to learn from, {len(test_images)} to be tested on")
    train(net, train_images, train_labels, options.epochs)
    for iterations in range(1, 6):
        share = accuracy(net, test_images, test_labels, iterations)
        print(f"test accuracy with {iterations} iteration{'s' * (iterations > 1)}: {share:.1%}")

    draw_prototypes(net, options.out / "prototypes.png")
    draw_energy(net, test_images, test_labels, options.out / "energy.png")
    un.draw(net).save(options.out / "graph.svg")
    plan = net.plan(observe=["x"], want="y", order=READ, iterations=3)
    un.draw(plan).save(options.out / "plan.svg")
    print(f"reading with 3 iterations: {plan.savings}")
    print(f"pictures in {options.out}/: prototypes.png, energy.png, graph.svg, plan.svg")


if __name__ == "__main__":
    main()
