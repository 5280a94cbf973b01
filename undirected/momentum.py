"""Momentum: each sweep begins a little further on in the direction in which the last ones went.

From images G of successive points, the next point is `G + beta (G - G before)`, where beta = k / (k + 3) grows with the
number k of sweeps that went well, and is zero again where the error turns against the motion (O'Donoghue and Candes,
2015) or a sweep was taken back. It needs no more memory than one image, and shortens the long way on which values still
change much, where no linear map describes a sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

LAG = 3  # how slowly the momentum grows


class Momentum:
    """The last image of each example, and how many sweeps went well since it began anew."""

    def __init__(self) -> None:
        self.image: Tensor | None = None
        self.count: Tensor | None = None

    def __call__(
        self, image: Float[Tensor, "batch n"], error: Float[Tensor, "batch n"], worse: Bool[Tensor, " batch"] | None
    ) -> Float[Tensor, "batch n"]:
        """The next point after an image with this error; `worse` are those whose sweep is taken back."""
        if self.image is None or self.count is None:
            self.image, self.count = image, image.new_zeros(len(image))
            return image
        step = image - self.image
        with torch.no_grad():
            against = torch.bmm(error[:, None], step[:, :, None])[:, 0, 0] < 0
            self.count = torch.where(against if worse is None else against | worse, 0, self.count + 1)
        self.image = image if worse is None else torch.where(worse[:, None], self.image, image)
        return torch.addcmul(image, (self.count / (self.count + LAG))[:, None], step)

    def rows(self, index: Int[Tensor, " kept"]) -> None:
        """Go on with these examples only."""
        if self.image is not None and self.count is not None:
            self.image, self.count = self.image[index], self.count[index]
