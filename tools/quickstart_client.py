#!/usr/bin/env python3
"""The client's side of tools/quickstart: waits until the cluster is ready, streams one answer, and tells how the request travelled. Standard library only.

    quickstart_client.py wait CONFIG SECONDS     until GET /readyz says 200; exit 1 with its reasons if it won't
    quickstart_client.py ask CONFIG TEXT         streams how the model goes on; exit 1 if it does not end properly
    quickstart_client.py url CONFIG              prints the gateway's address
    quickstart_client.py model CONFIG            prints the first model's name
"""

import json
import sys
import time
import tomllib
import urllib.error
import urllib.request

REQUEST_TIMEOUT_S = 120
ANSWER_TOKENS_MAX = 120
MIB = 1 << 20


def load(path):
    with open(path, "rb") as file:
        return tomllib.load(file)


def one(section):
    return section[0] if isinstance(section, list) else section


def base_url(config):
    gateway = one(config.get("gateways") or config["gateway"])
    address = gateway.get("address", "127.0.0.1")
    return f"http://{'127.0.0.1' if address == '0.0.0.0' else address}:{gateway['port']}"


def model_name(config):
    return one(config.get("models") or config["model"])["name"]


def get(url, timeout_s=5):
    """(status, body text); status 0 when nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode(errors="replace")
    except OSError as e:
        return 0, str(e)


def wait(config, limit_s):
    deadline = time.monotonic() + limit_s
    status, body = 0, ""
    while time.monotonic() < deadline:
        status, body = get(base_url(config) + "/readyz")
        if status == 200:
            return 0
        if status == 503 and (failed := [m for m in json.loads(body)["models"] if m["failed"]]):
            print("; ".join(f"{m['name']}: {m['reason']}" for m in failed), file=sys.stderr)
            return 1
        time.sleep(0.2)
    print(f"not ready after {limit_s:.0f} s: {body.strip()}", file=sys.stderr)
    return 1


def events(answer):
    for line in answer:
        if line.startswith(b"data: "):
            yield line[len(b"data: "):].strip().decode()


def ask(config, text):
    # The quickstart's model is a base model: it continues texts and knows nothing of chats.
    body = json.dumps({
        "model": model_name(config),
        "prompt": text,
        "max_tokens": ANSWER_TOKENS_MAX,
        "temperature": 0.6,
        "frequency_penalty": 0.6,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }).encode()
    request = urllib.request.Request(base_url(config) + "/v1/completions", body, {"Content-Type": "application/json"})
    print(f"\n{text}", end="", flush=True)
    try:
        answer = urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S)
    except urllib.error.HTTPError as e:
        print(f"HTTP {e.code}: {e.read().decode(errors='replace')}", file=sys.stderr)
        return 1
    finished, usage, done = None, None, False
    with answer:
        request_id = answer.headers.get("X-Request-Id", "")
        for data in events(answer):
            if data == "[DONE]":
                done = True
                break
            chunk = json.loads(data)
            if "error" in chunk:
                print(f"\nthe stream ended with an error: {chunk['error']}", file=sys.stderr)
                return 1
            usage = chunk.get("usage") or usage
            for choice in chunk.get("choices", []):
                print(choice.get("text") or "", end="", flush=True)
                finished = choice.get("finish_reason") or finished
    print("\n")
    if not (done and finished and usage):
        print(f"the stream broke off: finish reason {finished}, usage {usage}, [DONE] {done}", file=sys.stderr)
        return 1
    status, text = get(f"{base_url(config)}/debug/requests/{request_id}")
    if status != 200:
        print(f"no account of the request's path: HTTP {status} {text.strip()}", file=sys.stderr)
        return 1
    print("How it travelled:")
    for line in travelled(json.loads(text)):
        print("  " + line)
    return 0


def travelled(timeline):
    """The lines that tell a request's path, from the gateway's timeline of it."""
    for number, attempt in enumerate(timeline.get("attempts", []), 1):
        if len(timeline["attempts"]) > 1:
            yield f"attempt {number}, plan {attempt.get('plan')}" + (f": {attempt['error']}" if attempt.get("error") else "")
        if prefill := attempt.get("prefill"):
            yield (f"prefill   {prefill.get('worker')}: waited {number_of(prefill, 'queue_ms')} ms, computed for {number_of(prefill, 'compute_ms')} ms, "
                   f"{prefill.get('cached_tokens', 0)} tokens from its cache")
        if transfer := attempt.get("transfer"):
            yield (f"transfer  {transfer.get('bytes', 0) / MIB:.2f} MiB of KV in {transfer.get('pieces')} pieces over {transfer.get('transport')}: sending took "
                   f"{number_of(transfer, 'ms')} ms; decode had all of it {number_of(transfer, 'exposed_ms')} ms after the prompt was computed")
        if decode := attempt.get("decode"):
            yield f"decode    {decode.get('worker')}"
    yield (f"{timeline.get('prompt_tokens')} prompt tokens, {timeline.get('completion_tokens')} answer tokens, first after {number_of(timeline, 'ttft_ms')} ms, "
           f"then {number_of(timeline, 'tokens_per_second')} tokens/s; finished: {timeline.get('finish')}")


def number_of(record, key):
    value = record.get(key)
    return "?" if value is None else f"{value:.1f}"


def main():
    match sys.argv[1:]:
        case ["wait", path, limit_s]:
            return wait(load(path), float(limit_s))
        case ["ask", path, question]:
            return ask(load(path), question)
        case ["model", path]:
            print(model_name(load(path)))
            return 0
        case ["url", path]:
            print(base_url(load(path)))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, KeyError) as e:
        print(f"quickstart_client: {type(e).__name__}: {e}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
