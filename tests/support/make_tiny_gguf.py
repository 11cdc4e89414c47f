#!/usr/bin/env python3
"""Writes a tiny llama-architecture GGUF with random weights, for tests that need a real engine but no real model.

    make_tiny_gguf.py OUT.gguf

Two layers of width 64, an SPM vocabulary (256 byte tokens, printable ASCII, some words, some multi-byte characters), a ChatML template with tool calls,
8,192 positions. The same bytes each time: weights come from a seeded generator through exact arithmetic only (no logarithms, whose last bit depends on the
C library). It says nothing sensible, but what it says is a function of the whole prefix, so a lost or misplaced KV cell changes the continuation.
"""

import os
import sys

import gguf
import numpy as np

SEED = 20240229
LAYERS = 2
WIDTH = 64
HEADS = 2
KV_HEADS = 1  # grouped-query attention; 32 values a position and layer, so quantised KV types work, too
HEAD_WIDTH = 32
FEED_FORWARD = 128
CONTEXT = 8192

UNKNOWN, BOS, EOS = 0, 1, 2
FIRST_BYTE = 3
TURN_START, TURN_END = 259, 260

WORDS = """
the and of to in is it you that he was for on are with as his they be at one have this from or had by hot but some what there we can out other were all your
when up use word how said an each she which do their time if will way about many then them would write like so these her long make thing see him two has look
more day could go come did my sound no most number who over know water than call first people may down side been now find any new work part take get place made
live where after back little only round man year came show every good me give our under name very through just form much great think say help low line before
turn cause same mean differ move right boy old too does tell sentence set three want air well also play small end put home read hand port large spell add even
land here must big high such follow act why ask men change went light kind off need house picture try us again animal point mother world near build self earth
user assistant system tool token model answer question true false null
""".split()

# Whole characters of two, three and four bytes; their neighbours in Unicode fall back to byte tokens, so both paths of a streamed character are met.
CHARACTERS = "éüñß€–你好世界日本😀🎭"

TEMPLATE = r"""
{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
{{- 'You may call these functions:\n<tools>' }}
{%- for tool in tools %}{{- '\n' + (tool | tojson) }}{%- endfor %}
{{- '\n</tools>\nFor each call, answer with a JSON object within XML tags:\n<tool_call>\n{"name": <function>, "arguments": <object>}\n</tool_call><|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant' }}
{%- if message.content %}{{- '\n' + message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{%- if call.function %}{%- set call = call.function %}{%- endif %}
{{- '\n<tool_call>\n{"name": "' + call.name + '", "arguments": ' + (call.arguments | tojson) + '}\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}
""".strip()


def vocabulary():
    """Texts, scores and kinds. SPM merges neighbours, the highest score first, so each prefix of a word must be a piece of its own."""
    texts, scores, kinds = [], [], []

    def add(text, score, kind):
        texts.append(text)
        scores.append(float(score))
        kinds.append(int(kind))

    kind = gguf.TokenType
    add("<unk>", 0, kind.UNKNOWN)
    add("<s>", 0, kind.CONTROL)
    add("</s>", 0, kind.CONTROL)
    for byte in range(256):
        add(f"<0x{byte:02X}>", 0, kind.BYTE)
    add("<|im_start|>", 0, kind.CONTROL)
    add("<|im_end|>", 0, kind.CONTROL)

    pieces = dict.fromkeys(["▁"] + [chr(code) for code in range(0x21, 0x7F)] + list(CHARACTERS))
    for word in WORDS:
        marked = "▁" + word
        pieces.update(dict.fromkeys(marked[:length] for length in range(2, len(marked) + 1)))
    pieces.update(dict.fromkeys(['":', '",', '{"', '"}', "()", "\\n", "▁{", '▁"', "▁▁", "▁▁▁▁", "▁1", "▁2", "▁0"]))
    for rank, piece in enumerate(pieces):
        add(piece, -rank, kind.NORMAL)
    return texts, scores, kinds


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = sys.argv[1]
    random = np.random.RandomState(SEED)

    def uniform(rows, columns, deviation):
        spread = 1.7320508 * deviation  # of a uniform distribution with that standard deviation
        return ((random.random_sample((rows, columns)) * 2.0 - 1.0) * spread).astype(np.float32)

    texts, scores, kinds = vocabulary()
    partial = f"{out}.{os.getpid()}"
    writer = gguf.GGUFWriter(partial, "llama")
    writer.add_name("Tiny random llama")
    writer.add_description("Random weights, for tests of serving; says nothing sensible")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_WIDTH)
    writer.add_value_length(HEAD_WIDTH)
    writer.add_rope_dimension_count(HEAD_WIDTH)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(texts))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(texts)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_unk_token_id(UNKNOWN)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_eot_token_id(TURN_END)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)

    # The output rows decide how it talks. Control tokens: zero, far below the best of some hundred others, so nothing ends before its limit unless a test biases
    # it. Bytes: damped, so that greedy text is mostly whole pieces while sampling still meets broken UTF-8.
    output = uniform(len(texts), WIDTH, 0.25)
    output[FIRST_BYTE:FIRST_BYTE + 256] *= 0.6
    output[[UNKNOWN, BOS, EOS, TURN_START, TURN_END]] = 0.0

    writer.add_tensor("token_embd.weight", uniform(len(texts), WIDTH, 1.0))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
    writer.add_tensor("output.weight", output)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        writer.add_tensor(prefix + "attn_norm.weight", np.ones(WIDTH, dtype=np.float32))
        writer.add_tensor(prefix + "attn_q.weight", uniform(HEADS * HEAD_WIDTH, WIDTH, 0.2))
        writer.add_tensor(prefix + "attn_k.weight", uniform(KV_HEADS * HEAD_WIDTH, WIDTH, 0.2))
        writer.add_tensor(prefix + "attn_v.weight", uniform(KV_HEADS * HEAD_WIDTH, WIDTH, 0.3))
        writer.add_tensor(prefix + "attn_output.weight", uniform(WIDTH, HEADS * HEAD_WIDTH, 0.3))
        writer.add_tensor(prefix + "ffn_norm.weight", np.ones(WIDTH, dtype=np.float32))
        writer.add_tensor(prefix + "ffn_gate.weight", uniform(FEED_FORWARD, WIDTH, 0.2))
        writer.add_tensor(prefix + "ffn_up.weight", uniform(FEED_FORWARD, WIDTH, 0.2))
        writer.add_tensor(prefix + "ffn_down.weight", uniform(WIDTH, FEED_FORWARD, 0.15))

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, out)


if __name__ == "__main__":
    main()
