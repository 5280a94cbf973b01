"""Assignment: the best one-to-one matchings of rows to columns, and which cells belong to any."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


class NoAssignment(ValueError):
    """Some rows have fewer columns between them than they are (Hall's theorem says that there always are such rows)."""

    def __init__(self, rows: list[int], columns: list[int]) -> None:
        self.rows, self.columns = rows, columns
        super().__init__(f"rows {rows} can only go to columns {columns}")


def best_assignment(scores: Float[Tensor, "n n"]) -> list[int]:
    """The column of each row in the assignment of the highest total score; -inf forbids a cell. O(n^3).

    By scipy where it is installed, else in plain Python.

    >>> best_assignment(torch.tensor([[9.0, 8.0], [7.0, 0.0]]))
    [1, 0]
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        return hungarian(scores.tolist())
    try:
        return linear_sum_assignment(scores.cpu().numpy(), maximize=True)[1].tolist()
    except ValueError:  # scipy says only that it is infeasible
        return hungarian(scores.tolist())


def hungarian(scores: list[list[float]]) -> list[int]:
    """The same in plain Python: rows are added one by one, each by a shortest augmenting path on reduced costs.

    >>> hungarian([[9.0, 8.0], [7.0, 0.0]])
    [1, 0]
    """
    n = len(scores)
    row_price, column_price = [0.0] * n, [0.0] * n
    owner = [-1] * n  # the row that has a column
    for start in range(n):
        # Dijkstra's algorithm from row `start` to a column without an owner, over the columns of others.
        distance, origin, done = [math.inf] * n, [-1] * n, [False] * n
        row, column, travelled = start, -1, 0.0
        visited = [start]
        while row >= 0:
            for j in range(n):
                if not done[j]:
                    through = travelled - scores[row][j] - row_price[row] - column_price[j]
                    if through < distance[j]:
                        distance[j], origin[j] = through, row
            column = min((j for j in range(n) if not done[j]), key=distance.__getitem__, default=-1)
            if column < 0 or distance[column] == math.inf:
                raise NoAssignment(sorted(visited), [j for j in range(n) if done[j]])
            travelled, done[column], row = distance[column], True, owner[column]
            visited.append(row)
        for j in range(n):
            if done[j] and j != column:
                row_price[owner[j]] += travelled - distance[j]
                column_price[j] -= travelled - distance[j]
        row_price[start] += travelled
        while column >= 0:  # hand the columns on along the path
            row = origin[column]
            owner[column] = row
            column = next((j for j in range(n) if owner[j] == row and j != column), -1)
    return [owner.index(row) for row in range(n)]


def best_assignments(scores: Float[Tensor, "n n"], count: int) -> list[tuple[float, list[int]]]:
    """Up to `count` assignments with their scores, best first: Murty's algorithm, O(count n^4).

    Those that differ from the best one are split by the first row in which they do; the best of each part is found
    under its constraints, and the best of these is next.

    >>> [columns for _, columns in best_assignments(torch.tensor([[9.0, 8.0], [7.0, 0.0]]), 5)]
    [[1, 0], [0, 1]]
    """
    n = len(scores)
    heap: list[tuple[float, int, list[int], Tensor, int]] = []

    def push(allowed: Tensor, fixed: int) -> None:
        try:
            columns = best_assignment(allowed)
        except NoAssignment:
            return
        total = float(scores[torch.arange(n), columns].sum())
        heapq.heappush(heap, (-total, len(seen), columns, allowed, fixed))
        seen.append(columns)

    seen: list[list[int]] = []
    push(scores, 0)
    found: list[tuple[float, list[int]]] = []
    while heap and len(found) < count:
        cost, _, columns, allowed, fixed = heapq.heappop(heap)
        found.append((-cost, columns))
        for row in range(fixed, n):  # the rows before this one stay as they are, this one goes elsewhere
            part = allowed.clone()
            part[row, columns[row]] = -math.inf
            push(part, row)
            allowed = allowed.clone()
            here = allowed[row, columns[row]].clone()
            allowed[row] = -math.inf
            allowed[row, columns[row]] = here
    return found


def in_some_assignment(
    allowed: Bool[Tensor, "batch n n"], columns: Int[Tensor, "batch n"]
) -> Bool[Tensor, "batch n n"]:
    """The allowed cells that belong to at least one assignment, given any one of them.

    Row i may take the column of row k in some assignment if the columns can be handed on in a circle: if row k can
    reach row i in the graph whose arcs lead from a row to the owners of the columns that it may have.

    >>> in_some_assignment(torch.tensor([[[True, True], [False, True]]]), torch.tensor([[0, 1]]))
    tensor([[[ True, False],
             [False,  True]]])
    """
    n = allowed.shape[1]
    of_owner = columns[:, None, :].expand_as(allowed)
    arcs = allowed.gather(2, of_owner)
    reach = arcs | torch.eye(n, dtype=torch.bool, device=allowed.device)
    for _ in range(max(1, n - 1).bit_length()):
        reach = reach.float() @ reach.float() > 0
    return torch.zeros_like(allowed).scatter(2, of_owner, arcs & reach.mT)
