#!/usr/bin/env python3
# Part of the Moira project, under the Apache License v2.0 with LLVM
# Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The model of char-moe.mlir in PyTorch, as the reference for its training.

Run by hand, with torch and safetensors installed; README.md has the commands.
The losses of the committed run are in curve-pytorch.csv.
"""

import argparse
import csv
import math
import re
import time

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

LAYERS, EXPERTS, CHOICES, WIDTH, HEADS, PLACES = 4, 8, 2, 96, 4, 64


class CharMoE:
    """Functions of a dictionary of parameters, named as in the checkpoint."""

    def __init__(self, path):
        self.p = {name: tensor.requires_grad_()
                  for name, tensor in load_file(path).items()}

    def norm(self, x, name):
        scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)
        return x * scale * self.p[name]

    def attention(self, x, name):
        batch, places, _ = x.shape

        def project(which):
            rows = x @ self.p[f"{name}.{which}_proj.weight"].T
            return rows.view(batch, places, HEADS, -1).transpose(1, 2)

        q, k, v = project("q"), project("k"), project("v")
        scores = (q @ k.transpose(2, 3)) / math.sqrt(WIDTH // HEADS)
        later = torch.ones(places, places, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
        mixed = torch.softmax(scores, -1) @ v
        rows = mixed.transpose(1, 2).reshape(batch, places, WIDTH)
        return rows @ self.p[f"{name}.o_proj.weight"].T

    def moe(self, x, name):
        rows = x.reshape(-1, WIDTH)
        scores = torch.softmax(rows @ self.p[f"{name}.router.weight"].T, -1)
        weights, ids = scores.topk(CHOICES, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        loads = torch.bincount(ids.flatten(), minlength=EXPERTS)
        balance = EXPERTS * (scores.sum(0) * loads).sum() / (
            loads.sum() * rows.shape[0])
        y = torch.zeros_like(rows)
        for expert in range(EXPERTS):
            one = f"{name}.experts.{expert}"
            token, choice = (ids == expert).nonzero(as_tuple=True)
            taken = rows[token]
            hidden = F.silu(taken @ self.p[f"{one}.gate_proj.weight"].T) * (
                taken @ self.p[f"{one}.up_proj.weight"].T)
            out = hidden @ self.p[f"{one}.down_proj.weight"].T
            y = y.index_add(0, token, out * weights[token, choice, None])
        return y.view_as(x), balance, loads

    def loss(self, tokens, targets):
        x = self.p["embedding.weight"][tokens] + self.p["positions.weight"]
        balances, loads = 0, []
        for layer in range(LAYERS):
            name = f"layers.{layer}"
            x = x + self.attention(self.norm(x, f"{name}.attention_norm.weight"),
                                   f"{name}.attention")
            y, balance, load = self.moe(self.norm(x, f"{name}.moe_norm.weight"),
                                        f"{name}.moe")
            x = x + y
            balances = balances + balance
            loads.append(load)
        logits = self.norm(x, "norm.weight") @ self.p["head.weight"].T
        entropy = F.cross_entropy(logits.flatten(0, 1),
                                  targets.flatten().long())
        return entropy + 0.01 * balances, entropy, balances, loads


MASK = (1 << 64) - 1


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def windows(text, seed, step, batch):
    """The bytes and next bytes of a batch, as moira-train takes them."""
    rows = []
    for row in range(batch):
        counter = (step * batch + row) * 0x9E3779B97F4A7C15
        begin = mix((mix(seed) + counter) & MASK) % (len(text) - PLACES)
        rows.append(numpy.frombuffer(text[begin:begin + PLACES + 1],
                                     dtype=numpy.uint8))
    rows = torch.from_numpy(numpy.stack(rows).astype(numpy.int64))
    return rows[:, :-1], rows[:, 1:]


def evaluate(model, text, first, batch, batches):
    """The mean loss of the end of the text, from byte `first` on, in sequences
    that follow each other, as moira-train evaluates it."""
    count = min((len(text) - first - 1) // PLACES, batches * batch)
    total = 0.0
    for begin in range(0, count, batch):
        rows = [numpy.frombuffer(text, dtype=numpy.uint8, count=PLACES + 1,
                                 offset=first + row * PLACES)
                for row in range(begin, min(begin + batch, count))]
        rows = torch.from_numpy(numpy.stack(rows).astype(numpy.int64))
        with torch.no_grad():
            loss = model.loss(rows[:, :-1], rows[:, 1:])[0]
        total += loss.item() * len(rows)
    return total / count


def write_fingerprints(model, path):
    """Of each gradient, experts put together, its norm and its product with a
    vector of the numbers -5..5: enough to compare by, and small."""
    stacks = {}
    for name, parameter in model.p.items():
        grad = parameter.grad
        grad = torch.zeros_like(parameter) if grad is None else grad
        name = re.sub(r"experts\.\d+\.", "experts.{}.", name)
        stacks.setdefault(name, []).append(grad.flatten().double())
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("parameter", "norm", "product"))
        for name, parts in stacks.items():
            grad = torch.cat(parts)
            numbers = torch.arange(len(grad)) * 7 % 11 - 5
            writer.writerow((name, f"{grad.norm().item():.9g}",
                             f"{(grad @ numbers.double()).item():.9g}"))


def add_training_options(parser):
    parser.add_argument("text", nargs="+", help="text files, put together")
    parser.add_argument("--weights", required=True, help="what init.py wrote")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_training_options(parser)
    parser.add_argument("--eval-share", type=float, default=0.0,
                        help="evaluate this share, the end of the text, after "
                             "the last step, and do not train on it")
    parser.add_argument("--eval-batches", type=int, default=8)
    parser.add_argument("--curve", help="write step and loss here, as CSV")
    parser.add_argument("--gradients", help="write those of step 0 here")
    parser.add_argument("--fingerprints",
                        help="write numbers to know those of step 0 by, as CSV")
    options = parser.parse_args()

    text = b"".join(open(path, "rb").read() for path in options.text)
    trained = len(text) - int(options.eval_share * len(text))
    model = CharMoE(options.weights)
    parameters = list(model.p.values())
    optimizer = torch.optim.AdamW(parameters, lr=options.lr,
                                  weight_decay=options.weight_decay)
    rows, begin = [], time.time()
    for step in range(options.steps):
        tokens, targets = windows(text[:trained], options.seed, step,
                                  options.batch)
        loss, entropy, balance, _ = model.loss(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        if step == 0 and options.gradients:
            save_file({name: torch.zeros_like(p) if p.grad is None else p.grad
                       for name, p in model.p.items()}, options.gradients)
        if step == 0 and options.fingerprints:
            write_fingerprints(model, options.fingerprints)
        norm = torch.nn.utils.clip_grad_norm_(parameters, options.clip)
        optimizer.step()
        rows.append((step, loss.item(), entropy.item(), balance.item(),
                     norm.item()))
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.6f}, "
                  f"{time.time() - begin:.1f} s", flush=True)
    if trained < len(text):
        loss = evaluate(model, text, trained, options.batch,
                        options.eval_batches)
        print(f"evaluation: loss {loss:.6f}", flush=True)
    if options.curve:
        with open(options.curve, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("step", "loss", "entropy", "balance", "norm"))
            writer.writerows((step, *(f"{value:.7g}" for value in values))
                             for step, *values in rows)


if __name__ == "__main__":
    main()
