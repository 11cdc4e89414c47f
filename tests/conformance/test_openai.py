"""The official OpenAI client against a gateway: what it sends is understood, and what it gets parses and means what it should.

Against a running server: TROUPE_BASE_URL=http://127.0.0.1:8080 TROUPE_MODEL=gemma test_openai.py
Against a cluster of its own with the tiny model: TROUPE_BIN and TROUPE_TINY_GGUF. Against the fake gateway: test_openai.py --fake PROGRAM; by HTTPS: test_openai.py --fake-tls PROGRAM.
"""

import http.client
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
from pathlib import Path

import openai

BASE = os.environ.get("TROUPE_BASE_URL", "")
MODEL = os.environ.get("TROUPE_MODEL", "m")
FAKE = ""
TLS = None  # by what a server's certificate is checked; with --fake-tls, True until there is one
TIMEOUT_S = 120.0
SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["answer"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}}, "required": ["city"], "additionalProperties": False}}}
HELLO = [{"role": "user", "content": "Say hello."}]


def setUpModule():
    global BASE, MODEL, TLS
    if FAKE:
        certificates = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(certificates.cleanup)
        server = subprocess.Popen([FAKE, "0", "2000", *([certificates.name] if TLS else [])], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

        def end():
            server.terminate()
            server.wait(20)
            server.stdout.close()

        unittest.addModuleCleanup(end)
        # A line of the log may come first.
        port = next(line for line in iter(server.stdout.readline, b"") if line.strip().isdigit())
        BASE, MODEL = f"http{'s' if TLS else ''}://127.0.0.1:{int(port)}", "words"
        if TLS:
            TLS = ssl.create_default_context(cafile=f"{certificates.name}/ca.pem")
    elif not BASE:
        model = os.environ.get("TROUPE_TINY_GGUF", "")
        if not Path(model).is_file() or not os.environ.get("TROUPE_BIN"):
            print("there is neither a server nor a model")
            sys.exit(77)
        sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
        from cluster import Cluster
        cluster = Cluster(hosts=2, model_path=model, pools=[dict(role="prefill", hosts=["h0"], engine="llama"), dict(role="decode", hosts=["h1"], engine="llama")])
        unittest.addModuleCleanup(cluster.__exit__, None, None, None)
        cluster.start()
        cluster.wait_ready()
        BASE, MODEL = f"http://127.0.0.1:{cluster.gateway_port}", "m"


class Conformance(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S, **({"http_client": openai.DefaultHttpxClient(verify=TLS)} if TLS else {}))
        self.addCleanup(self.client.close)

    def chat(self, **more):
        return self.client.chat.completions.create(**{"model": MODEL, "messages": HELLO, "max_tokens": 8, "temperature": 0, "seed": 1, **more})

    def complete(self, **more):
        return self.client.completions.create(**{"model": MODEL, "prompt": "Hello", "max_tokens": 8, "temperature": 0, "seed": 1, **more})

    def refused(self, kind, call, **more):
        with self.assertRaises(kind) as raised:
            call(**more)
        return raised.exception

    # -- chats -----------------------------------------------------------------

    def test_chat(self):
        r = self.chat()
        self.assertEqual(r.object, "chat.completion")
        self.assertEqual(r.model, MODEL)
        self.assertTrue(r.id.startswith("chatcmpl-"))
        self.assertEqual(len(r.choices), 1)
        self.assertEqual(r.choices[0].message.role, "assistant")
        self.assertIsInstance(r.choices[0].message.content, str)
        self.assertIn(r.choices[0].finish_reason, ("stop", "length"))
        self.assertLessEqual(r.usage.completion_tokens, 8)
        self.assertGreater(r.usage.prompt_tokens, 0)
        self.assertEqual(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens)
        self.assertGreaterEqual(r.usage.prompt_tokens_details.cached_tokens, 0)

    def test_stream_says_the_same(self):
        whole = self.chat()
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual({c.object for c in chunks}, {"chat.completion.chunk"})
        self.assertEqual(len({c.id for c in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), whole.choices[0].message.content)
        ends = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
        self.assertEqual(ends, [whole.choices[0].finish_reason])
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))

    def test_stream_without_usage(self):
        self.assertTrue(all(c.usage is None and c.choices for c in self.chat(stream=True)))

    def test_conversation(self):
        r = self.chat(messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "1 + 1?"}]},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": "And now?", "name": "ann"}])
        self.assertIsInstance(r.choices[0].message.content, str)

    def test_answer_can_be_sent_back(self):
        first = self.chat()
        r = self.chat(messages=[*HELLO, first.choices[0].message, {"role": "user", "content": "Again."}])
        self.assertEqual(len(r.choices), 1)

    def test_choices(self):
        r = self.chat(n=3, temperature=1)
        self.assertEqual([c.index for c in r.choices], [0, 1, 2])
        seen = {}
        for chunk in self.chat(n=3, temperature=1, stream=True):
            for c in chunk.choices:
                if c.finish_reason:
                    seen[c.index] = c.finish_reason
        self.assertEqual(sorted(seen), [0, 1, 2])

    def test_length(self):
        r = self.chat(max_completion_tokens=3, max_tokens=openai.omit, extra_body={"ignore_eos": True})
        self.assertEqual(r.choices[0].finish_reason, "length")
        self.assertEqual(r.usage.completion_tokens, 3)

    def test_stop(self):
        text = self.complete(max_tokens=16, extra_body={"ignore_eos": True}).choices[0].text
        word = next((w for w in text.split()[1:] if w.isascii() and w.isalnum()), None)
        if word is None:
            self.skipTest("the model says no words")
        r = self.complete(max_tokens=16, stop=word, extra_body={"ignore_eos": True})
        self.assertEqual(r.choices[0].finish_reason, "stop")
        self.assertNotIn(word, r.choices[0].text)
        self.assertTrue(text.startswith(r.choices[0].text.rstrip()))

    def test_logprobs(self):
        r = self.chat(logprobs=True, top_logprobs=2)
        content = r.choices[0].logprobs.content
        self.assertEqual(len(content), r.usage.completion_tokens)
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 2)
            self.assertIsInstance(token.bytes, list)
        streamed = [t for c in self.chat(logprobs=True, stream=True) if c.choices and c.choices[0].logprobs for t in c.choices[0].logprobs.content]
        self.assertEqual([t.bytes for t in streamed], [t.bytes for t in content])

    # -- shaped answers --------------------------------------------------------

    def test_json_schema(self):
        shape = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
        r = self.chat(response_format=shape, max_tokens=200)
        self.assertIsInstance(json.loads(r.choices[0].message.content)["answer"], int)
        text = "".join(c.choices[0].delta.content or "" for c in self.chat(response_format=shape, max_tokens=200, stream=True) if c.choices)
        self.assertEqual(json.loads(text), json.loads(r.choices[0].message.content))

    def test_tools(self):
        r = self.chat(tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=200)
        call = r.choices[0].message.tool_calls[0]
        self.assertEqual(r.choices[0].finish_reason, "tool_calls")
        self.assertEqual(call.function.name, "get_weather")
        self.assertIn(json.loads(call.function.arguments)["city"], ("Oslo", "Rome"))
        # The whole round: the answer of the tool goes back to the model.
        again = self.chat(tools=[TOOL], tool_choice="none", messages=[*HELLO, r.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}])
        self.assertIsNone(again.choices[0].message.tool_calls)

    def test_tools_streamed(self):
        name, arguments, finish = "", "", None
        for chunk in self.chat(tools=[TOOL], tool_choice="required", parallel_tool_calls=False, max_tokens=200, stream=True):
            for choice in chunk.choices:
                for call in choice.delta.tool_calls or []:
                    name += call.function.name or ""
                    arguments += call.function.arguments or ""
                finish = choice.finish_reason or finish
        self.assertEqual(name, "get_weather")
        self.assertIn(json.loads(arguments)["city"], ("Oslo", "Rome"))
        self.assertEqual(finish, "tool_calls")

    # -- text completions ------------------------------------------------------

    def test_completion(self):
        r = self.complete()
        self.assertEqual(r.object, "text_completion")
        streamed = "".join(c.choices[0].text for c in self.complete(stream=True) if c.choices)
        self.assertEqual(streamed, r.choices[0].text)

    def test_completion_lists_tokens_and_echo(self):
        self.assertEqual([c.index for c in self.complete(prompt=["Hello", "World"]).choices], [0, 1])
        self.assertEqual(len(self.complete(prompt=[5, 6, 7]).choices), 1)
        self.assertEqual(len(self.complete(prompt=[[5, 6], [7]], n=2).choices), 4)
        self.assertTrue(self.complete(echo=True).choices[0].text.startswith("Hello"))

    def test_completion_logprobs(self):
        p = self.complete(logprobs=2).choices[0].logprobs
        self.assertGreater(len(p.tokens), 0)
        self.assertEqual(len({len(p.tokens), len(p.token_logprobs), len(p.top_logprobs), len(p.text_offset)}), 1)

    # -- models and errors -----------------------------------------------------

    def test_models(self):
        self.assertIn(MODEL, [m.id for m in self.client.models.list()])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)
        self.refused(openai.NotFoundError, self.client.models.retrieve, model="no-such-model")

    def test_errors(self):
        e = self.refused(openai.NotFoundError, self.chat, model="no-such-model")
        self.assertEqual((e.code, e.param), ("model_not_found", "model"))
        e = self.refused(openai.BadRequestError, self.chat, temperature=5)
        self.assertEqual((e.code, e.param), ("invalid_value", "temperature"))
        e = self.refused(openai.BadRequestError, self.chat, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
        self.assertEqual(e.param, "messages[0].content[0].type")
        e = self.refused(openai.BadRequestError, self.chat, reasoning_effort="low")
        self.assertEqual((e.code, e.param), ("unsupported_parameter", "reasoning_effort"))
        e = self.refused(openai.BadRequestError, self.chat, extra_body={"temprature": 1})
        self.assertEqual((e.code, e.param), ("unknown_parameter", "temprature"))

    def test_without_effect(self):
        self.chat(metadata={"a": "b"}, store=False, service_tier="auto", user="u")

    def test_request_id(self):
        r = self.client.chat.completions.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=1, extra_headers={"X-Request-Id": "conformance-1"})
        self.assertEqual(r.headers["x-request-id"], "conformance-1")

    def test_leaving_a_stream_ends_the_request(self):
        name = f"conformance-leaves-{time.monotonic_ns()}"
        stream = self.chat(stream=True, max_tokens=4000, extra_headers={"X-Request-Id": name}, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        end = time.monotonic() + 20
        while self.open_requests() > 0:
            self.assertLess(time.monotonic(), end, "the request goes on without its client")
            time.sleep(0.05)

    def open_requests(self):
        where = urllib.parse.urlparse(BASE)
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=20)
        if where.scheme == "https":
            connection = http.client.HTTPSConnection(where.hostname, where.port, timeout=20, context=TLS)
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return float(next(line for line in text.splitlines() if line.startswith("troupe_open_requests ")).split()[1])


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] in ("--fake", "--fake-tls"):
        FAKE, TLS = sys.argv[2], sys.argv[1] == "--fake-tls" or None
        del sys.argv[1:3]
    unittest.main(verbosity=1)
