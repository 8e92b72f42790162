#!/usr/bin/env python3
# Part of the Moira project, under the Apache License v2.0 with LLVM
# Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far two PyTorch runs of char-moe come apart that differ by rounding.

Trains the model of model.py twice, side by side: once from the given weights,
once from weights of which half are one part in 2^23 larger, about the last place
of an f32. Of each step it writes both losses, the smallest distance between a
token's second and third score in the first run (what rounding must exceed to send
the token elsewhere), and how many choices of the two runs differ. Of the first
step where any does it prints the distances of those tokens.

Run by hand, with torch, numpy and safetensors installed; README.md has the
command.
"""

import argparse
import csv
import time

import torch

import model as reference


class Watched(reference.CharMoE):
    """Remembers the scores of every router of a step."""

    def moe(self, x, name):
        rows = x.reshape(-1, reference.WIDTH)
        with torch.no_grad():
            scores = torch.softmax(
                rows @ self.p[f"{name}.router.weight"].T, -1)
            self.seen.append(scores)
        return super().moe(x, name)

    def loss(self, tokens, targets):
        self.seen = []
        return super().loss(tokens, targets)


def margins(scores):
    """Per token the distance of its second score from its third."""
    best = scores.topk(reference.CHOICES + 1, -1).values
    return best[:, -2] - best[:, -1]


def choices(scores):
    return scores.topk(reference.CHOICES, -1).indices.sort(-1).values


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    reference.add_training_options(parser)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--csv", required=True, help="write the steps here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    text = b"".join(open(path, "rb").read() for path in options.text)
    models = [Watched(options.weights), Watched(options.weights)]
    noise = torch.Generator().manual_seed(options.seed)
    with torch.no_grad():
        for parameter in models[1].p.values():
            parameter.mul_(1 + 2.0 ** -23 * torch.randint(
                0, 2, parameter.shape, generator=noise))
    optimizers = [
        torch.optim.AdamW(list(m.p.values()), lr=options.lr,
                          weight_decay=options.weight_decay) for m in models]
    apart, begin = False, time.time()
    with open(options.csv, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("step", "loss", "loss_perturbed", "smallest_margin",
                         "choices_differ"))
        for step in range(options.steps):
            tokens, targets = reference.windows(text, options.seed, step,
                                                options.batch)
            losses = []
            for one, optimizer in zip(models, optimizers):
                loss = one.loss(tokens, targets)[0]
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(list(one.p.values()),
                                               options.clip)
                optimizer.step()
                losses.append(loss.item())
            smallest, differing = 1.0, 0
            for layer, pair in enumerate(zip(*(m.seen for m in models))):
                first, second = (margins(scores) for scores in pair)
                smallest = min(smallest, first.min().item())
                changed = (choices(pair[0]) != choices(pair[1])).any(-1)
                differing += int(changed.sum())
                if not apart:
                    for row in changed.nonzero().flatten().tolist():
                        print(f"step {step}, layer {layer}, row {row}: second "
                              f"score beyond third by {first[row]:.3g} and "
                              f"{second[row]:.3g}", flush=True)
            apart = apart or differing > 0
            writer.writerow((step, *(f"{loss:.7g}" for loss in losses),
                             f"{smallest:.3g}", differing))
            file.flush()
            if step % 100 == 0:
                print(f"step {step}: losses {losses[0]:.6f} and "
                      f"{losses[1]:.6f}, {time.time() - begin:.0f} s",
                      flush=True)


if __name__ == "__main__":
    main()
