# Part of the Moira project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layers to run, and runs of moira-run."""

import json
import os
import subprocess


class Programs:
    """Writes OLMoE-like layers of chosen sizes into a folder, and runs them."""

    def __init__(self, build, folder):
        self.bin = os.path.join(build, "bin")
        self.folder = folder

    def layer(self, features, hidden, experts, top_k):
        """The path of the layer's program."""
        path = os.path.join(self.folder,
                            f"l{features}-{hidden}-{experts}-{top_k}.mlir")
        if os.path.exists(path):
            return path
        config = {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe",
                  "num_hidden_layers": 1, "hidden_size": features,
                  "intermediate_size": hidden, "num_experts": experts,
                  "num_experts_per_tok": top_k, "norm_topk_prob": False,
                  "hidden_act": "silu", "dtype": "float32"}
        source = path[:-len(".mlir")]
        os.makedirs(source, exist_ok=True)
        with open(os.path.join(source, "config.json"), "w") as file:
            json.dump(config, file)
        subprocess.run([os.path.join(self.bin, "moira-import"),
                        "--config-only", source, "-o", path], check=True)
        return path

    def topology(self, nodes, per_node, intra, inter):
        """The path of a topology; links are (bytes per second, seconds)."""
        def link(values):
            return {"bandwidth": values[0], "latency": values[1]}
        description = {"nodes": nodes, "ranks_per_node": per_node}
        if per_node > 1:
            description["intra"] = link(intra)
        if nodes > 1:
            description["inter"] = {**link(inter), "per": "rank"}
        name = f"t{abs(hash(json.dumps(description))):x}.json"
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            json.dump(description, file)
        return path

    def command(self, path, options):
        return [os.path.join(self.bin, "moira-run"), path, "--json",
                "--threads", "1", *options]

    def run(self, path, options):
        """The report of a run in this process' machine."""
        done = subprocess.run(self.command(path, options), text=True,
                              capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        return json.loads(done.stdout)


def step_seconds(report):
    """Median seconds of the repeated steps."""
    return report["seconds"]["time"]


def least_seconds(report):
    """The least of the repeated steps: CPU time that nobody disturbed."""
    return min(report["seconds"]["repeats"])
