# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The programs that are checked and timed on a GPU."""

import json
import os
import re
import subprocess

#: Shapes of SonicMoE's figure of forward throughput: tokens, features, hidden
#: features, experts, experts per token.
SONIC = {
    "1.4B-n256": (40960, 768, 256, 128, 8),
    "1.4B-n512": (40960, 768, 512, 64, 4),
    "1.4B-n1024": (40960, 768, 1024, 32, 2),
    "7B-n256": (24576, 1536, 256, 128, 8),
    "7B-n512": (24576, 1536, 512, 64, 4),
    "7B-n1024": (24576, 1536, 1024, 32, 2),
    "30B-n256": (32768, 4096, 256, 256, 16),
    "30B-n512": (32768, 4096, 512, 128, 8),
    "30B-n1024": (32768, 4096, 1024, 64, 4),
    "120B-n512": (32768, 4096, 512, 256, 16),
    "120B-n1024": (32768, 4096, 1024, 128, 8),
    "120B-n2048": (32768, 4096, 2048, 64, 4),
}
QWEN3 = {"qwen3-30B": (32768, 2048, 768, 128, 8)}


def layer(build, folder, name, shape, dtype="bfloat16"):
    """An OLMoE layer whose weights are inputs, so that they can be made on the
    device."""
    _, features, hidden, experts, top_k = shape
    kind = ("Qwen3MoeForCausalLM", "qwen3_moe") if "qwen3" in name else (
        "OlmoeForCausalLM", "olmoe")
    config = {"architectures": [kind[0]], "model_type": kind[1],
              "num_hidden_layers": 1, "hidden_size": features,
              "intermediate_size": hidden, "moe_intermediate_size": hidden,
              "num_experts": experts, "num_experts_per_tok": top_k,
              "norm_topk_prob": "qwen3" in name, "decoder_sparse_step": 1,
              "mlp_only_layers": [], "hidden_act": "silu", "dtype": dtype}
    source = os.path.join(folder, name + ".config")
    os.makedirs(source, exist_ok=True)
    with open(os.path.join(source, "config.json"), "w") as file:
        json.dump(config, file)
    path = os.path.join(folder, name + ".mlir")
    subprocess.run([os.path.join(build, "bin/moira-import"), "--config-only",
                    source, "-o", path], check=True)
    with open(path) as file:
        return without_parameters(file.read())


def without_parameters(text):
    return re.sub(r"\s*\{moe\.param = #moe\.param<\"[^\"]*\">\}", "", text)


def linear(dtype, rows, columns, experts, top_k):
    """One product per expert of the experts that an input names: with whole
    numbers all sums are exact in any order."""
    t = {"x": f"tensor<?x{rows}x{dtype}>", "ids": f"tensor<?x{top_k}xi32>",
         "n": f"tensor<{experts}xi32>", "y": f"tensor<?x{columns}x{dtype}>",
         "wide": f"tensor<?x{columns}xf32>",
         "w": f"tensor<{experts}x{columns}x{rows}x{dtype}>",
         "one": f"tensor<{columns}x{rows}x{dtype}>"}
    return f"""
#rows = affine_map<(m, n, k) -> (m, k)>
#weights = affine_map<(m, n, k) -> (n, k)>
#sums = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
func.func @main(%x: {t['x']}, %ids: {t['ids']}, %w: {t['w']}) -> {t['y']} {{
  %counts = moe.count %ids : {t['ids']} -> {t['n']}
  %slots, %sizes, %bound = moe.assign %ids choice_major
      counts(%counts : {t['n']}) : {t['ids']} -> {t['ids']}, {t['n']}, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : {t['x']}, {t['ids']}, {t['n']} -> {t['x']}
  %results = moe.expert rows(%rows : {t['x']}) groups(%sizes : {t['n']})
      per_expert(%w : {t['w']}) -> {t['y']} {{
  ^bb0(%r: {t['x']}, %d: {t['one']}):
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %m = tensor.dim %r, %c0 : {t['x']}
    %empty = tensor.empty(%m) : {t['wide']}
    %start = linalg.fill ins(%zero : f32) outs(%empty : {t['wide']})
        -> {t['wide']}
    %sum = linalg.matmul indexing_maps = [#rows, #weights, #sums]
        ins(%r, %d : {t['x']}, {t['one']}) outs(%start : {t['wide']})
        -> {t['wide']}
    %out = tensor.empty(%m) : {t['y']}
    %y = linalg.generic {{indexing_maps = [#id, #id],
                         iterator_types = ["parallel", "parallel"]}}
        ins(%sum : {t['wide']}) outs(%out : {t['y']}) {{
    ^bb0(%value: f32, %o: {dtype}):
      %narrow = arith.truncf %value : f32 to {dtype}
      linalg.yield %narrow : {dtype}
    }} -> {t['y']}
    moe.yield %y : {t['y']}
  }}
  %y = moe.combine %results, %slots : {t['y']}, {t['ids']} -> {t['y']}
  return %y : {t['y']}
}}
"""


def router(options, experts, top_k, operands=""):
    return f"""
func.func @main(%logits: tensor<?x{experts}xf32>,
                %bias: tensor<{experts}xf32>)
    -> (tensor<?x{top_k}xi32>, tensor<?x{top_k}xf32>) {{
  %ids, %weights = moe.gate %logits router<{options}> {operands}
      : tensor<?x{experts}xf32> -> tensor<?x{top_k}xi32>, tensor<?x{top_k}xf32>
  return %ids, %weights : tensor<?x{top_k}xi32>, tensor<?x{top_k}xf32>
}}
"""


def plain_router(experts, top_k):
    """For timing: logits alone."""
    return router("", experts, top_k).replace(
        f",\n                %bias: tensor<{experts}xf32>", "")


def expert_choice():
    """Experts that take tokens, orders by priority, a capacity and padding."""
    return """
func.func @main(%x: tensor<?x24xbf16>, %logits: tensor<?x4xf32>)
    -> (tensor<?x24xbf16>, tensor<?x4xi32>) {
  %take = arith.constant 12 : index
  %capacity = arith.constant 9 : index
  %ids, %weights = moe.gate %logits router<score = sigmoid, expert_choice>
      capacity(%take) : tensor<?x4xf32> -> tensor<?x4xi32>, tensor<?x4xf32>
  %counts = moe.count %ids : tensor<?x4xi32> -> tensor<4xi32>
  %slots, %sizes, %bound = moe.assign %ids token_major padded
      counts(%counts : tensor<4xi32>) capacity(%capacity)
      : tensor<?x4xi32> -> tensor<?x4xi32>, tensor<4xi32>, index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x24xbf16>, tensor<?x4xi32>, tensor<4xi32>
        -> tensor<4x?x24xbf16>
  %y = moe.combine %rows, %slots weights(%weights : tensor<?x4xf32>)
      : tensor<4x?x24xbf16>, tensor<?x4xi32> -> tensor<?x24xbf16>
  return %y, %slots : tensor<?x24xbf16>, tensor<?x4xi32>
}
"""


def dispatch(features, experts, top_k):
    return f"""
func.func @main(%x: tensor<?x{features}xbf16>, %slots: tensor<?x{top_k}xi32>,
                %sizes: tensor<{experts}xi32>) -> tensor<?x{features}xbf16> {{
  %c0 = arith.constant 0 : index
  %k = arith.constant {top_k} : index
  %t = tensor.dim %x, %c0 : tensor<?x{features}xbf16>
  %bound = arith.muli %t, %k : index
  %rows = moe.dispatch %x, %slots, %sizes, %bound
      : tensor<?x{features}xbf16>, tensor<?x{top_k}xi32>, tensor<{experts}xi32>
        -> tensor<?x{features}xbf16>
  return %rows : tensor<?x{features}xbf16>
}}
"""


def combine(features, top_k):
    return f"""
func.func @main(%rows: tensor<?x{features}xbf16>,
                %slots: tensor<?x{top_k}xi32>,
                %weights: tensor<?x{top_k}xf32>) -> tensor<?x{features}xbf16> {{
  %y = moe.combine %rows, %slots weights(%weights : tensor<?x{top_k}xf32>)
      : tensor<?x{features}xbf16>, tensor<?x{top_k}xi32>
        -> tensor<?x{features}xbf16>
  return %y : tensor<?x{features}xbf16>
}}
"""
