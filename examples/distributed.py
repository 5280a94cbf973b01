"""One network, trained by any number of processes: it reads and draws digits.

python examples/distributed.py
torchrun --nproc-per-node 2 examples/distributed.py
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import undirected as un


class Step(nn.Module):
    """Both questions of a training step in one forward pass: gradients are averaged once per pass."""

    def __init__(self, net: un.UNN) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        reading = self.net(observe={"x": x}, want="y", iterations=3)
        drawing = self.net(observe={"y": y}, want="x", iterations=3)
        return un.fenchel_young(reading, "y", y) + 0.01 * un.fenchel_young(drawing, "x", x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="training steps (200)")
    parser.add_argument("--batch", type=int, default=128, help="images per step, over all processes (128)")
    parser.add_argument("--out", default="distributed.safetensors", help="where the network is saved")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)  # the same first weights and the same batches everywhere

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 8 - 1, torch.tensor(labels)
    net = un.models.mlp(64, 128, 10, x=un.Tanh())
    step: nn.Module = Step(net)
    rank, processes = 0, 1
    if "WORLD_SIZE" in os.environ:  # torchrun says who we are
        dist.init_process_group("gloo")
        rank, processes = dist.get_rank(), dist.get_world_size()
        step = DistributedDataParallel(step)

    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for number in range(1, options.steps + 1):
        batch = torch.randint(len(x), (options.batch,))
        mine = batch[rank::processes]  # shares of equal size: the mean of the means is the mean
        loss = step(x[mine], y[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and number % 50 == 0:
            print(f"step {number}: loss {loss.item():.3f}")

    if rank == 0:
        un.save(net, options.out)
        right = net(observe={"x": x}, want="y", iterations=3)["y"].argmax(1) == y
        print(
            f"{processes} process{'es' * (processes > 1)}: {right.float().mean():.1%} of the training digits read right"
        )
    if processes > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
