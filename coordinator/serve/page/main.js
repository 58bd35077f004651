// The page: which view is shown, whether the server is there, and the key it may ask for.

class Page {
  constructor() {
    this.settings = new Settings();
    this.chat = new Chat(this.settings);
    this.tiers = new Tiers();
    this.poller = new Poller((state) => this.#numbers(state), (error, ms) => this.#trouble(error, ms));
    this.known = false;  // the model's name and the server's settings
    this.chat.onNoKey = () => this.#askForKey();
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#takeKey();
    });
    window.addEventListener("hashchange", () => this.#show());
    byId("skip").addEventListener("click", (event) => {
      event.preventDefault();  // the address says which view is shown
      byId("main").focus();
    });
    this.#show();
  }

  #show() {
    const tiers = location.hash === "#tiers";
    for (const view of ["chat", "tiers"]) {
      const shown = (view === "tiers") === tiers;
      byId(`view-${view}`).hidden = !shown;
      if (shown) byId(`link-${view}`).setAttribute("aria-current", "page");
      else byId(`link-${view}`).removeAttribute("aria-current");
    }
    document.title = tiers ? "Tiers · Terrace" : "Chat · Terrace";
    window.scrollTo(0, 0);
    this.tiers.show(tiers);
    this.poller.watch(tiers);
    if (!tiers && matchMedia("(pointer: fine)").matches) byId("input").focus();
  }

  #numbers(state) {
    byId("key-form").hidden = true;
    byId("view-tiers").classList.remove("stale", "waiting");
    this.tiers.add(state);
    const nodes = state.legs.filter(({kind}) => kind === "node");
    const lost = nodes.filter(({state: is}) => is !== "ok").length;
    if (state.step_error) this.#state("bad", "Steps fail");
    else if (lost) this.#state("warn", `${lost} of ${count(nodes.length, "node")} lost`);
    else this.#state("ok", nodes.length ? `${count(nodes.length, "node")} at work` : "Ready, no nodes");
    if (!this.known) this.#learn();
  }

  #trouble(error, ms) {
    byId("view-tiers").classList.add("stale");
    if (error.status === 401) {
      this.#askForKey();
      this.#state("warn", "Key needed");
    } else if (error.status === 503) {
      this.#state("warn", error.detail || "Not ready");
    } else {
      this.#state("bad", "Not reachable");
    }
    this.tiers.note(error.status === 401 ? plainWords(error) : `${plainWords(error)} Next try in ${Math.round(ms / 1000)} s.`);
  }

  #state(kind, text) {
    byId("server-state").className = `pill ${kind}`;
    if (byId("server-state-text").textContent !== text) byId("server-state-text").textContent = text;
  }

  // Once: what does not change while a server runs.
  async #learn() {
    this.known = true;
    try {
      const props = await (await request("/props")).json();
      byId("model-name").textContent = props.model_alias;
      byId("model-name").title = props.model_alias;
      this.settings.showDefaults(props.default_generation_settings.params);
      byId("empty-text").textContent = `A conversation may have up to ${count(props.default_generation_settings.n_ctx, "token")}. Everything stays between this page and your server.`;
    } catch {
      this.known = false;  // asked again with the next numbers
    }
  }

  #askForKey() {
    if (!byId("key-form").hidden) return;
    byId("key-form").hidden = false;
    byId("key-input").focus();
  }

  #takeKey() {
    const key = byId("key-input").value.trim();
    if (!key) return;
    apiKey.set(key);
    byId("key-input").value = "";
    byId("key-form").hidden = true;
    this.poller.now();
    this.chat.retryAfterKey();
  }
}

new Page();
