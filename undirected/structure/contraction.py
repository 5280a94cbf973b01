"""Contraction: the numba kernel of `arborescence`, one sentence after the other, O(n^2) each.

Imported only where numba is. A path is grown along best arcs, from word to head. Where it bites its own tail, the cycle
becomes one node: the best arcs into it are the elementwise maximum of its members' (after subtracting the arc that each
would give up), so every contraction is a few passes over rows of length n + 1. Where it meets what hangs on the root,
all of it hangs on the root.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def contract(scores, exists, single_root, heads):
    """Write the best heads of a batch, -1 for padding. False if one has no tree, or scores that are no numbers."""
    batch, rows, n = scores.shape
    into = np.empty((rows, rows))  # [node's row, tail]: the score of the best arc from the tail into the node
    enters = np.empty((rows, rows), np.int32)  # and the word of the node that it enters
    found = True
    for b in range(batch):
        if not (_greedy(scores[b], exists[b], single_root, heads[b])):
            for word in range(n):
                for tail in range(rows):
                    into[word + 1, tail] = scores[b, tail, word]
                    enters[word + 1, tail] = word + 1
                into[word + 1, word + 1] = -np.inf
            found &= _grow(into, enters, exists[b], single_root, heads[b])
        for word in range(n):
            for tail in range(rows):
                found &= scores[b, tail, word] < np.inf or tail == word + 1  # false for NaN too
    return found


@njit(cache=True, nogil=True)
def _greedy(scores, exists, single_root, heads):
    """Every word's best head. True if that is a tree, which is then the best."""
    rows, n = scores.shape
    best = np.full(n, -np.inf)
    heads[:] = -1
    for tail in range(rows):
        for word in range(n):
            if scores[tail, word] > best[word] and tail != word + 1:
                best[word] = scores[tail, word]
                heads[word] = tail
    roots = 0
    seen = np.zeros(rows, np.int32)
    for word in range(n):
        if not exists[word]:
            heads[word] = -1
            continue
        if heads[word] < 0:
            return False
        roots += heads[word] == 0
        node = word + 1
        while node > 0 and seen[node] == 0:
            seen[node] = word + 1
            node = heads[node - 1]
        if node > 0 and seen[node] == word + 1:
            return False
    return roots <= 1 or not single_root


@njit(cache=True, nogil=True)
def _grow(into, enters, exists, single_root, heads):
    rows = into.shape[0]
    nodes = 2 * rows  # words are nodes 1 to n, contracted cycles come after
    node_of = np.zeros(rows, np.int32)  # the node that a word is part of; 0 for what hangs on the root
    row = np.arange(nodes)
    inside = np.zeros(nodes, np.int32)  # the node that a node was contracted into
    arc_tail = np.zeros(nodes, np.int32)
    arc_word = np.zeros(nodes, np.int32)
    arc_score = np.zeros(nodes)
    place = np.full(nodes, -1, np.int32)  # where on the path a node is
    path = np.empty(rows, np.int32)
    for word in range(1, rows):
        node_of[word] = word if exists[word - 1] else 0
    following = rows
    root_taken = False
    for start in range(1, rows):
        if node_of[start] == 0:
            continue
        path[0], place[node_of[start]], length = node_of[start], 0, 1
        while True:
            node = path[length - 1]
            r = row[node]
            tail, score = -1, -np.inf
            for u in range(1 if single_root else 0, rows):
                if into[r, u] > score and node_of[u] != node:
                    tail, score = u, into[r, u]
            if tail < 0 and single_root and not root_taken and into[r, 0] > -np.inf:
                tail, score, root_taken = 0, into[r, 0], True
            if tail < 0:
                return False
            arc_tail[node], arc_word[node], arc_score[node] = tail, enters[r, tail], score
            other = node_of[tail]
            if other == 0:
                break
            if place[other] < 0:
                path[length], place[other] = other, length
                length += 1
                continue
            first = place[other]
            for u in range(rows):
                into[r, u] -= score
            for k in range(first, length - 1):
                member = path[k]
                m, loss = row[member], arc_score[member]
                for u in range(rows):
                    if into[m, u] - loss > into[r, u]:
                        into[r, u] = into[m, u] - loss
                        enters[r, u] = enters[m, u]
            for k in range(first, length):
                inside[path[k]] = following
            for word in range(1, rows):
                if node_of[word] > 0 and inside[node_of[word]] == following:
                    node_of[word] = following
            row[following], path[first], place[following] = r, following, first
            length = first + 1
            following += 1
        for word in range(1, rows):  # the whole path hangs on the root now
            if place[node_of[word]] >= 0:
                node_of[word] = 0
    # From the outermost node inwards: the arc into a node is the arc of all nodes around the word that it enters.
    settled = np.zeros(nodes, np.bool_)
    for node in range(following - 1, 0, -1):
        if settled[node] or (node < rows and not exists[node - 1]):
            continue
        heads[arc_word[node] - 1] = arc_tail[node]
        inner = arc_word[node]
        while inner != node:
            settled[inner] = True
            inner = inside[inner]
    return True
