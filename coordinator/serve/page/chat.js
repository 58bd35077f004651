// The chat: a conversation that this browser keeps, and the answer that is being written.
//
// A message: {role: "user" | "assistant", content, and of an answer where it has them: reasoning, error, stopped,
// cut (it reached its limit), stats}.

const kExamples = ["Tell me a story about a penguin and a lost kite.", "What is a mixture of experts?", "Write a haiku about terraces."];

class MessageView {
  constructor(message) {
    this.message = message;
    this.body = element("div", {class: "text"});
    this.foot = element("div", {class: "message-foot"});
    this.item = element("li", {class: `message ${message.role}`},
      element("h2", {class: "unseen"}, message.role === "user" ? "You" : "Answer"));
    if (message.role === "user") {
      this.body.textContent = message.content;  // as it was typed
      this.item.append(this.body);
      return;
    }
    this.thought = element("div", {class: "thought text"});
    this.thoughtTitle = element("summary", {}, "Reasoning");
    this.reasoning = element("details", {class: "reasoning"}, this.thoughtTitle, this.thought);
    this.progress = element("p", {class: "progress"});
    this.problem = element("p", {class: "problem", role: "alert"});
    this.content = new MarkdownView(this.body);
    this.thinking = new MarkdownView(this.thought);
    this.item.append(this.reasoning, this.progress, this.body, this.problem, this.foot);
  }

  // progress: what the server does before the first piece; null: nothing, or the answer is complete.
  update(progress, running) {
    const {content, reasoning, error} = this.message;
    this.item.classList.toggle("running", running);
    this.reasoning.hidden = !reasoning;
    this.thoughtTitle.textContent = running && !content ? "Reasoning, being written" : "Reasoning";
    this.thinking.show(reasoning ?? "");
    this.content.show(content);
    this.progress.hidden = !progress;
    this.progress.textContent = progress ?? "";
    this.problem.hidden = !error;
    if (this.problem.textContent !== (error ?? "")) this.problem.textContent = error ?? "";
  }

  finish(actions) {
    const {stats, stopped, cut, content, reasoning} = this.message;
    const remarks = [
      stopped && "Stopped",
      cut && "Cut at the limit of tokens",
      !content && !reasoning && !stopped && !this.message.error && "The model ended without a word",
      stats && count(stats.tokens, "token"),
      stats?.perSecond > 0 && `${showRate(stats.perSecond)} tok/s`,
      stats && `prompt ${whole.format(stats.prompt)}${stats.cached ? `, ${whole.format(stats.cached)} reused` : ""}`,
    ].filter(Boolean);
    this.foot.replaceChildren(element("span", {class: "stats"}, remarks.join(" · ")), ...actions);
  }
}

class Chat {
  constructor(settings) {
    this.settings = settings;
    this.kept = new Kept("localStorage", "conversation");
    this.messages = [];
    this.views = [];
    this.running = null;  // the answer being written: {view, controller, progress}
    this.drawing = false;
    this.announcer = new Announcer(byId("announcer"));
    this.input = byId("input");
    this.scroller = byId("conversation");
    this.#listen();
    for (const message of this.#restored()) this.#add(message);
    this.#settle();
  }

  // A server that wants a key is the page's matter: see main.js.
  onNoKey = () => {};

  // Once a key was given: the answer that failed for want of it.
  retryAfterKey() {
    if (this.messages.at(-1)?.needsKey) this.regenerate();
  }

  send(text) {
    if (this.running || !text.trim()) return;
    this.#add({role: "user", content: text.trim()});
    this.#answer();
  }

  stop() {
    this.running?.controller.abort();
  }

  regenerate() {
    if (this.running || this.messages.at(-1)?.role !== "assistant") return;
    this.messages.pop();
    this.views.pop().item.remove();
    this.#answer();
  }

  clear() {
    this.stop();
    this.messages = [];
    this.views = [];
    byId("messages").replaceChildren();
    this.kept.set(null);
    this.#settle();
    this.announcer.say("The conversation is cleared.");
    this.input.focus();
  }

  #listen() {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    const touch = matchMedia("(pointer: coarse)");  // where Enter is the only way to a new line
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch.matches) return;
      event.preventDefault();
      this.#submit();
    });
    this.input.addEventListener("input", () => this.#fitInput());
    byId("stop").addEventListener("click", () => {
      this.stop();
      this.input.focus();
    });
    byId("clear").addEventListener("click", () => this.clear());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !byId("settings").open) this.stop();
    });
    byId("composer-hint").textContent = touch.matches ? "" : "Enter sends, Shift+Enter begins a new line, Esc stops";
    byId("examples").append(...kExamples.map((text) => element("button", {type: "button", onclick: () => this.send(text)}, text)));
  }

  #restored() {
    const kept = this.kept.get([]);
    const isMessage = (m) => (m?.role === "user" || m?.role === "assistant") && typeof m.content === "string";
    return Array.isArray(kept) ? kept.filter(isMessage) : [];
  }

  #submit() {
    if (this.running) return;
    const text = this.input.value;
    if (!text.trim()) return;
    this.input.value = "";
    this.#fitInput();
    this.send(text);
  }

  #fitInput() {
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  #add(message) {
    const view = new MessageView(message);
    this.messages.push(message);
    this.views.push(view);
    byId("messages").append(view.item);
    if (message.role === "assistant") view.update(null, false);
    return view;
  }

  // What the model is sent: answers that never began are left out.
  #asSent() {
    const system = this.settings.systemMessage;
    return [
      ...(system ? [{role: "system", content: system}] : []),
      ...this.messages.filter(({role, content}) => role === "user" || content).map(({role, content}) => ({role, content})),
    ];
  }

  async #answer() {
    const sent = this.#asSent();
    const message = {role: "assistant", content: ""};
    const running = {view: this.#add(message), controller: new AbortController(), progress: "Waiting for the server"};
    this.running = running;
    this.announcer.begin();
    this.announcer.say("The answer is being written.");
    this.#settle();
    this.#scroll(true);
    try {
      await streamAnswer(sent, this.settings.fields, running.controller.signal, (event) => this.#take(running, event));
    } catch (error) {
      if (running.controller.signal.aborted) message.stopped = true;
      else this.#fail(message, error);
    }
    if (this.running === running) this.running = null;
    if (!this.messages.includes(message)) return;  // cleared meanwhile
    running.view.update(null, false);
    this.#settle();
    this.announcer.end(message.error ? "" : message.stopped ? "Stopped." : "The answer is complete.");
  }

  #take(running, {progress, reasoning, content, end}) {
    const {message} = running.view;
    if (progress) running.progress = `Reading the prompt, ${whole.format(progress.processed)} of ${whole.format(progress.total)} tokens`;
    if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
    if (content) {
      message.content += content;
      this.announcer.add(content);
    }
    if (reasoning || content) running.progress = null;
    if (end) {
      message.cut = end.reason === "length" || undefined;
      if (end.timings)
        message.stats = {
          tokens: end.timings.predicted_n,
          perSecond: end.timings.predicted_per_second,
          prompt: end.timings.prompt_n + end.timings.cache_n,
          cached: end.timings.cache_n,
        };
    }
    this.#draw();
  }

  #fail(message, error) {
    message.error = plainWords(error);
    if (error.status !== 401) return;
    message.needsKey = true;
    this.onNoKey();
  }

  // At most once a frame, however fast tokens come.
  #draw() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      if (!this.running) return;
      this.running.view.update(this.running.progress, true);
      this.#scroll(false);
    });
  }

  // Follows the text unless the reader has scrolled away from its end.
  #scroll(always) {
    const {scrollHeight, scrollTop, clientHeight} = this.scroller;
    if (always || scrollHeight - scrollTop - clientHeight < 160) this.scroller.scrollTop = scrollHeight;
  }

  // After something began or ended: buttons, remarks, and what the browser keeps.
  #settle() {
    const running = this.running !== null;
    if (running) this.running.view.update(this.running.progress, true);
    byId("send").hidden = running;
    byId("stop").hidden = !running;
    byId("empty").hidden = this.messages.length > 0;
    byId("clear").disabled = this.messages.length === 0;
    for (const [i, view] of this.views.entries())
      if (view.message.role === "assistant" && view !== this.running?.view)
        view.finish(this.#actions(view.message, !running && i + 1 === this.views.length));
    if (!running && this.messages.length && !this.kept.set(this.messages))
      byId("composer-hint").textContent = "This browser has no room to keep the conversation";
    this.#scroll(false);
  }

  #actions(message, last) {
    const button = (text, onclick) => element("button", {type: "button", class: "quiet small", onclick}, text);
    const copy = button("Copy", async () => {
      await navigator.clipboard.writeText(message.content);
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = "Copy"), 2000);
    });
    return [
      message.content && navigator.clipboard ? copy : null,
      last ? button(message.error ? "Try again" : "Regenerate", () => this.regenerate()) : null,
    ].filter(Boolean);
  }
}
