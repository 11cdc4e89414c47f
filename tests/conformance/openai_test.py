"""The real OpenAI client against a cluster whose prefill and decode are apart, with the tiny model: what the client library parses without complaint is what its users get."""

import json
import os
import sys
import unittest
from pathlib import Path

import openai

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
from harness import Cluster  # noqa: E402

TINY = os.environ["TROUPE_TINY_GGUF"]
POOLS = [dict(role="prefill", hosts=["h0"], engine="llama", threads=1), dict(role="decode", hosts=["h1"], engine="llama", threads=1)]
HELLO = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Weather of a city",
                                           "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"], "additionalProperties": False}}}]


class OpenAi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(hosts=2, pools=POOLS, model_path=TINY).__enter__()
        cls.addClassCleanup(cls.cluster.__exit__, None, None, None)
        cls.cluster.start()
        cls.cluster.wait_ready()
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.cluster.gateway_port}/v1", api_key="none", max_retries=0, timeout=60)
        cls.addClassCleanup(cls.client.close)

    def chat(self, **more):
        return self.client.chat.completions.create(**{"model": "m", "messages": HELLO, "max_tokens": 12, "temperature": 0, **more})

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["m"])
        self.assertEqual(self.client.models.retrieve("m").object, "model")
        with self.assertRaises(openai.NotFoundError) as e:
            self.client.models.retrieve("nobody")
        self.assertEqual(e.exception.code, "model_not_found")

    def test_chat(self):
        answer = self.chat()
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertLessEqual(answer.usage.completion_tokens, 12)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertIsNotNone(answer.usage.prompt_tokens_details.cached_tokens)

    def test_streamed_chat_is_the_same_text(self):
        whole = self.chat()
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], whole.choices[0].finish_reason)
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_streams_have_no_usage_unless_asked(self):
        self.assertTrue(all(c.usage is None for c in self.chat(stream=True)))

    def test_same_seed_same_answer(self):
        first, second = (self.chat(temperature=1.0, seed=7).choices[0].message.content for _ in range(2))
        self.assertEqual(first, second)

    def test_choices(self):
        answer = self.chat(n=3, temperature=1.0, seed=1)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
        self.assertGreater(len({c.message.content for c in answer.choices}), 1)

    def test_stop(self):
        text = self.chat(max_tokens=40).choices[0].message.content
        stop = text[5:8]
        cut = self.chat(max_tokens=40, stop=[stop]).choices[0]
        self.assertEqual(cut.finish_reason, "stop")
        self.assertEqual(cut.message.content, text[:text.index(stop)])

    def test_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=3)
        entries = answer.choices[0].logprobs.content
        self.assertEqual(len(entries), answer.usage.completion_tokens - (answer.choices[0].finish_reason == "stop"))
        for entry in entries:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertAlmostEqual(entry.top_logprobs[0].logprob, entry.logprob, places=4)  # greedy

    def test_json_schema(self):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
        answer = self.chat(max_tokens=200, response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}})
        self.assertEqual(answer.choices[0].finish_reason, "stop", answer)
        self.assertIsInstance(json.loads(answer.choices[0].message.content)["ok"], bool)

    def test_forced_tool_call(self):
        answer = self.chat(max_tokens=300, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "weather"}})
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls", answer)
        call = answer.choices[0].message.tool_calls[0]
        self.assertEqual(call.function.name, "weather")
        self.assertIn("city", json.loads(call.function.arguments))

    def test_completions(self):
        answer = self.client.completions.create(model="m", prompt=["Hello", "World"], max_tokens=4, temperature=0, echo=True)
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        self.assertTrue(answer.choices[0].text.startswith("Hello"))
        self.assertTrue(answer.choices[1].text.startswith("World"))
        tokens = self.client.completions.create(model="m", prompt=[5, 6, 7], max_tokens=2)
        self.assertGreaterEqual(tokens.usage.prompt_tokens, 3)

    def test_errors(self):
        cases = [
            (dict(model="nobody"), openai.NotFoundError, "model"),
            (dict(temperature=3), openai.BadRequestError, "temperature"),
            (dict(messages=[]), openai.BadRequestError, "messages"),
            (dict(max_tokens=100_000), openai.BadRequestError, "max_tokens"),
            (dict(extra_body={"no_such_parameter": 1}), openai.BadRequestError, "no_such_parameter"),
            (dict(messages=[{"role": "user", "content": "word " * 20_000}]), openai.BadRequestError, "messages"),
        ]
        for change, kind, parameter in cases:
            with self.subTest(change if len(str(change)) < 100 else list(change)), self.assertRaises(kind) as e:
                self.chat(**change)
            self.assertEqual(e.exception.param, parameter)
            self.assertTrue(e.exception.code)

    def test_leaving_a_stream(self):
        stream = self.chat(stream=True, max_tokens=4_000, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.assertEqual(self.chat().object, "chat.completion")


if __name__ == "__main__":
    unittest.main(verbosity=2)
