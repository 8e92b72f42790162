# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose blocks were replaced, trained, narrowed, saved and loaded."""

import copy
import tempfile
import unittest

import moira.torch as mt
import torch
import transformers
from test_threads import together
from test_torch import FAMILIES, batch, models, train


def losses(model, steps, optimizer, clip=1.0):
    """Trains on two batches in turn: the loss of each step."""
    model.train()
    values = []
    for step in range(steps):
        loss = train(model, batch(step % 2))
        values.append(loss.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return values


class Training(unittest.TestCase):
    def test_families(self):
        """The same losses as without Moira, step by step."""
        for family in FAMILIES:
            with self.subTest(family):
                theirs, ours = models(family)
                wanted, got = (
                    losses(model, 4, torch.optim.AdamW(model.parameters(),
                                                       lr=3e-3))
                    for model in (theirs, ours))
                for a, b in zip(wanted, got):
                    self.assertAlmostEqual(a, b, delta=1e-3 * a)
                # Of both batches.
                self.assertLess(sum(got[2:]), sum(got[:2]))

    def test_narrow(self):
        """In bf16 whole steps differ by its rounding, and learn as much."""
        for family in FAMILIES:
            with self.subTest(family):
                theirs, ours = models(family, torch.bfloat16)
                wanted, got = (
                    losses(model, 8, torch.optim.SGD(model.parameters(),
                                                     lr=0.3))
                    for model in (theirs, ours))
                self.assertEqual(ours.model.layers[0].mlp.dtype,
                                 torch.bfloat16)
                for a, b in zip(wanted[:2], got[:2]):
                    self.assertAlmostEqual(a, b, delta=0.05 * a)
                self.assertLess(sum(got[6:]), sum(got[:2]))
                self.assertLess(sum(got[6:]), 1.1 * sum(wanted[6:]))

    def test_updates_of_frozen_experts(self):
        theirs, ours = models("mixtral")
        for model in (theirs, ours):
            for name, parameter in model.named_parameters():
                parameter.requires_grad_("experts" not in name)
        before = ours.model.layers[0].mlp.experts.down_proj.clone()
        wanted, got = (
            losses(model, 3, torch.optim.SGD(
                [p for p in model.parameters() if p.requires_grad], lr=0.1))
            for model in (theirs, ours))
        for a, b in zip(wanted, got):
            self.assertAlmostEqual(a, b, delta=1e-4 * a)
        self.assertTrue(torch.equal(
            before, ours.model.layers[0].mlp.experts.down_proj))

    def test_accumulated_gradients(self):
        """Two backward passes add up, as torch's own do."""
        theirs, ours = models("olmoe")
        for model in (theirs, ours):
            for seed in (0, 1):
                ids = batch(seed)
                model(ids, labels=ids).loss.backward()
        wanted = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            error = (parameter.grad - wanted[name].grad).norm()
            self.assertLess(error.item(),
                            1e-4 * wanted[name].grad.norm().item(), name)

    def test_threads(self):
        """Passes forward and back of one model on several threads."""
        _, ours = models("qwen3_moe")
        inputs = [batch(seed, (1, 9)) for seed in range(6)]

        def gradient(i):
            embedded = ours.model.embed_tokens(inputs[i]).detach()
            embedded.requires_grad_()
            loss = ours(inputs_embeds=embedded).logits.square().mean()
            return torch.autograd.grad(loss, embedded)[0]

        alone = [gradient(i) for i in range(len(inputs))]
        found = [None] * len(inputs)

        def work(i):
            found[i] = gradient(i)

        together(work, len(inputs))
        for a, b in zip(alone, found):
            self.assertTrue(torch.equal(a, b))


class Conversions(unittest.TestCase):
    def test_half(self):
        """model.half(): every row whose experts are clear agrees."""
        for family in FAMILIES:
            with self.subTest(family):
                theirs, ours = models(family)
                theirs.half(), ours.half()
                block = theirs.model.layers[0].mlp
                moved = ours.model.layers[0].mlp
                self.assertEqual(moved.dtype, torch.float16)
                x = torch.randn(1, 200, 24, generator=torch.Generator()
                                .manual_seed(1)).half()
                one, other = (x.clone().requires_grad_() for _ in range(2))
                wanted, got = block(one), moved(other)
                self.assertEqual(got.dtype, torch.float16)
                with torch.no_grad():
                    logits = block.gate(x)[0].float()
                top = torch.sort(logits, descending=True).values
                k = moved.config["num_experts_per_tok"]
                clear = (top[:, k - 1] - top[:, k]) > 0.02
                self.assertGreater(clear.sum().item(), 100)
                error = (wanted - got)[0][clear].float().norm()
                self.assertLess(error.item(), 0.01 * wanted[0][clear].float()
                                .norm().item())
                weights = clear.reshape(1, -1, 1).half()
                (wanted * weights).sum().backward()
                (got * weights).sum().backward()
                error = (one.grad - other.grad)[0][clear].float().norm()
                self.assertLess(error.item(), 0.02 * one.grad[0][clear]
                                .float().norm().item())

    def test_state_dict(self):
        """Goes both ways between a model and the one with other blocks."""
        for family in FAMILIES:
            with self.subTest(family):
                theirs, ours = models(family, gradients=False)
                ids = batch()
                changed = {k: v * 0.9 for k, v in theirs.state_dict().items()}
                ours.load_state_dict(changed, strict=True)
                theirs.load_state_dict(ours.state_dict(), strict=True)
                for k, v in theirs.state_dict().items():
                    self.assertTrue(torch.equal(v, changed[k]), k)
                with torch.no_grad():
                    a, b = theirs(ids).logits, ours(ids).logits
                self.assertTrue(torch.allclose(a, b, atol=1e-4), family)

    def test_saved_as_pretrained(self):
        """What is saved is a checkpoint of transformers."""
        theirs, ours = models("olmoe", gradients=False)
        ids = batch()
        with tempfile.TemporaryDirectory() as folder:
            ours.save_pretrained(folder)
            loaded = transformers.AutoModelForCausalLM.from_pretrained(
                folder).eval()
        with torch.no_grad():
            wanted = loaded(ids).logits
            # Another loop over experts, with other roundings.
            self.assertTrue(torch.allclose(wanted, theirs(ids).logits,
                                           atol=1e-4))
            mt.replace_blocks(loaded, gradients=False)
            self.assertTrue(torch.equal(loaded(ids).logits,
                                        ours(ids).logits))

    def test_deepcopy_of_a_model(self):
        _, ours = models("mixtral")
        ids = batch()
        wanted = ours(ids).logits
        other = copy.deepcopy(ours)
        with torch.no_grad():
            for parameter in ours.parameters():
                parameter.zero_()
        self.assertTrue(torch.equal(other(ids).logits, wanted))

    def test_no_tokens(self):
        for family in FAMILIES:
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(f"{family} {dtype}"):
                    _, ours = models(family, dtype)
                    block = ours.model.layers[0].mlp
                    x = torch.zeros(2, 0, 24, dtype=dtype).requires_grad_()
                    y = block(x)
                    self.assertEqual(y.shape, (2, 0, 24))
                    y.sum().backward()
                    self.assertEqual(x.grad.shape, x.shape)
                    self.assertEqual(
                        block.experts.down_proj.grad.abs().sum().item(), 0)
