// One answer of /v1/chat/completions, as it comes.

// The data of each event of a server-sent stream. Throws where it ends in the middle of one.
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) break;
    const events = (rest + value).split(/\r?\n\r?\n/);
    rest = events.pop();
    for (const event of events) {
      const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      if (data.length) yield data.map((line) => line.slice(5).trimStart()).join("\n");
    }
  }
  if (rest.trim()) throw new ServerError(-1, "the connection ended early");
}

// Asks for an answer to `messages` and calls `on` with what comes, in order:
//   {progress: {total, cache, processed}}   the prompt is being read
//   {reasoning: text}, {content: text}      a piece
//   {end: {reason, timings}}                the last; without it an error is thrown
async function streamAnswer(messages, fields, signal, on) {
  const response = await request("/v1/chat/completions", {
    method: "POST",
    headers: {"Content-Type": "application/json"},
    body: JSON.stringify({messages, ...fields, stream: true, return_progress: true}),
    signal,
  });
  const end = {reason: null, timings: null};
  for await (const data of eventsOf(response.body)) {
    if (data === "[DONE]") {
      on({end});
      return;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ServerError(Number(chunk.error.code) || -1, String(chunk.error.message ?? ""), String(chunk.error.type ?? ""));
    if (chunk.prompt_progress) on({progress: chunk.prompt_progress});
    if (chunk.timings) end.timings = chunk.timings;
    const choice = chunk.choices?.[0];
    if (choice?.delta?.reasoning_content) on({reasoning: choice.delta.reasoning_content});
    if (choice?.delta?.content) on({content: choice.delta.content});
    if (choice?.finish_reason) end.reason = choice.finish_reason;
  }
  throw new ServerError(-1, "the connection ended early");
}

// Reads a growing answer aloud without flooding: whole sentences, at most every few seconds, and how it ended.
class Announcer {
  static kPause = 4000;  // ms: a screen reader gets through two sentences

  constructor(region) {
    this.region = region;
    this.begin();
  }
  begin() {
    this.waiting = "";
    this.last = performance.now();
  }
  add(text) {
    this.waiting += text;
    if (performance.now() - this.last < Announcer.kPause) return;
    const end = Math.max(...[". ", "! ", "? ", "\n", "。"].map((mark) => this.waiting.lastIndexOf(mark)));
    if (end < 0) return;
    this.say(this.waiting.slice(0, end + 1));
    this.waiting = this.waiting.slice(end + 1);
    this.last = performance.now();
  }
  end(remark) {
    this.say(`${this.waiting} ${remark}`);
    this.waiting = "";
  }
  say(text) {
    this.region.textContent = text.trim();
  }
}
