"""The official Python clients, unchanged, against a live `terrace serve`."""
import json
import unittest

import server
import support

STORY = "Once upon a time"
BALL = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "size": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["colour", "size"],
    "additionalProperties": False,
}


def check_ball(test, ball):
    test.assertEqual(set(ball), {"colour", "size"})
    test.assertIn(ball["colour"], ("red", "green"))
    test.assertIn(ball["size"], range(10))


def serve_with_a_key(case):
    """A server that takes the key sk-right, for all tests of the class."""
    keys = case.enterClassContext(server.write_keys("sk-right"))
    return case.enterClassContext(server.serve("--api-key-file", keys.name))


class OpenAi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.openai = support.module("openai")
        cls.server = serve_with_a_key(cls)
        cls.client = cls.openai.OpenAI(base_url=cls.server.url + "/v1", api_key="sk-right", max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    def chat(self, **options):
        options.setdefault("messages", [{"role": "user", "content": "Tell me a story."}])
        options.setdefault("max_tokens", 12)
        options.setdefault("temperature", 0)
        return self.client.chat.completions.create(model=self.model, **options)

    def test_chat_answers_with_text_and_usage(self):
        answer = self.chat()
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertTrue(answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 12)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 12)

    def test_stream_adds_up_to_the_whole_answer(self):
        whole = self.chat(seed=7, temperature=0.8)
        chunks = list(self.chat(seed=7, temperature=0.8, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, 12)
        reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
        self.assertEqual(reasons, ["length"])

    def test_logprobs_are_of_each_token(self):
        answer = self.chat(logprobs=True, top_logprobs=3, max_tokens=4)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), 4)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.token, token.top_logprobs[0].token)  # greedy
            self.assertLessEqual(token.logprob, 0)
        self.assertEqual("".join(token.token for token in content), answer.choices[0].message.content)

    def test_several_choices_are_several_texts(self):
        answer = self.chat(n=3, temperature=1.5, seed=1)
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        self.assertEqual(len({choice.message.content for choice in answer.choices}), 3)

    def test_stop_ends_the_text_before_it(self):
        whole = self.chat(max_tokens=30).choices[0].message.content
        word = whole.split()[3]
        stopped = self.chat(max_tokens=30, stop=[word]).choices[0]
        self.assertEqual(stopped.message.content, whole[: whole.index(word)])
        self.assertEqual(stopped.finish_reason, "stop")

    def test_json_schema_is_kept(self):
        form = {"type": "json_schema", "json_schema": {"name": "ball", "schema": BALL, "strict": True}}
        for seed in range(3):
            text = self.chat(response_format=form, max_tokens=60, temperature=1, seed=seed).choices[0].message.content
            check_ball(self, json.loads(text))

    def test_tool_is_called_whole_and_in_a_stream(self):
        throw = {"name": "throw", "description": "A ball.", "parameters": BALL}
        options = {
            "tools": [{"type": "function", "function": throw}],
            "tool_choice": {"type": "function", "function": {"name": "throw"}},
            "max_tokens": 80, "temperature": 1, "seed": 5,
        }  # fmt: skip
        whole = self.chat(**options).choices[0]
        self.assertEqual(whole.finish_reason, "tool_calls")
        (call,) = whole.message.tool_calls
        self.assertEqual((call.type, call.function.name), ("function", "throw"))
        check_ball(self, json.loads(call.function.arguments))
        choices = [chunk.choices[0] for chunk in self.chat(stream=True, **options) if chunk.choices]
        deltas = [delta for choice in choices for delta in choice.delta.tool_calls or []]
        self.assertEqual({delta.index for delta in deltas}, {0})
        self.assertEqual((deltas[0].function.name, deltas[0].id[:5]), ("throw", "call_"))
        self.assertEqual("".join(delta.function.arguments or "" for delta in deltas), call.function.arguments)
        self.assertEqual(choices[-1].finish_reason, "tool_calls")

    def test_what_a_tool_said_is_read_by_the_model(self):
        call = {"id": "call_1", "type": "function", "function": {"name": "throw", "arguments": "{}"}}
        tools = [{"type": "function", "function": {"name": "throw"}}]
        messages = [{"role": "user", "content": "Throw."}, {"role": "assistant", "tool_calls": [call]}]
        told = []
        for text in ("It flew.", "It flew far, far away."):
            answer = {"role": "tool", "tool_call_id": "call_1", "content": text}
            told.append(self.chat(messages=[*messages, answer], tools=tools, tool_choice="none").usage.prompt_tokens)
        self.assertLess(told[0], told[1])

    def test_completion_and_its_stream_agree(self):
        options = {"model": self.model, "prompt": STORY, "max_tokens": 10, "temperature": 0}
        whole = self.client.completions.create(**options).choices[0].text
        pieces = [chunk.choices[0].text for chunk in self.client.completions.create(stream=True, **options) if chunk.choices]
        self.assertEqual("".join(pieces), whole)
        self.assertGreater(len(pieces), 5)

    def test_responses_answer_and_stream(self):
        options = {"model": self.model, "input": "Tell me a story.", "max_output_tokens": 16, "temperature": 0}
        whole = self.client.responses.create(**options)
        self.assertTrue(whole.output_text)
        events = list(self.client.responses.create(stream=True, **options))
        deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(deltas, whole.output_text)
        self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))

    def test_errors_are_the_clients_own(self):
        with self.assertRaises(self.openai.BadRequestError) as wrong:
            self.chat(extra_body={"nosuch_field": 1})
        self.assertIn("nosuch_field", str(wrong.exception))
        with self.assertRaises(self.openai.BadRequestError):
            self.chat(messages=[{"role": "user", "content": "long " * 5000}])
        with self.assertRaises(self.openai.AuthenticationError):
            self.client.with_options(api_key="sk-wrong").models.list()
        with self.assertRaises(self.openai.InternalServerError) as missing:
            self.client.embeddings.create(model=self.model, input="x")
        self.assertEqual(missing.exception.status_code, 501)
        self.assertEqual(missing.exception.response.headers["x-should-retry"], "false")

    def test_leaving_a_stream_frees_its_slot(self):
        headers = {"Authorization": "Bearer sk-right"}
        stream = self.chat(max_tokens=None, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        server.wait_until(lambda: self.server.slots_in_use(headers) == 0)


class Anthropic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.anthropic = support.module("anthropic")
        cls.server = serve_with_a_key(cls)
        cls.client = cls.anthropic.Anthropic(base_url=cls.server.url, api_key="sk-right", max_retries=0)
        cls.options = {
            "model": "terrace",
            "max_tokens": 12,
            "extra_body": {"temperature": 0},
            "messages": [{"role": "user", "content": "Tell me a story."}],
        }

    def test_message_answers_with_text_and_usage(self):
        message = self.client.messages.create(**self.options)
        self.assertEqual(message.role, "assistant")
        self.assertTrue(message.content[0].text)
        self.assertEqual(message.stop_reason, "max_tokens")
        self.assertEqual(message.usage.output_tokens, 12)

    def test_stream_adds_up_to_the_whole_message(self):
        whole = self.client.messages.create(**self.options)
        with self.client.messages.stream(**self.options) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.usage.output_tokens, 12)
        self.assertEqual(final.stop_reason, "max_tokens")

    def test_tool_is_used_whole_and_in_a_stream(self):
        options = {
            **self.options, "max_tokens": 80, "extra_body": {"temperature": 1, "seed": 5},
            "tools": [{"name": "throw", "description": "A ball.", "input_schema": BALL}],
            "tool_choice": {"type": "tool", "name": "throw"},
        }  # fmt: skip
        whole = self.client.messages.create(**options)
        self.assertEqual(whole.stop_reason, "tool_use")
        self.assertEqual([(block.type, block.name) for block in whole.content], [("tool_use", "throw")])
        check_ball(self, whole.content[0].input)
        with self.client.messages.stream(**options) as stream:
            final = stream.get_final_message()
        self.assertEqual(final.content[0].input, whole.content[0].input)
        self.assertEqual(final.stop_reason, "tool_use")

    def test_tokens_are_counted_as_they_are_used(self):
        counted = self.client.messages.count_tokens(model="terrace", messages=self.options["messages"])
        used = self.client.messages.create(**self.options).usage
        cached = used.cache_read_input_tokens or 0
        self.assertEqual(counted.input_tokens, used.input_tokens + cached)

    def test_errors_are_the_clients_own(self):
        with self.assertRaises(self.anthropic.BadRequestError):
            self.client.messages.create(**{**self.options, "extra_body": {"nosuch_field": 1}})
        with self.assertRaises(self.anthropic.AuthenticationError):
            self.client.with_options(api_key="sk-wrong").messages.create(**self.options)


if __name__ == "__main__":
    support.main()
