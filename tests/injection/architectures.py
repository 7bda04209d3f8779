"""Sound models of many architectures: tiny ``transformers`` configs with random weights, and plain torch ones.

A builder returns ``(model, step)``; ``step()`` runs one forward pass and returns the loss. Nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.injection import plain

Built = tuple[nn.Module, Callable[[], torch.Tensor]]


@dataclass(frozen=True)
class Architecture:
    """``family``: encoder, decoder, seq2seq, vision, audio, multimodal, experts, recurrent, series or plain."""

    name: str
    family: str
    make: Callable[[], Built]

    def build(self) -> Built:
        """A model whose every trainable parameter the step reaches, and the step.

        What autograd itself finds unreached (a pooler that this loss ignores, an expert that no token was sent to) is
        frozen, as someone who knows the model would.
        """
        torch.manual_seed(0)
        with quiet():
            model, run = self.make()

            @functools.wraps(run)
            def step() -> torch.Tensor:
                torch.manual_seed(1)
                return run()

            step().backward()
            for parameter in model.parameters():
                parameter.requires_grad_(parameter.grad is not None)
                parameter.grad = None
        return model, step


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No advice of the libraries' on the screen."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(before)


# -- what goes in -----------------------------------------------------------------------------------------------------

TEXT: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
BOTH: dict[str, Any] = {
    "vocab_size": 64, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
T5 = {
    "vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 2,
    "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0,
}  # fmt: skip
IMAGE: dict[str, Any] = {
    "image_size": 16, "patch_size": 8, "num_channels": 3, "hidden_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 2, "intermediate_size": 32, "num_labels": 3,
}  # fmt: skip
SOUND: dict[str, Any] = {
    "vocab_size": 16, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "conv_dim": (16, 16), "conv_stride": (4, 4), "conv_kernel": (8, 4), "num_feat_extract_layers": 2, "num_labels": 3,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0, "mask_feature_prob": 0.0,
    "classifier_proj_size": 8, "layerdrop": 0.0, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {**GROUPED, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def _words(length: int = 8, high: int = 60) -> torch.Tensor:
    return torch.randint(3, high, (2, length))


def _labelled(**more: Any) -> dict[str, Any]:
    words = _words()
    return {"input_ids": words, "labels": words.clone(), **more}


def _classified(**more: Any) -> dict[str, Any]:
    return {"input_ids": _words(), "attention_mask": torch.ones(2, 8, dtype=torch.long), "labels": _targets(), **more}


def _targets() -> torch.Tensor:
    return torch.tensor([0, 1])


def _image(size: int = 16, **more: Any) -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, size, size), "labels": _targets(), **more}


def _wave(**more: Any) -> dict[str, Any]:
    return {"input_values": torch.randn(2, 400), "labels": _targets(), **more}


def _pairs(size: int = 16, **more: Any) -> dict[str, Any]:
    mask = torch.ones(2, 8, dtype=torch.long)
    return {"input_ids": _words(), "attention_mask": mask, "pixel_values": torch.randn(2, 3, size, size), **more}


# -- transformers -----------------------------------------------------------------------------------------------------


def _pretrained(head: str, config: dict[str, Any], batch: Callable[[], dict[str, Any]]) -> Built:
    """A tiny model ``head`` of ``transformers``; the loss is its own, or the size of all it hands out."""
    transformers = importlib.import_module("transformers")
    cls = getattr(transformers, head)
    made = cls.config_class(**config)
    made._attn_implementation = "eager"
    model = cls(made).train()
    given = batch()
    return model, lambda: _loss(model(**given))


def _loss(output: Any) -> torch.Tensor:
    loss = getattr(output, "loss", None)
    if loss is not None:
        return loss
    values = [v for v in output.to_tuple() if isinstance(v, torch.Tensor) and v.is_floating_point()]
    return sum((v.pow(2).mean() for v in values), torch.zeros(()))


ALL: dict[str, Architecture] = {}


def _enter(family: str, batch: Callable[[], dict[str, Any]], base: dict[str, Any], rows: dict[str, Any]) -> None:
    for head, more in rows.items():
        ALL[head] = Architecture(head, family, functools.partial(_pretrained, head, {**base, **more}, batch))


for _name, _build in plain.BUILDERS.items():
    ALL[_name] = Architecture(_name, "plain", _build)

_enter("encoder", _labelled, TEXT, {
    "BertForMaskedLM": {}, "RobertaForMaskedLM": {}, "ElectraForMaskedLM": {"embedding_size": 16},
    "AlbertForMaskedLM": {"embedding_size": 8}, "DebertaV2ForMaskedLM": {}, "MPNetForMaskedLM": {},
    "MegatronBertForMaskedLM": {}, "ModernBertForMaskedLM": {"global_attn_every_n_layers": 2, "local_attention": 4,
    "cls_token_id": 1, "sep_token_id": 2}, "SqueezeBertForMaskedLM": {"embedding_size": 16, "q_groups": 1,
    "k_groups": 1, "v_groups": 1, "post_attention_groups": 1, "intermediate_groups": 1, "output_groups": 1},
    "NystromformerForMaskedLM": {"segment_means_seq_len": 8, "num_landmarks": 8}, "FNetForMaskedLM": {},
    "RemBertForMaskedLM": {"input_embedding_size": 8, "output_embedding_size": 16}, "RoFormerForMaskedLM": {},
    "ErnieForMaskedLM": {}, "DistilBertForMaskedLM": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "LayoutLMForMaskedLM": {}, "ConvBertForMaskedLM": {"embedding_size": 16, "head_ratio": 1},
})  # fmt: skip
_enter("encoder", _classified, TEXT, {"CanineForSequenceClassification": {}, "XLMRobertaForSequenceClassification": {}})
_enter("decoder", _labelled, GROUPED, {
    "GPT2LMHeadModel": {}, "GPTNeoForCausalLM": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "GPTNeoXForCausalLM": {}, "GPTJForCausalLM": {"rotary_dim": 4}, "BloomForCausalLM": {},
    "OPTForCausalLM": {"ffn_dim": 32, "word_embed_proj_dim": 16}, "LlamaForCausalLM": {}, "MistralForCausalLM": {},
    "Qwen2ForCausalLM": {}, "Qwen3ForCausalLM": {}, "GemmaForCausalLM": {}, "Gemma2ForCausalLM": {},
    "Gemma3ForCausalLM": {}, "PhiForCausalLM": {}, "Phi3ForCausalLM": {},
    "StableLmForCausalLM": {}, "Olmo2ForCausalLM": {}, "CohereForCausalLM": {}, "Starcoder2ForCausalLM": {},
    "GraniteForCausalLM": {}, "GlmForCausalLM": {}, "CodeGenForCausalLM": {"n_head": 4, "rotary_dim": 4},
    "CTRLLMHeadModel": {}, "XGLMForCausalLM": {}, "PersimmonForCausalLM": {}, "BioGptForCausalLM": {},
    "MptForCausalLM": {}, "NemotronForCausalLM": {}, "OpenAIGPTLMHeadModel": {},
})  # fmt: skip
_enter("decoder", _labelled, TEXT, {"FalconForCausalLM": {}})
_enter("decoder", _labelled, {"vocab_size": 64, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32}, {
    "XLNetLMHeadModel": {},
})  # fmt: skip
_enter("seq2seq", _labelled, {"vocab_size": 64, "hidden_size": 16, "num_encoder_layers": 2, "num_decoder_layers": 2,
    "num_encoder_attention_heads": 2, "num_decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
    "max_position_embeddings": 64}, {"ProphetNetForConditionalGeneration": {}})  # fmt: skip
_enter("seq2seq", _labelled, BOTH, {
    "BartForConditionalGeneration": {}, "MBartForConditionalGeneration": {}, "PegasusForConditionalGeneration": {},
    "M2M100ForConditionalGeneration": {}, "MarianMTModel": {}, "BlenderbotForConditionalGeneration": {},
})  # fmt: skip
_enter("seq2seq", _labelled, T5, {
    "T5ForConditionalGeneration": {}, "UMT5ForConditionalGeneration": {},
    "LongT5ForConditionalGeneration": {"local_radius": 4},
})  # fmt: skip
_enter("vision", _image, IMAGE, {
    "ViTForImageClassification": {}, "DeiTForImageClassification": {}, "BeitForImageClassification": {},
    "Dinov2ForImageClassification": {}, "ViTMSNForImageClassification": {},
})  # fmt: skip
_enter("vision", functools.partial(_image, 32), {"num_labels": 3, "image_size": 32}, {
    "ConvNextForImageClassification": {"hidden_sizes": [4, 8], "depths": [1, 1], "num_stages": 2},
    "ResNetForImageClassification": {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1]},
    "RegNetForImageClassification": {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "groups_width": 4},
    "SwinForImageClassification": {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2,
    "patch_size": 4},
    "PoolFormerForImageClassification": {"hidden_sizes": [4, 8], "depths": [1, 1], "num_encoder_blocks": 2,
    "patch_sizes": [7, 3], "strides": [4, 2], "padding": [2, 1]},
    "SegformerForImageClassification": {"hidden_sizes": [4, 8], "depths": [1, 1], "num_encoder_blocks": 2,
    "patch_sizes": [7, 3], "strides": [4, 2], "sr_ratios": [2, 1], "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2]},
    "PvtForImageClassification": {"hidden_sizes": [4, 8], "depths": [1, 1], "num_encoder_blocks": 2,
    "patch_sizes": [4, 2], "strides": [4, 2], "sequence_reduction_ratios": [2, 1], "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2]},
    "MobileNetV2ForImageClassification": {"depth_multiplier": 0.35},
})  # fmt: skip
_enter("vision", lambda: {"pixel_values": torch.randn(2, 3, 16, 16)}, {**IMAGE, "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2, "decoder_intermediate_size": 32},
    {"ViTMAEForPreTraining": {}})  # fmt: skip
_enter("audio", _wave, SOUND, {
    "Wav2Vec2ForSequenceClassification": {}, "HubertForSequenceClassification": {},
    "WavLMForSequenceClassification": {}, "UniSpeechForSequenceClassification": {},
    "Data2VecAudioForSequenceClassification": {"num_conv_pos_embeddings": 1},
    "Wav2Vec2ConformerForSequenceClassification": {},
})  # fmt: skip
_enter("audio", lambda: {"input_features": torch.randn(2, 8, 24), "labels": _words()}, {**BOTH, "num_mel_bins": 8,
    "max_source_positions": 12, "max_target_positions": 16}, {"WhisperForConditionalGeneration": {}})  # fmt: skip
_enter("audio", lambda: {"input_features": torch.randn(2, 24, 8), "labels": _words()}, {**BOTH,
    "input_feat_per_channel": 8, "conv_channels": 8, "max_source_positions": 24, "max_target_positions": 16},
    {"Speech2TextForConditionalGeneration": {}})  # fmt: skip
_enter("audio", lambda: {"input_values": torch.randn(2, 32, 16), "labels": _targets()}, {**IMAGE, "patch_size": 8,
    "max_length": 32, "num_mel_bins": 16, "time_stride": 8, "frequency_stride": 8}, {"ASTForAudioClassification": {}},
)  # fmt: skip
_enter("multimodal", functools.partial(_pairs, return_loss=True), {"text_config": {**TEXT, "projection_dim": 8},
    "vision_config": {**IMAGE, "projection_dim": 8}, "projection_dim": 8},
    {"CLIPModel": {}, "SiglipModel": {}, "ChineseCLIPModel": {}, "BlipModel": {}})  # fmt: skip
_enter("multimodal", lambda: _pairs(labels=_words()), {**TEXT, "vision_config": IMAGE}, {"GitForCausalLM": {}})
_enter("multimodal", lambda: _pairs(pixel_mask=None), {**TEXT, **IMAGE}, {"ViltModel": {}})
_enter("multimodal", lambda: {"input_ids": _words(), "visual_embeds": torch.randn(2, 3, 12)},
    {**TEXT, "visual_embedding_dim": 12}, {"VisualBertModel": {}})  # fmt: skip
_enter("multimodal", lambda: {"input_ids": _words(), "visual_feats": torch.randn(2, 3, 12),
    "visual_pos": torch.rand(2, 3, 4)}, {**TEXT, "l_layers": 1, "x_layers": 1, "r_layers": 1, "visual_feat_dim": 12},
    {"LxmertModel": {}})  # fmt: skip
_enter("experts", _labelled, EXPERTS, {
    "MixtralForCausalLM": {}, "Qwen2MoeForCausalLM": {"shared_expert_intermediate_size": 16},
    "Qwen3MoeForCausalLM": {}, "OlmoeForCausalLM": {}, "GraniteMoeForCausalLM": {}, "GptOssForCausalLM": {},
    "DeepseekV3ForCausalLM": {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "q_lora_rank": 8,
    "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1,
    "qk_head_dim": 8, "head_dim": 4},
})  # fmt: skip
_enter("experts", _labelled, {**T5, "num_experts": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
    {"SwitchTransformersForConditionalGeneration": {}})  # fmt: skip
_enter("recurrent", _labelled, {**GROUPED, "state_size": 4, "time_step_rank": 4}, {
    "MambaForCausalLM": {}, "FalconMambaForCausalLM": {},
    "Mamba2ForCausalLM": {"num_heads": 4, "head_dim": 8, "n_groups": 2, "chunk_size": 4},
    "JambaForCausalLM": {"mamba_d_state": 4, "mamba_dt_rank": 4, "num_experts": 2, "attn_layer_period": 2,
    "attn_layer_offset": 1, "use_mamba_kernels": False, "num_experts_per_tok": 1},
    "RwkvForCausalLM": {"attention_hidden_size": 16, "context_length": 16},
    "RecurrentGemmaForCausalLM": {"lru_width": 16, "attention_window_size": 8, "num_hidden_layers": 3},
    "BambaForCausalLM": {"mamba_d_state": 4, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1,
    "attn_layer_indices": [1], "mamba_chunk_size": 4},
})  # fmt: skip
_enter("series", lambda: {"past_values": torch.randn(2, 16, 2), "future_values": torch.randn(2, 4, 2)}, {
    "num_input_channels": 2, "context_length": 16, "patch_length": 4, "patch_stride": 4, "d_model": 16, "ffn_dim": 32,
    "num_hidden_layers": 2, "num_attention_heads": 2, "prediction_length": 4}, {"PatchTSTForPrediction": {}},
)  # fmt: skip
