"""The dimensions of MinerU2.5, without its weights."""

from __future__ import annotations

from batchocr.planning.architecture import Architecture, ImageLimits, LanguageShape, VisionShape

MINERU = Architecture(
    vision=VisionShape(
        depth=32,
        width=1280,
        num_heads=16,
        mlp_width=5120,
        out_width=896,
        patch_size=14,
        merge_size=2,
        temporal_patch_size=2,
        in_channels=3,
        rope_theta=10_000.0,
    ),
    language=LanguageShape(
        num_layers=24,
        width=896,
        num_heads=14,
        num_kv_heads=2,
        mlp_width=4864,
        vocab_size=151_936,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        mrope_section=(8, 12, 12),
        max_positions=32_768,
        tied_embeddings=True,
    ),
    images=ImageLimits(min_pixels=3_136, max_pixels=1_605_632, mean=(0.5, 0.5, 0.5), std=(0.3, 0.3, 0.3)),
    image_token_id=151_655,
)
