# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters of the small models in tests/golden/hf, written by peft, and what transformers and
peft compute with them: tests/golden/adapters. Made with peft 0.21.2, transformers 5.23.0 and
PyTorch 2.15.0."""
import json
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent.parent / "golden"
IDS = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10]])
CASES = {
    "gpt2": ("gpt2", dict(r=3, lora_alpha=6, target_modules=["c_attn", "c_fc", "c_proj"],
                          fan_in_fan_out=True)),
    "gpt2_other": ("gpt2", dict(r=2, lora_alpha=5, target_modules=["c_attn"], fan_in_fan_out=True)),
    "llama": ("llama", dict(r=4, lora_alpha=10, use_rslora=True,
                            target_modules=["q_proj", "v_proj", "down_proj", "lm_head"])),
    "llama_other": ("llama", dict(r=2, lora_alpha=4, target_modules="all-linear",
                                  rank_pattern={"k_proj": 3}, alpha_pattern={"up_proj": 12})),
}


def main():
    shutil.rmtree(HERE / "adapters", ignore_errors=True)
    for seed, (name, (base, options)) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_pretrained(HERE / "hf" / base)
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **options))
        with torch.no_grad():
            for key, p in model.named_parameters():
                if "lora_" in key:
                    p.normal_(0, 0.5)
            logits = model.eval()(input_ids=IDS).logits
            tokens = model.generate(input_ids=IDS[:, :3], max_new_tokens=9, do_sample=False,
                                    eos_token_id=None, pad_token_id=0)
        folder = HERE / "adapters" / name
        model.save_pretrained(folder)
        (folder / "README.md").unlink(missing_ok=True)
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = base
        config["target_modules"] = sorted(config["target_modules"])
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
        save_file({"input_ids": IDS, "logits": logits.contiguous(),
                   "tokens": tokens[:, 3:].contiguous()}, folder / "case.safetensors")


main()
