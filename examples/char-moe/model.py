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
