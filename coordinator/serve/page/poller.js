// Asks the server how it is, again and again: GET /tiers. Often while somebody looks at the numbers, seldom otherwise,
// not at all while the page is hidden, and ever more seldom while the server does not answer.

class Poller {
  static kOften = 1000;  // ms
  static kSeldom = 5000;
  static kMost = 30000;
  static kLoading = 5000;  // a server that says that it is not ready yet will be
  static kMapEvery = 4;  // the map of experts is large and changes slowly: with every so many answers

  // onNumbers(state), onError(error, ms until the next try)
  constructor(onNumbers, onError) {
    this.onNumbers = onNumbers;
    this.onError = onError;
    this.watched = false;
    this.failures = 0;
    this.longest = Poller.kMost;
    this.asked = 0;
    this.timer = null;
    this.busy = false;
    document.addEventListener("visibilitychange", () => this.now());
    window.addEventListener("online", () => this.now());
  }

  // Whether somebody looks at the numbers.
  watch(watched) {
    if (watched && !this.watched) this.asked = 0;
    this.watched = watched;
    this.now();
  }

  now() {
    clearTimeout(this.timer);
    this.timer = null;
    if (!document.hidden && !this.busy) this.#ask();
  }

  async #ask() {
    this.busy = true;
    const map = this.watched && this.asked % Poller.kMapEvery === 0;
    try {
      const response = await request(map ? "/tiers" : "/tiers?experts=0", {signal: AbortSignal.timeout(15000)});
      const state = await response.json();
      this.failures = 0;
      ++this.asked;
      this.onNumbers(state);
    } catch (error) {
      ++this.failures;
      this.asked = 0;
      if (error.status === 401) this.failures = Infinity;  // until now() is called with a key
      this.longest = error.status === 503 ? Poller.kLoading : Poller.kMost;
      this.onError(error, this.#pause());
    }
    this.busy = false;
    if (!document.hidden && Number.isFinite(this.failures)) this.timer = setTimeout(() => this.now(), this.#pause());
  }

  #pause() {
    const usual = this.watched ? Poller.kOften : Poller.kSeldom;
    return Math.min(usual * 2 ** Math.min(this.failures, 10), this.longest);
  }
}

// The last minutes of what the server counts, and rates made of it.
class History {
  static kSpan = 300;       // s that are kept
  static kLeastStep = 250;  // ms between two states: rates of closer ones are noise

  constructor() {
    this.states = [];
  }

  add(state) {
    const last = this.states.at(-1);
    if (last && (state.at_ms < last.at_ms || state.tokens.made < last.tokens.made)) this.states = [];  // another server
    if (this.states.length && state.at_ms - this.now.at_ms < History.kLeastStep) return;
    this.states.push(state);
    while (state.at_ms - this.states[0].at_ms > History.kSpan * 1000) this.states.shift();
  }
  get now() {
    return this.states.at(-1);
  }
  // Seconds that a chart shows: as many as there are, in a few sizes, so that it does not creep.
  get span() {
    const seconds = (this.now.at_ms - this.states[0].at_ms) / 1000;
    return [60, 120, History.kSpan].find((span) => seconds <= span) ?? History.kSpan;
  }

  // [{t: seconds before now, value}] of two neighbours each; of(before, after, seconds) gives null where it has none.
  series(of) {
    const points = [];
    for (let i = 1; i < this.states.length; ++i) {
      const before = this.states[i - 1], after = this.states[i];
      const seconds = (after.at_ms - before.at_ms) / 1000;
      const value = seconds > 0 ? of(before, after, seconds) : null;
      if (value !== null) points.push({t: (this.now.at_ms - after.at_ms) / 1000, value});
    }
    return points;
  }

  // As of(), over the last `seconds`.
  recent(seconds, of) {
    const before = this.states.find((state) => this.now.at_ms - state.at_ms <= seconds * 1000);
    if (!before || before === this.now) return null;
    return of(before, this.now, (this.now.at_ms - before.at_ms) / 1000);
  }
}
