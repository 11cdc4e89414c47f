#!/usr/bin/env python3
"""Greedy answers of a whole cluster against llama.cpp called directly: identical?

    tools/bench/identity_cluster.py [--build release] [--prompts 40] [--prompt-tokens-max 6000]     starts clusters: apart over UCX, and one pool `both`
    tools/bench/identity_cluster.py --url http://127.0.0.1:8080 --model NAME                        a cluster that runs already, same GGUF and step_tokens

troupe_bench_identity writes what llama.cpp itself answers; the prompts go to the cluster as token ids, one at a time, and texts are compared. Exit status 1 when
any differs.
"""

import argparse
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.parse

from measures import gemma_path, program, running

STEP_TOKENS = 512
CELLS = 8192
REQUEST_SECONDS = 300


def pool(name, role, host):
    return dict(name=name, role=role, hosts=[host], engine="llama", threads=2, prefix_reuse=False, kv_tokens=CELLS, step_tokens=STEP_TOKENS)


def references(options):
    """llama.cpp's own answers; the engines are compared on the way, too."""
    with tempfile.TemporaryDirectory(prefix="troupe-identity-") as directory:
        path = pathlib.Path(directory) / "reference.json"
        subprocess.run([program(options.build, "troupe_bench_identity"), "--model", options.gguf, "--prompts", str(options.prompts), "--prompt-tokens-max", str(options.prompt_tokens_max),
                        "--step-tokens", str(STEP_TOKENS), "--cells", str(CELLS), "--no-reuse", "--write-reference", path], check=False)
        return json.loads(path.read_text())


def answer(url, model, reference):
    """The text of one greedy completion."""
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=REQUEST_SECONDS)
    try:
        connection.request("POST", "/v1/completions", json.dumps({
            "model": model, "prompt": reference["prompt"], "max_tokens": len(reference["ids"]), "temperature": 0, "ignore_eos": True,
        }), {"Content-Type": "application/json"})
        response = connection.getresponse()
        body = response.read().decode()
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {body}")
        return json.loads(body)["choices"][0]["text"]
    finally:
        connection.close()


def compare(name, url, model, all_references):
    same = 0
    for reference in all_references:
        got = answer(url, model, reference)
        if got == reference["text"]:
            same += 1
        else:
            print(f"  {name}: the answer to {len(reference['prompt'])} tokens differs: {got[:60]!r} instead of {reference['text'][:60]!r}")
    print(f"{name:<44} {same}/{len(all_references)} identical", flush=True)
    return same == len(all_references)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="release")
    parser.add_argument("--gguf", default=str(gemma_path()))
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--prompt-tokens-max", type=int, default=6000)
    parser.add_argument("--reference", help="a file that troupe_bench_identity wrote")
    parser.add_argument("--url")
    parser.add_argument("--model", default="m")
    options = parser.parse_args()
    all_references = json.loads(pathlib.Path(options.reference).read_text()) if options.reference else references(options)
    if options.url:
        return 0 if compare("cluster", options.url, options.model, all_references) else 1
    model = dict(model_path=options.gguf, context_tokens=CELLS)
    good = True
    with running(options.build, hosts=2, pools=[pool("p", "prefill", "h0"), pool("d", "decode", "h1")], **model) as cluster:
        good = compare("cluster, prefill and decode apart", cluster.url, "m", all_references) and good
    with running(options.build, hosts=1, pools=[pool("b", "both", "h0")], **model) as cluster:
        good = compare("cluster, one pool", cluster.url, "m", all_references) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
