# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""The model zoo of the tests: small random-weight models, called the way their users call them.

Each factory returns ``(model, args, kwargs)`` with the model in eval mode. ``FLOOR`` is what must
always work, ``OTHERS`` is what users bring besides; ``batch_of`` makes an example of another size.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 2


def ids(batch=BATCH, length=8, vocab=90):
    return torch.randint(3, vocab, (batch, length))


def image(batch=BATCH, size=32, channels=3):
    return torch.randn(batch, channels, size, size)


def _finish(model, *args, **kwargs):
    return model.eval(), args, kwargs


# Text decoders


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_embd=32, n_head=4, vocab_size=99, n_positions=64)
    return _finish(GPT2LMHeadModel(config), input_ids=ids())


def _llama(tied):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=99,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
    )
    return _finish(LlamaForCausalLM(config), input_ids=ids())


def llama_tied():
    return _llama(True)


def llama_untied():
    return _llama(False)


def mixtral():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=99,
        num_local_experts=4,
        max_position_embeddings=64,
    )
    return _finish(MixtralForCausalLM(config), input_ids=ids())


# Text encoders


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        vocab_size=99,
        max_position_embeddings=64,
    )
    mask = torch.ones(BATCH, 8, dtype=torch.long)
    return _finish(BertModel(config), input_ids=ids(), attention_mask=mask)


# Encoder and decoder


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=32,
        d_ff=64,
        d_kv=8,
        num_layers=2,
        num_heads=4,
        vocab_size=99,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config)
    return _finish(model, input_ids=ids(), decoder_input_ids=ids(length=6))


def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        vocab_size=99,
        num_mel_bins=16,
        max_source_positions=20,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    features = torch.randn(BATCH, 16, 40)
    return _finish(model, input_features=features, decoder_input_ids=ids(length=5))


# Vision


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        num_labels=10,
    )
    return _finish(ViTForImageClassification(config), pixel_values=image())


class ResidualBlock(nn.Module):
    """ResNet's basic block: the ReLUs are in place, the sum too."""

    def __init__(self, width_in, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or width_in != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """A ResNet; ``blocks`` and ``widths`` scale it from test size to ResNet-34 size."""

    def __init__(self, blocks=(1, 1, 1), widths=(8, 16, 32), num_classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        layers = []
        width_in = widths[0]
        for i, (count, width) in enumerate(zip(blocks, widths)):
            for j in range(count):
                layers.append(ResidualBlock(width_in, width, 2 if i and not j else 1))
                width_in = width
        self.layers = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width_in, num_classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layers(x))
        return self.fc(torch.flatten(x, 1))


def resnet():
    return _finish(ResNet(), image())


class GatedBlock(ResidualBlock):
    """Squeeze and excitation before the last ReLU: the gate reads what the ReLU then overwrites."""

    def __init__(self, width_in, width, stride):
        super().__init__(width_in, width, stride)
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True)))
        out += x if self.downsample is None else self.downsample(x)
        squeezed = out.mean((2, 3))
        out = self.relu(out)
        return out * torch.sigmoid(self.gate(squeezed))[:, :, None, None]


class GatedResNet(ResNet):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            GatedBlock(8, 8, 1), GatedBlock(8, 16, 2), GatedBlock(16, 32, 2)
        )


def gated_resnet():
    return _finish(GatedResNet(), image())


class Inception(nn.Module):
    """Parallel branches joined by a concatenation, twice."""

    class Cell(nn.Module):
        def __init__(self, width_in, width):
            super().__init__()
            self.b1 = nn.Conv2d(width_in, width, 1)
            self.b3 = nn.Sequential(
                nn.Conv2d(width_in, width, 1),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, padding=1),
            )
            self.b5 = nn.Sequential(
                nn.Conv2d(width_in, width, 1),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 5, padding=2),
            )
            self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(width_in, width, 1))

        def forward(self, x):
            branches = [self.b1(x), self.b3(x), self.b5(x), self.pool(x)]
            return F.relu(torch.cat(branches, 1))

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        )
        self.cell1 = self.Cell(8, 4)
        self.cell2 = self.Cell(16, 8)
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        x = self.cell2(F.max_pool2d(self.cell1(self.stem(x)), 2))
        return self.fc(x.mean((2, 3)))


def inception():
    return _finish(Inception(), image())


class UNet(nn.Module):
    """Long skips from the way down to the way up."""

    def __init__(self, widths=(8, 16, 32)):
        super().__init__()
        self.down = nn.ModuleList()
        width_in = 3
        for width in widths:
            self.down.append(self.double_conv(width_in, width))
            width_in = width
        self.middle = self.double_conv(widths[-1], 2 * widths[-1])
        self.rise = nn.ModuleList()
        self.up = nn.ModuleList()
        for width in reversed(widths):
            self.rise.append(nn.ConvTranspose2d(2 * width, width, 2, 2))
            self.up.append(self.double_conv(2 * width, width))
        self.head = nn.Conv2d(widths[0], 2, 1)

    @staticmethod
    def double_conv(width_in, width):
        return nn.Sequential(
            nn.Conv2d(width_in, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for rise, block, skip in zip(self.rise, self.up, reversed(skips)):
            x = block(torch.cat([skip, rise(x)], 1))
        return self.head(x)


def unet():
    return _finish(UNet(), image())


# Recurrence, state, views


class Lstm(nn.Module):
    """Batch-first LSTM: the states it returns carry the batch in dimension 1."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(99, 16)
        self.lstm = nn.LSTM(16, 24, num_layers=2, batch_first=True)
        self.head = nn.Linear(24, 99)

    def forward(self, tokens):
        out, (h, c) = self.lstm(self.embed(tokens))
        return {"logits": self.head(out), "state": (h, c)}


def lstm():
    return _finish(Lstm(), ids())


class SliceWriter(nn.Module):
    """Writes into slices of buffers and reads them back around the writes."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(16, 16)
        self.register_buffer("history", torch.zeros(4, 16))
        self.register_buffer("scratch", torch.ones(16), persistent=False)

    def forward(self, x):
        before = x + self.history.sum(0)
        y = self.proj(before)
        self.history[1:3] = y.mean(0).detach()
        self.history[0].add_(1.0)
        self.scratch.mul_(0.5)
        return y * self.history[2] + self.scratch


def slice_writer():
    return _finish(SliceWriter(), torch.randn(BATCH, 16))


class ViewWriter(nn.Module):
    """Writes through views of activations; every read around a write must keep its place."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.b = nn.Linear(16, 16)

    def forward(self, x):
        h = self.a(x)
        early = h.sum(1, keepdim=True)
        h[:, 4:8] = 0.5
        h.view(-1, 4, 4)[:, 0].relu_()
        left = h[:, :8]
        h.narrow(1, 8, 8).mul_(2.0)
        h = self.b(h)
        F.relu(h, inplace=True)
        out = torch.zeros_like(h)
        out[:, ::2] = h[:, 1::2]
        out[:, 1].copy_(early[:, 0])
        return out, left


def view_writer():
    return _finish(ViewWriter(), torch.randn(BATCH, 16))


FLOOR = {
    f.__name__: f
    for f in (
        gpt2,
        bert,
        t5,
        vit,
        llama_tied,
        llama_untied,
        mixtral,
        whisper,
        resnet,
        gated_resnet,
        inception,
        lstm,
        unet,
        slice_writer,
        view_writer,
    )
}


# What users bring besides


def _tiny(config, **more):
    """A config class with its usual size fields set small; fields a class lacks are ignored."""
    fields = dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=99,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    fields.update(more)
    return config(**fields)


def _decoder(config, model, **more):
    import transformers as t

    return _finish(getattr(t, model)(_tiny(getattr(t, config), **more)), input_ids=ids())


def qwen2():
    return _decoder("Qwen2Config", "Qwen2ForCausalLM", num_key_value_heads=2)


def qwen3():
    return _decoder("Qwen3Config", "Qwen3ForCausalLM", num_key_value_heads=2, head_dim=8)


def gemma2():
    more = dict(num_key_value_heads=2, head_dim=8, sliding_window=4)
    return _decoder("Gemma2Config", "Gemma2ForCausalLM", **more)


def mistral():
    return _decoder("MistralConfig", "MistralForCausalLM", num_key_value_heads=2, sliding_window=4)


def opt():
    return _decoder("OPTConfig", "OPTForCausalLM", ffn_dim=64, word_embed_proj_dim=32)


def bloom():
    return _decoder("BloomConfig", "BloomForCausalLM", n_layer=2, n_head=4)


def falcon():
    return _decoder("FalconConfig", "FalconForCausalLM")


def phi():
    return _decoder("PhiConfig", "PhiForCausalLM")


def gptneox():
    return _decoder("GPTNeoXConfig", "GPTNeoXForCausalLM")


def mamba():
    return _decoder("MambaConfig", "MambaForCausalLM", state_size=4, expand=2, time_step_rank=2)


def distilbert():
    more = dict(dim=32, hidden_dim=64, n_layers=2, n_heads=4)
    return _decoder("DistilBertConfig", "DistilBertForMaskedLM", **more)


def roberta():
    return _decoder("RobertaConfig", "RobertaForMaskedLM")


def electra():
    return _decoder("ElectraConfig", "ElectraForPreTraining", embedding_size=16)


def albert():
    return _decoder("AlbertConfig", "AlbertForMaskedLM", embedding_size=16)


def deberta():
    more = dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False)
    return _decoder("DebertaV2Config", "DebertaV2ForMaskedLM", **more)


def xlnet():
    from transformers import XLNetConfig, XLNetLMHeadModel

    config = XLNetConfig(vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=64)
    return _finish(XLNetLMHeadModel(config), input_ids=ids())


def xlm():
    more = {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "n_words": 99}
    return _decoder("XLMConfig", "XLMWithLMHeadModel", **more)


def longformer():
    """Its encoder looks at the values of the attention mask."""
    return _decoder("LongformerConfig", "LongformerModel", attention_window=4)


def _seq2seq(config, model):
    import transformers as t

    made = _tiny(
        getattr(t, config),
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        decoder_start_token_id=2,
        forced_eos_token_id=None,
    )
    model = getattr(t, model)(made)
    return _finish(model, input_ids=ids(), decoder_input_ids=ids(length=6))


def bart():
    return _seq2seq("BartConfig", "BartForConditionalGeneration")


def pegasus():
    return _seq2seq("PegasusConfig", "PegasusForConditionalGeneration")


def marian():
    return _seq2seq("MarianConfig", "MarianMTModel")


def clip():
    """Contrastive logits: the batch stands in both dimensions of the output."""
    from transformers import CLIPConfig, CLIPModel

    text = dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=99,
        max_position_embeddings=16,
        eos_token_id=2,
        bos_token_id=1,
        pad_token_id=0,
    )
    vision = dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
    )
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    return _finish(CLIPModel(config), input_ids=ids(), pixel_values=image())


def swin():
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return _finish(SwinForImageClassification(config), pixel_values=image())


def convnext():
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=4)
    return _finish(ConvNextForImageClassification(config), pixel_values=image())


def segformer():
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 16],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
    )
    return _finish(SegformerForSemanticSegmentation(config), pixel_values=image())


def wav2vec2():
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        vocab_size=32,
        conv_dim=(16, 16),
        conv_stride=(4, 4),
        conv_kernel=(8, 8),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    return _finish(Wav2Vec2ForCTC(config), torch.randn(BATCH, 400))


OTHERS = {
    f.__name__: f
    for f in (
        qwen2,
        qwen3,
        gemma2,
        mistral,
        opt,
        bloom,
        falcon,
        phi,
        gptneox,
        mamba,
        distilbert,
        roberta,
        electra,
        albert,
        deberta,
        xlnet,
        xlm,
        longformer,
        bart,
        pegasus,
        marian,
        clip,
        swin,
        convnext,
        segformer,
        wav2vec2,
    )
}


def build(name, seed=0):
    """The named model with reproducible weights and inputs."""
    torch.manual_seed(seed)
    return {**FLOOR, **OTHERS}[name]()


def batch_of(size, args, kwargs, example=BATCH):
    """The same call at another batch size: rows repeated, then permuted so that rows differ."""

    def resize(x):
        if not isinstance(x, torch.Tensor) or not x.ndim or x.shape[0] != example:
            return x
        repeats = -(-size // example)
        x = torch.cat([x.roll(i, -1) for i in range(repeats)])[:size]
        return x.contiguous()

    tree_map = torch.utils._pytree.tree_map
    return tree_map(resize, args), tree_map(resize, kwargs)
