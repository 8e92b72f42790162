# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A sparse block of transformers, compiled.

    for name in moira.torch.replace_blocks(model):
        print(name, "runs in Moira")
"""

import copy
import ctypes
import functools
import itertools
import threading
import weakref
from typing import Any, Dict, List, Mapping, Optional, cast

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from ._library import invalid
from .bundle import Bundle
from .compiler import compile, import_layer
from .session import Session
from .training import Residuals

# --- Programs ----------------------------------------------------------------

_programs: "weakref.WeakValueDictionary[Any, Bundle]" = (
    weakref.WeakValueDictionary())
_programs_lock = threading.Lock()


def _compiled(config: Mapping[str, Any], dtype: str, options) -> Bundle:
    """The program of a layer. Layers of one model share it: parameters belong
    to sessions."""
    text = import_layer(config, dtype=dtype, stacked=True, router_logits=True)
    key = (text, tuple(sorted(options.items())))
    with _programs_lock:
        bundle = _programs.get(key)
        if bundle is None:
            bundle = _programs[key] = compile(text, **options)
        return bundle


_DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
_FAMILIES = {"MixtralSparseMoeBlock": "mixtral", "OlmoeSparseMoeBlock": "olmoe",
             "Qwen3MoeSparseMoeBlock": "qwen3_moe"}
_ACTIVATIONS = {"SiLUActivation": "silu", "SiLU": "silu",
                "GELUActivation": "gelu", "GELU": "gelu", "ReLU": "relu"}


def _program_config(family, hidden, width, experts, top_k, normalize,
                    activation) -> Dict[str, Any]:
    """A config.json of one layer, as moira-import reads it."""
    return {"model_type": family, "num_hidden_layers": 1,
            "hidden_size": hidden, "intermediate_size": width,
            "moe_intermediate_size": width, "num_local_experts": experts,
            "num_experts": experts, "num_experts_per_tok": top_k,
            "norm_topk_prob": normalize, "hidden_act": activation}


def _config_of(config) -> Dict[str, Any]:
    """The same from a configuration of transformers."""
    def get(*names, default=None):
        for name in names:
            value = getattr(config, name, None)
            if value is not None:
                return value
        return default

    family = getattr(config, "model_type", None)
    if family not in _FAMILIES.values():
        raise invalid("expected a configuration of mixtral, olmoe or "
                      f"qwen3_moe, got {family or type(config).__name__}")
    width = (config.moe_intermediate_size if family == "qwen3_moe"
             else config.intermediate_size)
    return _program_config(
        family, config.hidden_size, width,
        get("num_local_experts", "num_experts"), config.num_experts_per_tok,
        get("norm_topk_prob", default=family == "mixtral"), config.hidden_act)


# --- Parameters of blocks ----------------------------------------------------

_ROUTER = "model.layers.0.mlp.gate.weight"
_GATE_UP = "model.layers.0.mlp.experts.gate_up_proj"
_DOWN = "model.layers.0.mlp.experts.down_proj"


class _Router(nn.Module):
    """Holds the router's weight under the name that transformers gives it, and
    shows the logits to hooks that record them."""

    def __init__(self, experts, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, hidden))

    def forward(self, logits):
        return _show(logits)


def _show(logits):
    # A router of transformers returns logits, weights and ids.
    return logits, None, None


class _Experts(nn.Module):
    """Holds the experts' weights under the names that transformers gives
    them."""

    def __init__(self, experts, hidden, width):
        super().__init__()
        self.gate_up_proj = nn.Parameter(
            torch.empty(experts, 2 * width, hidden))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, width))


class _Stacked:
    """Experts in two tensors, as transformers 5 holds them."""

    def tensors(self, module) -> List[torch.Tensor]:
        return [module.experts.gate_up_proj, module.experts.down_proj]

    def bind(self, session, tensors):
        session.bind(_GATE_UP, tensors[0])
        session.bind(_DOWN, tensors[1])

    def gradients(self, gate, up, down):
        return [torch.cat((gate, up), dim=1), down]


class _PerExpert:
    """Experts in a list of modules, as transformers 4 holds them."""

    def __init__(self, names):
        self.names = names

    def tensors(self, module) -> List[torch.Tensor]:
        return [getattr(expert, name).weight for name in self.names
                for expert in module.experts]

    def bind(self, session, tensors):
        count = len(tensors) // 3
        gate, up, down = (tensors[i * count:(i + 1) * count]
                          for i in range(3))
        session.bind(_GATE_UP, torch.cat(
            (torch.stack(gate), torch.stack(up)), dim=1))
        session.bind(_DOWN, torch.stack(down))

    def gradients(self, gate, up, down):
        return [g for all in (gate, up, down) for g in all.unbind(0)]


# --- The function ------------------------------------------------------------

# What a forward pass leaves lives as long as torch keeps a tensor for it among
# the saved ones: until the backward pass has run, longer with retain_graph, and
# not at all under checkpointing, where the forward pass runs again. The tensor
# holds a number by which the way back finds it.
_kept: "weakref.WeakValueDictionary[int, Residuals]" = (
    weakref.WeakValueDictionary())
_numbers = itertools.count(1)


def _keep(residuals) -> torch.Tensor:
    memory: Any = (ctypes.c_int64 * 1)(next(_numbers))
    memory.residuals = residuals
    _kept[memory[0]] = residuals
    return torch.frombuffer(memory, dtype=torch.int64)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, module, hidden, *tensors):
        (result, logits), residuals = module._session_for(tensors).forward(
            hidden, returns="torch")
        ctx.module = module
        ctx.save_for_backward(_keep(residuals))
        ctx.set_materialize_grads(False)  # None where nobody reads a result
        return result, logits

    @staticmethod
    @once_differentiable
    def backward(ctx, d_result, d_logits):
        marker, = ctx.saved_tensors
        residuals = _kept.get(int(marker))
        if residuals is None:
            raise invalid("expected what the forward pass left, got a copy of "
                          "a saved tensor: hooks on saved tensors may not "
                          "copy")
        gradients = residuals.session.backward(residuals, d_result, d_logits,
                                               returns="torch")
        of = gradients.parameters
        gate, up = of[_GATE_UP]
        experts = ctx.module._layout.gradients(gate, up, of[_DOWN])
        return (None, gradients.inputs[0], of[_ROUTER], *experts)


class MoE(nn.Module):
    """Takes the place of a sparse block of Mixtral, OLMoE or Qwen3-MoE.

    Its parameters are those of the block, under their names, and stay torch's:
    optimizers, checkpoints and `state_dict` see no difference. They are packed
    for the compiled code when they have changed since the last forward pass;
    what torch does not notice, such as a write to `parameter.data`, needs
    `refresh()`. Gradients of the input, the router and the experts flow as
    always, also with `retain_graph` and under `torch.utils.checkpoint`; second
    derivatives do not exist.

    `forward` takes hidden states `[..., hidden]` on the CPU, of the type of
    the parameters (float32, bfloat16 or float16), and returns hidden states of
    that shape. The router's logits go where transformers looks for them:
    recorded as the output of `gate` (transformers 5), or as a second result
    `[tokens, experts]` where the block was made of a list of experts
    (transformers 4).

    Any thread may call `forward`. Copies of the module have a session each.

    Args: those of `from_hf`.
    """

    _block_class = None

    def __init__(self, config: Mapping[str, Any], gate: nn.Module,
                 experts: nn.Module, *, returns_logits: bool = False,
                 jitter: float = 0.0, gradients: bool = True,
                 recompute: bool = False, threads: int = 0,
                 memory_limit: int = 0, layout=None,
                 compile_options: Optional[Mapping[str, Any]] = None):
        nn.Module.__init__(self)  # not that of a block's class, see _kind_of
        self.gate = gate
        self.experts = experts
        self.config = dict(config)
        self.returns_logits = returns_logits
        self.jitter = jitter
        self._layout = layout or _Stacked()
        self._program_options = dict(compile_options or {})
        if gradients:
            self._program_options.update(gradients=True, recompute=recompute)
        self._session_options = dict(threads=threads,
                                     memory_limit=memory_limit)
        self._forget_session()

    @classmethod
    def from_hf(cls, block_or_config, **options) -> "MoE":
        """Makes a module from a block of a model, whose parameters it takes
        over, or from a configuration, with new ones.

        Args:
            block_or_config: a MixtralSparseMoeBlock, OlmoeSparseMoeBlock or
                Qwen3MoeSparseMoeBlock, or a configuration of such a model.
            gradients: compile the way back; False compiles faster, and the
                module is for inference.
            recompute: keep less for the way back and compute it again.
            threads: 0: one per processor that this process may use.
            memory_limit: bytes of weights, workspace and results; 0: none.
            compile_options: more arguments of `moira.compile`.

        Raises:
            MoiraError: INVALID_ARGUMENT for another kind of block.
        """
        if isinstance(block_or_config, nn.Module):
            return _from_block(cls, block_or_config, options)
        config = _config_of(block_or_config)
        dtype = getattr(block_or_config, "dtype", None)
        gate = _Router(config["num_experts"], config["hidden_size"])
        experts = _Experts(config["num_experts"], config["hidden_size"],
                           config["intermediate_size"])
        std = getattr(block_or_config, "initializer_range", 0.02)
        options.setdefault(
            "jitter", getattr(block_or_config, "router_jitter_noise", 0.0))
        module = cls(config, gate, experts, **options)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.normal_(0.0, std)
        return module.to(dtype) if isinstance(dtype, torch.dtype) else module

    def extra_repr(self) -> str:
        c = self.config
        return (f"{c['model_type']}, experts={c['num_experts']}, "
                f"top_k={c['num_experts_per_tok']}, {self.dtype}")

    # --- Session -------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """That of the parameters."""
        return cast(torch.Tensor, self.gate.weight).dtype

    def _forget_session(self):
        self._session = None
        self._bound = None
        self._lock = threading.Lock()

    def __getstate__(self):
        state = self.__dict__.copy()
        for name in ("_session", "_bound", "_lock"):
            state.pop(name)
        return state

    def __setstate__(self, state):
        nn.Module.__setstate__(self, state)
        self._forget_session()

    def __reduce__(self):
        return _new, (self._block_class,), self.__getstate__()

    def __deepcopy__(self, memo):
        made = _new(self._block_class)
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return made

    @property
    def session(self) -> Optional[Session]:
        """The session that runs the module; None before the first forward
        pass."""
        return self._session

    def refresh(self) -> None:
        """Packs the parameters anew at the next forward pass."""
        with self._lock:
            self._bound = None

    def _session_for(self, tensors) -> Session:
        """The session, with `tensors` (router first) bound as they are now."""
        now = [_state(t) for t in tensors]
        with self._lock:
            if self._session is None or self._session_dtype != self.dtype:
                self._open()
            if self._bound != now:
                router, *experts = [t.detach() for t in tensors]
                self._session.bind(_ROUTER, router)
                self._layout.bind(self._session, experts)
                self._bound = now
            return self._session

    def _open(self):
        if self.dtype not in _DTYPES:
            raise invalid("expected parameters of float32, bfloat16 or "
                          f"float16, got {self.dtype}")
        bundle = _compiled(self.config, _DTYPES[self.dtype],
                           self._program_options)
        self._session = Session(bundle, copies="allow", **self._session_options)
        self._session_dtype = self.dtype
        self._bound = None

    # --- Forward -------------------------------------------------------------

    def forward(self, hidden_states: torch.Tensor):
        size = self.config["hidden_size"]
        if hidden_states.shape[-1:] != (size,):
            raise invalid(f"expected hidden states [..., {size}], got "
                          f"{list(hidden_states.shape)}")
        tensors = [self.gate.weight, *self._layout.tensors(self)]
        for name, tensor in (("hidden states", hidden_states),
                             ("parameters", tensors[-1])):
            if tensor.device.type != "cpu" or tensor.dtype != self.dtype:
                raise invalid(f"expected {name} on the cpu of {self.dtype}, "
                              f"got {tensor.dtype} on {tensor.device}")
        if self.training and self.jitter > 0:
            hidden_states = hidden_states * torch.empty_like(
                hidden_states).uniform_(1 - self.jitter, 1 + self.jitter)
        rows = hidden_states.reshape(-1, size)
        if torch.is_grad_enabled() and any(
                t.requires_grad for t in (rows, *tensors)):
            if not self._program_options.get("gradients"):
                raise invalid("expected a module made with gradients = True, "
                              "or torch.no_grad()")
            result, logits = _Function.apply(self, rows, *tensors)
        else:
            result, logits = self._session_for(tensors).invoke(
                rows, returns="torch")
        result = result.reshape(hidden_states.shape)
        if self.returns_logits:
            return result, logits
        # For hooks that record it.
        self.gate(logits)
        return result


def _state(tensor):
    """Changes when the tensor does."""
    try:
        version = tensor._version
    except RuntimeError:  # of torch.inference_mode: never written to
        version = -1
    return tensor.data_ptr(), version, tensor.dtype, tuple(tensor.shape)


# --- Blocks of transformers --------------------------------------------------


def _activation(module, name):
    activation = _ACTIVATIONS.get(type(module).__name__)
    if activation is None:
        raise invalid(f"{name}: expected an activation silu, gelu or relu, got "
                      f"{type(module).__name__}")
    return activation


@functools.lru_cache(maxsize=None)
def _kind_of(block_class):
    """MoE, as a subclass of a block's class too: where the block returns the
    logits itself, transformers 4 records them of modules of its class."""
    if block_class is None:
        return MoE
    return type("MoE", (MoE, block_class), {"_block_class": block_class,
                                            "__module__": __name__})


def _new(block_class):
    kind = _kind_of(block_class)
    return kind.__new__(kind)


def _shared(module):
    """A module with the same parameters and hooks, and attributes of its
    own."""
    made = copy.copy(module)
    made._parameters = dict(module._parameters)
    return made


def _from_block(cls, block, options):
    name = type(block).__name__
    family = _FAMILIES.get(name)
    if family is None:
        raise invalid(f"expected a block of {', '.join(_FAMILIES)}, got {name}")
    gate, experts = block.gate, block.experts
    options.setdefault("jitter", getattr(block, "jitter_noise", 0.0) or 0.0)
    normalize = family == "mixtral" or bool(
        getattr(gate, "norm_topk_prob", getattr(block, "norm_topk_prob",
                                                False)))
    top_k = getattr(gate, "top_k", None) or block.top_k
    count, hidden = gate.weight.shape
    if isinstance(experts, nn.ModuleList):
        names = (("w1", "w3", "w2") if hasattr(experts[0], "w1") else
                 ("gate_proj", "up_proj", "down_proj"))
        config = _program_config(
            family, hidden, getattr(experts[0], names[0]).weight.shape[0],
            count, top_k, normalize, _activation(experts[0].act_fn, name))
        module = _kind_of(type(block))(
            config, gate, experts, returns_logits=True,
            layout=_PerExpert(names), **options)
    else:
        config = _program_config(
            family, hidden, experts.down_proj.shape[2], count, top_k,
            normalize, _activation(experts.act_fn, name))
        # The recorder's hooks stand on the router: it stays the module that it
        # is, and only shows the logits. The block's own is left alone.
        gate = _shared(gate)
        gate.forward = _show
        module = cls(config, gate, experts, **options)
    # Names in the order that checkpoints of the block have.
    for child in [c for c in block._modules if c in module._modules]:
        module._modules[child] = module._modules.pop(child)
    return module.train(block.training)


def replace_blocks(model: nn.Module, **options) -> List[str]:
    """Replaces every sparse block that `MoE.from_hf` takes, in place.

    Args: those of `MoE.from_hf`.

    Returns:
        The names of the replaced modules.
    """
    found = [(name, module) for name, module in model.named_modules()
             if type(module).__name__ in _FAMILIES]
    for name, module in found:
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child,
                MoE.from_hf(module, **options))
    return [name for name, _ in found]
