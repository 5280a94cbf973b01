"""Anderson: extrapolate a fixed-point iteration from its last few steps, for each example by itself.

From points s and their images G(s), with errors e that vanish where s = G(s), the next point is the combination of
the images whose combined error is smallest: `G - sum_j gamma_j dG_j` with `gamma = argmin |e - sum_j gamma_j de_j|`.
For a linear map this is GMRES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


RIDGE = 10  # what is added to the normalised system, in units of the last place


class Anderson:
    """The last `depth` differences of images and of errors, and what follows from them."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.image: Tensor | None = None
        self.error: Tensor | None = None
        self.images: list[Tensor] = []
        self.errors: list[Tensor] = []
        self.gram: Tensor | None = None  # the errors' inner products
        self.fresh: Tensor | None = None  # examples whose last step is to be forgotten
        #: How much of the error is left if the map is linear, as a share of it: 1 where nothing is known.
        self.left: Tensor | None = None

    def __call__(self, image: Float[Tensor, "batch n"], error: Float[Tensor, "batch m"]) -> Float[Tensor, "batch n"]:
        """The next point. Coefficients are not differentiated: they multiply errors, which vanish."""
        error = error.detach()
        if self.image is not None and self.error is not None:
            self._append(image - self.image, error - self.error)
        self.image, self.error, self.fresh = image, error, None
        if not self.errors:
            self.left = torch.ones(len(error), dtype=torch.float64, device=error.device)
            return image
        assert self.gram is not None
        with torch.no_grad():
            tiny = torch.finfo(torch.float64).tiny
            right = torch.stack([_dot(each, error) for each in self.errors], 1).double()
            size = self.gram.diagonal(dim1=1, dim2=2).sqrt().clamp_min(tiny)
            ridge = RIDGE * torch.finfo(error.dtype).eps * torch.eye(len(self.errors), device=error.device).double()
            matrix = self.gram / size[:, :, None] / size[:, None, :] + ridge
            gamma = torch.linalg.solve_ex(matrix, right / size)[0] / size
            gamma = gamma.nan_to_num(0.0, 0.0, 0.0)
            explained = (gamma * right).sum(1) / _dot(error, error).double().clamp_min(tiny)
            self.left = (1 - explained).clamp_min(0).sqrt()
            gamma = gamma.to(error.dtype)
        for j, each in enumerate(self.images):
            image = torch.addcmul(image, gamma[:, j, None], each, value=-1)
        return image

    @torch.no_grad()
    def _append(self, image: Tensor, error: Tensor) -> None:
        if self.fresh is not None:
            image, error = image * ~self.fresh[:, None], error * ~self.fresh[:, None]
        if len(self.errors) == self.depth:
            self.images, self.errors = self.images[1:], self.errors[1:]
            self.gram = None if self.gram is None else self.gram[:, 1:, 1:]
        self.images.append(image)
        self.errors.append(error)
        new = torch.stack([_dot(each, error) for each in self.errors], 1).double()
        n = len(self.errors)
        gram = new.new_zeros(len(new), n, n)
        if n > 1 and self.gram is not None:
            gram[:, : n - 1, : n - 1] = self.gram
        gram[:, -1], gram[:, :, -1] = new, new
        self.gram = gram

    @torch.no_grad()
    def forget(self, examples: Bool[Tensor, " batch"]) -> None:
        """Start anew for these."""
        keep = ~examples
        self.images = [each * keep[:, None] for each in self.images]
        self.errors = [each * keep[:, None] for each in self.errors]
        self.gram = None if self.gram is None else self.gram * keep[:, None, None]
        self.fresh = examples

    def rows(self, index: Int[Tensor, " kept"]) -> None:
        """Go on with these examples only."""
        self.images = [each[index] for each in self.images]
        self.errors = [each[index] for each in self.errors]
        self.gram, self.fresh = _pick(self.gram, index), _pick(self.fresh, index)
        self.image, self.error = _pick(self.image, index), _pick(self.error, index)
        self.left = _pick(self.left, index)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products of rows, without a product in memory."""
    return torch.bmm(a[:, None], b[:, :, None])[:, 0, 0]


def _pick(tensor: Tensor | None, index: Tensor) -> Tensor | None:
    return None if tensor is None else tensor[index]
