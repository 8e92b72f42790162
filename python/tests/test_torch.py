# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch in and out, and blocks of transformers replaced."""

import copy
import gc
import io
import logging
import pickle
import unittest
from unittest import mock
import warnings

import moira
import moira.torch as mt
import torch
import transformers
from moira import MoiraError
from support import BUNDLE, EXPECTED, python, resident, weights
from test_compile import program
from test_threads import together

logging.getLogger("transformers").setLevel(logging.ERROR)

SMALL = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=32, pad_token_id=0, bos_token_id=1,
             eos_token_id=2, attention_dropout=0.0,
             initializer_range=0.2, router_aux_loss_coef=0.05)


def config(family, **changes):
    """A tiny configuration; no size divides another."""
    if family == "mixtral":
        return transformers.MixtralConfig(**{
            **SMALL, "intermediate_size": 40, "num_local_experts": 5,
            "num_experts_per_tok": 2, "sliding_window": None, **changes})
    if family == "olmoe":
        return transformers.OlmoeConfig(**{
            **SMALL, "intermediate_size": 28, "num_experts": 7,
            "num_experts_per_tok": 3, "norm_topk_prob": False, **changes})
    return transformers.Qwen3MoeConfig(**{
        **SMALL, "intermediate_size": 40, "moe_intermediate_size": 20,
        "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": True,
        "mlp_only_layers": [], "head_dim": 6, **changes})


FAMILIES = ("mixtral", "olmoe", "qwen3_moe")


def models(family, dtype=torch.float32, gradients=True, **changes):
    """A model of transformers, and the same with its blocks replaced."""
    torch.manual_seed(7)
    ours = config(family, **changes)
    # The plain loop over experts, in the type of the model.
    ours._experts_implementation = "eager"
    theirs = transformers.AutoModelForCausalLM.from_config(ours).to(dtype)
    with torch.no_grad():
        for name, p in theirs.named_parameters():
            if "norm" not in name:  # routers far from ties
                p.normal_(0, 0.3)
    moved = copy.deepcopy(theirs)
    names = mt.replace_blocks(moved, gradients=gradients)
    assert names == ["model.layers.0.mlp", "model.layers.1.mlp"], names
    return theirs.eval(), moved.eval()


def batch(seed=0, shape=(3, 11)):
    return torch.randint(3, SMALL["vocab_size"], shape,
                         generator=torch.Generator().manual_seed(seed))


class Case(unittest.TestCase):
    def assertClose(self, got, wanted, tolerance, what=""):
        self.assertEqual(got.dtype, wanted.dtype, what)
        self.assertEqual(got.shape, wanted.shape, what)
        largest = wanted.abs().max().item()
        error = (got.float() - wanted.float()).abs().max().item()
        self.assertGreater(largest, 0, what)
        self.assertLessEqual(error, tolerance * largest, what)


class Arrays(Case):
    def setUp(self):
        self.session = moira.Bundle(BUNDLE).session()
        self.session.bind({k: torch.frombuffer(v, dtype=torch.float32)
                           .reshape(v.shape) for k, v in weights().items()})
        self.x = torch.eye(4)[[0, 3]]

    def test_values(self):
        y = self.session(self.x)
        self.assertIsInstance(y, torch.Tensor)
        self.assertEqual(y.tolist(), EXPECTED)
        y += 1
        grown = self.x.clone().requires_grad_()
        self.assertEqual(self.session(grown).tolist(), EXPECTED)
        self.assertEqual(self.session(torch.zeros(0, 4)).shape, (0, 4))

    def test_types(self):
        for dtype, type in (("f32", torch.float32), ("f64", torch.float64),
                            ("f16", torch.float16), ("bf16", torch.bfloat16),
                            ("i8", torch.int8), ("i32", torch.int32),
                            ("i64", torch.int64)):
            with self.subTest(dtype):
                session = moira.compile(program(dtype), opt_level=0).session()
                x = torch.tensor([1, -3, 5], dtype=type)
                y = session(x)
                self.assertEqual(y.dtype, type)
                self.assertEqual(y.tolist(), (x + x).tolist())
                shown = torch.from_dlpack(session(x, returns="moira"))
                self.assertEqual(shown.dtype, type)
                self.assertEqual(shown.tolist(), (x + x).tolist())
                self.assertEqual(session(x, returns="moira").tolist(),
                                 (x + x).tolist())
        session = moira.compile(program("i1"), opt_level=0).session()
        y = session(torch.tensor([True, False]))
        self.assertEqual((y.dtype, y.tolist()), (torch.bool, [True, False]))

    def test_layouts(self):
        wide = torch.zeros(2, 8)
        wide[:, ::2] = self.x
        for x in (wide[:, ::2], self.x.T.contiguous().T):
            with self.assertWarnsRegex(moira.CopyWarning, "its strides are"):
                self.assertEqual(self.session(x).tolist(), EXPECTED)
        out = torch.zeros(2, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertIs(self.session(self.x, out=[out]), out)
        self.assertEqual(out.tolist(), EXPECTED)
        for wrong, text in ((wide[:, ::2], "strides"),
                            (torch.zeros(2, 4, requires_grad=True),
                             "requires a gradient"),
                            (torch.zeros(2, 4, dtype=torch.int32), "i32")):
            with self.assertRaisesRegex(MoiraError, text):
                self.session(self.x, out=[wrong])
        for wrong, text in ((self.x.to(torch.complex64), "torch.complex64"),
                            (self.x.to_sparse(), "torch.sparse_coo"),
                            (self.x.to("meta"), "got one on meta")):
            with self.assertRaisesRegex(MoiraError, text):
                self.session(wrong)

    def test_lifetimes(self):
        y = self.session(self.x)
        shown = torch.from_dlpack(self.session(self.x, returns="moira"))
        part = y[1:]
        self.assertEqual(self.session.memory.results, 64)
        del y
        self.assertEqual(self.session.memory.results, 64)
        del shown
        self.assertEqual(self.session.memory.results, 32)
        self.session.close()
        self.assertEqual(part.tolist(), EXPECTED[1:])

    def test_end_of_the_interpreter(self):
        status, output = python(f"""
import moira, torch, sys
session = moira.Bundle({str(BUNDLE)!r}).session()
session.bind_random()
x = torch.zeros(3, 4)
kept = [session(x), torch.from_dlpack(session(x, returns="moira"))]
kept.append(kept)
sys.kept = kept
torch.kept = torch.from_dlpack(session(x, returns="moira"))
print("fine")
""")
        self.assertEqual((status, output), (0, "fine\n"))


class Models(Case):
    def compare(self, family, dtype, tolerance, **changes):
        theirs, ours = models(family, dtype, gradients=False, **changes)
        ids = batch()
        with torch.no_grad():
            wanted = theirs(ids, output_router_logits=True)
            got = ours(ids, output_router_logits=True)
        self.assertClose(got.logits, wanted.logits, tolerance)
        self.assertEqual(len(got.router_logits), 2)
        for a, b in zip(got.router_logits, wanted.router_logits):
            self.assertClose(a, b, tolerance)
        self.assertAlmostEqual(got.aux_loss.item(), wanted.aux_loss.item(),
                               delta=tolerance * 10)
        return theirs, ours

    def test_logits(self):
        for family in FAMILIES:
            with self.subTest(family):
                theirs, ours = self.compare(family, torch.float32, 1e-5)
                self.assertEqual(list(ours.state_dict()),
                                 list(theirs.state_dict()))

    def test_activations(self):
        for act in ("gelu", "relu"):
            with self.subTest(act):
                self.compare("mixtral", torch.float32, 1e-5, hidden_act=act)

    def test_narrow(self):
        # A tie of two experts may fall the other way where logits have eight
        # bits: values agree where ids do.
        for family in FAMILIES:
            theirs, _ = models(family, torch.bfloat16, gradients=False)
            block = theirs.model.layers[0].mlp
            moved = mt.MoE.from_hf(copy.deepcopy(block), gradients=False)
            x = torch.randn(1, 200, 24,
                            generator=torch.Generator().manual_seed(1)
                            ).to(torch.bfloat16)
            with torch.no_grad():
                wanted, got = block(x), moved(x)
                logits = block.gate(x)[0].float()
            top = torch.sort(logits, descending=True).values
            k = moved.config["num_experts_per_tok"]
            clear = (top[:, k - 1] - top[:, k]) > 0.05
            self.assertGreater(clear.sum().item(), 100)
            self.assertClose(got[0][clear], wanted[0][clear], 0.02, family)

    def test_generation(self):
        theirs, ours = models("mixtral", gradients=False)
        ids = batch(shape=(1, 5))
        wanted = theirs.generate(ids, max_new_tokens=8, do_sample=False)
        got = ours.generate(ids, max_new_tokens=8, do_sample=False)
        self.assertEqual(got.tolist(), wanted.tolist())


def train(model, ids):
    """A step forward and back: the loss."""
    model.zero_grad()
    result = model(ids, labels=ids, output_router_logits=True)
    result.loss.backward()
    return result.loss


class Gradients(Case):
    def assertSameGradients(self, ours, theirs, tolerance=1e-4):
        wanted = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            self.assertIsNotNone(parameter.grad, name)
            self.assertClose(parameter.grad, wanted[name].grad, tolerance,
                             name)

    def test_models(self):
        for family in FAMILIES:
            with self.subTest(family):
                theirs, ours = models(family)
                ids = batch()
                wanted, got = train(theirs, ids), train(ours, ids)
                self.assertAlmostEqual(got.item(), wanted.item(), places=5)
                self.assertSameGradients(ours, theirs)

    def test_recompute(self):
        theirs, ours = models("olmoe", gradients=False)
        for layer, other in zip(ours.model.layers, theirs.model.layers):
            layer.mlp = mt.MoE.from_hf(copy.deepcopy(other.mlp),
                                       recompute=True)
        ids = batch()
        train(theirs, ids), train(ours, ids)
        self.assertSameGradients(ours, theirs)

    def test_optimizer(self):
        theirs, ours = models("qwen3_moe")
        losses = []
        for model in (theirs, ours):
            model.train()
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
            losses.append([])
            for step in range(8):
                losses[-1].append(train(model, batch(step % 2)).item())
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
        for a, b in zip(*losses):
            self.assertAlmostEqual(a, b, delta=1e-3 * a)
        self.assertLess(losses[1][-1], 0.8 * losses[1][0])

    def test_checkpointing(self):
        for reentrant in (False, True):
            theirs, ours = models("mixtral")
            ids = batch()
            for model in theirs, ours:
                model.train()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FutureWarning)
                    model.gradient_checkpointing_enable(
                        {"use_reentrant": reentrant})
                train(model, ids)
            self.assertSameGradients(ours, theirs)
            self.assertEqual(len(mt._kept), 0)

    def test_bfloat16(self):
        theirs, ours = models("mixtral", torch.bfloat16)
        block = theirs.model.layers[0].mlp
        moved = ours.model.layers[0].mlp
        x = torch.randn(1, 64, 24).to(torch.bfloat16)
        for module in (block, moved):
            module(x).float().pow(2).sum().backward()
        for name, parameter in moved.named_parameters():
            wanted = block.get_parameter(name).grad.float()
            got = parameter.grad.float()
            error = (got - wanted).norm() / wanted.norm()
            self.assertLess(error.item(), 0.05, name)


class Blocks(Case):
    @classmethod
    def setUpClass(cls):
        # Keeps the program, which modules share, for all tests.
        cls.kept = mt.MoE.from_hf(config("mixtral"))
        cls.kept(torch.zeros(1, 24))

    @classmethod
    def tearDownClass(cls):
        del cls.kept

    def setUp(self):
        torch.manual_seed(3)
        self.config = config("mixtral")
        model = transformers.AutoModelForCausalLM.from_config(self.config)
        self.block = model.model.layers[0].mlp.eval()
        self.moved = mt.MoE.from_hf(copy.deepcopy(self.block))
        self.x = torch.randn(2, 9, 24)

    def gradients(self, module, x=None, weight=1.0):
        module.zero_grad()
        x = (self.x if x is None else x).clone().requires_grad_()
        (module(x).sin().sum() * weight).backward()
        return [x.grad] + [None if p.grad is None else p.grad.clone()
                           for p in module.parameters()]

    def assertSame(self, got, wanted, tolerance=1e-4):
        for a, b in zip(got, wanted):
            self.assertClose(a, b, tolerance)

    def test_input(self):
        self.assertSame(self.gradients(self.moved),
                        self.gradients(self.block))
        flat = self.moved(self.x.reshape(-1, 24))
        self.assertEqual(flat.shape, (18, 24))
        strided = self.x.transpose(0, 1)
        self.assertClose(self.moved(strided),
                         self.block(strided.contiguous()), 1e-5)

    def test_no_tokens(self):
        x = torch.zeros(2, 0, 24, requires_grad=True)
        y = self.moved(x)
        self.assertEqual(y.shape, (2, 0, 24))
        y.sum().backward()
        self.assertEqual(x.grad.shape, x.shape)
        for parameter in self.moved.parameters():
            self.assertEqual(parameter.grad.abs().max().item(), 0)

    def test_several_at_once(self):
        # The way back in another order than the way forth, and sums.
        xs = [torch.randn(1, n, 24) for n in (3, 9, 1)]
        for module in (self.block, self.moved):
            module.zero_grad()
            losses = [module(x).sin().sum() for x in xs]
            for i in (1, 2, 0):
                losses[i].backward()
        self.assertSame([p.grad for p in self.moved.parameters()],
                        [p.grad for p in self.block.parameters()])

    def test_retained(self):
        for module in (self.block, self.moved):
            module.zero_grad()
            loss = module(self.x).sin().sum()
            loss.backward(retain_graph=True)
            loss.backward()
            with self.assertRaisesRegex(RuntimeError, "second time"):
                loss.backward()
        self.assertSame([p.grad for p in self.moved.parameters()],
                        [p.grad for p in self.block.parameters()])

    def test_copied_residuals(self):
        with torch.autograd.graph.saved_tensors_hooks(torch.clone,
                                                      lambda t: t):
            loss = self.moved(self.x).sum()
        with self.assertRaisesRegex(MoiraError, "hooks on saved tensors may "
                                    "not copy"):
            loss.backward()

    def test_residuals_end(self):
        loss = self.moved(self.x).sum()
        self.assertEqual(len(mt._kept), 1)
        loss.backward()
        # Though the loss, and with it the graph, is still there.
        self.assertEqual(len(mt._kept), 0)
        other = self.moved(self.x).sum()
        self.assertEqual(len(mt._kept), 1)
        del other
        gc.collect()
        self.assertEqual(len(mt._kept), 0)
        with torch.no_grad():
            self.moved(self.x)
        self.assertEqual(len(mt._kept), 0)

    def test_frozen(self):
        for module in (self.block, self.moved):
            module.gate.weight.requires_grad_(False)
        got, wanted = self.gradients(self.moved), self.gradients(self.block)
        names = [name for name, _ in self.moved.named_parameters()]
        frozen = 1 + names.index("gate.weight")
        self.assertIsNone(got.pop(frozen))
        self.assertIsNone(wanted.pop(frozen))
        self.assertSame(got, wanted)

    def test_second_derivatives_are_refused(self):
        x = self.x.clone().requires_grad_()
        d, = torch.autograd.grad(self.moved(x).sin().sum(), x,
                                 create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "differentiate"):
            d.sum().backward()

    def test_changes_are_seen(self):
        with torch.no_grad():
            for module in (self.block, self.moved):
                module(self.x)
                module.experts.down_proj.mul_(-2)
                module.gate.weight.add_(0.5)
            self.assertClose(self.moved(self.x), self.block(self.x), 1e-5)
            state = {k: v * 0.5 for k, v in self.block.state_dict().items()}
            for module in (self.block, self.moved):
                module.load_state_dict(state)
            self.assertClose(self.moved(self.x), self.block(self.x), 1e-5)
            # Behind torch's back.
            for module in (self.block, self.moved):
                module.experts.down_proj.data.mul_(3)
            self.moved.refresh()
            self.assertClose(self.moved(self.x), self.block(self.x), 1e-5)

    def test_type_changes(self):
        self.moved(self.x)
        for module in (self.block, self.moved):
            module.bfloat16()
        x = self.x.bfloat16()
        self.assertClose(self.moved(x), self.block(x), 0.05)
        self.moved.float()
        self.assertEqual(self.moved(self.x).dtype, torch.float32)

    def test_compiled_model(self):
        # torch.compile leaves the block out of its graph.
        model = torch.nn.Sequential(self.moved, torch.nn.Tanh())
        x = self.x.clone().requires_grad_()
        y = torch.compile(model, backend="eager")(x)
        y.sum().backward()
        wanted = self.x.clone().requires_grad_()
        self.block(wanted).tanh().sum().backward()
        self.assertClose(x.grad, wanted.grad, 1e-4)

    def test_packed_once(self):
        with torch.no_grad():
            self.moved(self.x)
            with mock.patch.object(
                    moira.Session, "bind", side_effect=AssertionError):
                self.moved(self.x)

    def test_changed_between(self):
        loss = self.moved(self.x).sum()
        with torch.no_grad():
            self.moved.gate.weight.mul_(2)
            self.moved(self.x)
        with self.assertRaisesRegex(MoiraError, "expected the parameters that "
                                    "the forward step"):
            loss.backward()

    def test_copies(self):
        y = self.moved(self.x)
        file = io.BytesIO()
        pickle.dump(self.moved, file)
        file.seek(0)
        for other in (copy.deepcopy(self.moved), pickle.load(file)):
            self.assertIsNone(other.session)
            self.assertTrue(torch.equal(other(self.x), y))
            self.assertIsNot(other.session, self.moved.session)
            # Layers of one kind share a program.
            self.assertIs(other.session.bundle, self.moved.session.bundle)
            with torch.no_grad():
                other.gate.weight.zero_()
            self.assertTrue(torch.equal(self.moved(self.x), y))

    def test_block_is_left_alone(self):
        wanted = self.block(self.x)
        moved = mt.MoE.from_hf(self.block)
        self.assertIs(moved.gate.weight, self.block.gate.weight)
        self.assertClose(moved(self.x), wanted, 1e-5)
        self.assertTrue(torch.equal(self.block(self.x), wanted))

    def test_jitter(self):
        self.moved.jitter = 0.5
        self.moved.eval()
        self.assertTrue(torch.equal(self.moved(self.x), self.moved(self.x)))
        self.moved.train()
        x = self.x.clone()
        self.assertFalse(torch.equal(self.moved(x), self.moved(x)))
        self.assertTrue(torch.equal(x, self.x))

    def test_configuration(self):
        made = mt.MoE.from_hf(self.config)
        self.assertEqual(
            {n: tuple(p.shape) for n, p in made.named_parameters()},
            {n: tuple(p.shape) for n, p in self.block.named_parameters()})
        self.assertGreater(made.gate.weight.std().item(), 0.1)
        made.load_state_dict(self.block.state_dict())
        self.assertClose(made(self.x), self.block(self.x), 1e-5)
        self.assertIn("mixtral, experts=5, top_k=2", repr(made))

    def test_inference_mode(self):
        wanted = self.block(self.x)
        with torch.inference_mode():
            self.assertClose(self.moved(self.x), wanted, 1e-5)

    def test_threads(self):
        wanted = [self.gradients(self.block, self.x[:, :n + 1])[0]
                  for n in range(4)]

        def action(i):
            for _ in range(5):
                x = self.x[:, :i + 1].clone().requires_grad_()
                d, = torch.autograd.grad(self.moved(x).sin().sum(), x)
                self.assertClose(d, wanted[i], 1e-4)
        together(action, 4)

    def test_refused(self):
        other = copy.deepcopy(self.block)
        other.experts.act_fn = torch.nn.Tanh()
        for call, text in (
                (lambda: self.moved(torch.zeros(2, 3)),
                 r"expected hidden states \[..., 24\], got \[2, 3\]"),
                (lambda: self.moved(self.x.double()),
                 "expected hidden states on the cpu of torch.float32, got "
                 "torch.float64 on cpu"),
                (lambda: self.moved(self.x.to("meta")), "on meta"),
                (lambda: mt.MoE.from_hf(torch.nn.Linear(2, 2)),
                 "expected a block of MixtralSparseMoeBlock, .* got Linear"),
                (lambda: mt.MoE.from_hf(transformers.LlamaConfig()),
                 "expected a configuration of mixtral, olmoe or qwen3_moe, "
                 "got llama"),
                (lambda: mt.MoE.from_hf(other), "MixtralSparseMoeBlock: "
                 "expected an activation silu, gelu or relu, got Tanh"),
                (lambda: mt.MoE.from_hf(config("mixtral", hidden_act="tanh")),
                 None),
                (lambda: mt.MoE.from_hf(self.block, gradients=False)(self.x),
                 r"gradients = True, or torch.no_grad\(\)"),
                (lambda: copy.deepcopy(self.moved).double()(self.x.double()),
                 "expected parameters of float32, bfloat16 or float16, got "
                 "torch.float64")):
            if text is None:  # told when it is compiled
                module = call()
                with self.assertRaisesRegex(
                        MoiraError, "key 'hidden_act': expected silu"):
                    module(self.x)
                continue
            with self.subTest(text), self.assertRaisesRegex(MoiraError, text):
                call()

    def test_flat(self):
        self.moved = mt.MoE.from_hf(self.block, threads=1)
        optimizer = torch.optim.SGD(self.moved.parameters(), lr=1e-3)
        for i in range(700):
            if i == 200:
                before, peak = resident(), self.moved.session.memory.peak
            optimizer.zero_grad()
            self.moved(self.x).sum().backward()
            optimizer.step()
        self.assertEqual(self.moved.session.memory.peak, peak)
        self.assertLess(resident() - before, 4 << 20)


class OldExpert(torch.nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.w1 = torch.nn.Linear(hidden, width, bias=False)
        self.w2 = torch.nn.Linear(width, hidden, bias=False)
        self.w3 = torch.nn.Linear(hidden, width, bias=False)
        self.act_fn = torch.nn.SiLU()

    def forward(self, x):
        return self.w2(self.act_fn(self.w1(x)) * self.w3(x))


class MixtralSparseMoeBlock(torch.nn.Module):
    """As transformers 4 has it: a list of experts, logits as a result."""

    def __init__(self, hidden=12, width=20, experts=4):
        super().__init__()
        self.top_k, self.jitter_noise = 2, 0.0
        self.gate = torch.nn.Linear(hidden, experts, bias=False)
        self.experts = torch.nn.ModuleList(
            OldExpert(hidden, width) for _ in range(experts))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        logits = self.gate(rows)
        top, ids = torch.topk(logits.softmax(-1), self.top_k)
        top = top / top.sum(-1, keepdim=True)
        every = torch.stack([expert(rows) for expert in self.experts], 1)
        chosen = every.gather(1, ids[..., None].expand(-1, -1, x.shape[-1]))
        return (chosen * top[..., None]).sum(1).reshape(x.shape), logits


class OldBlocks(Case):
    def test_block(self):
        torch.manual_seed(5)
        block = MixtralSparseMoeBlock()
        moved = mt.MoE.from_hf(copy.deepcopy(block))
        self.assertEqual(list(moved.state_dict()), list(block.state_dict()))
        x = torch.randn(2, 7, 12)
        for module in (block, moved):
            y, logits = module(x)
            (y.sin().sum() + logits.pow(2).sum()).backward()
        self.assertClose(y, block(x)[0], 1e-5)
        self.assertClose(logits, block(x)[1], 1e-5)
        for name, parameter in moved.named_parameters():
            self.assertClose(parameter.grad, block.get_parameter(name).grad,
                             1e-4, name)
