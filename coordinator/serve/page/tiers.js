// The tier view: GET /tiers as figures, charts, a card for each leg and the map of experts.

const legClass = (leg) => `leg-${leg % 8}`;
const legMark = (legs, leg) => (legs[leg].kind === "host" ? "H" : String(leg));
const perSecond = (of) => (before, after, seconds) => (of(after) - of(before)) / seconds;
// Difference of one count over that of another, null where the second did not move.
const perUnit = (of, unit) => (before, after) => (unit(after) > unit(before) ? (of(after) - of(before)) / (unit(after) - unit(before)) : null);

const legStates = {
  ok: "at work",
  suspect: "late, its work is done here until it answers",
  lost: "lost, its work is done here until it is back",
  wrong: "wrong, stays out until the next start",
};

function swatch(legs, leg) {
  return element("span", {class: `swatch mark ${legClass(leg)}`, "aria-hidden": "true"}, legMark(legs, leg));
}

class Tiers {
  static kRecent = 15;  // s that "now" means

  constructor() {
    this.history = new History();
    this.map = new ExpertMap();
    this.rates = new Chart(byId("rate-chart"), "Tokens a second", showRate);
    this.waits = new Chart(byId("wait-chart"), "Wait for each leg, per step", showMicroseconds);
    this.visible = false;
    this.cards = [];
  }

  show(visible) {
    this.visible = visible;
    if (visible && this.history.now) this.#draw();
  }

  add(state) {
    this.history.add(state);
    if (state.experts) this.experts = state.experts;
    if (this.visible) this.#draw();
  }

  note(text) {
    if (byId("tiers-note").textContent !== text) byId("tiers-note").textContent = text;
  }

  #draw() {
    const state = this.history.now;
    this.note(state.step_error ? `Steps fail: ${state.step_error}` : `Live, epoch ${state.epoch}`);
    this.#figures(state);
    this.#charts(state);
    this.#legs(state);
    if (this.experts && this.experts !== this.map.experts) this.map.show(this.experts, state.legs);
  }

  #figures(state) {
    const {tokens, steps, slots, queue, cache} = state;
    const recent = (of) => this.history.recent(Tiers.kRecent, of);
    const step = recent(perUnit((s) => s.steps.seconds, (s) => s.steps.count));
    const figures = [
      ["Generating", recent(perSecond((s) => s.tokens.made)), (v) => `${showRate(v)} tok/s`],
      ["Reading prompts", recent(perSecond((s) => s.tokens.prompt_computed)), (v) => `${showRate(v)} tok/s`],
      ["Time of a step", step ?? (steps.count ? steps.seconds / steps.count : null), (v) => showMicroseconds(v * 1e6)],
      ["Busy slots", slots.total - slots.idle, (v) => `${v} of ${slots.total}`],
      ["Waiting requests", queue.waiting, (v) => `${v} of ${queue.limit}`],
      ["Prompt tokens reused", tokens.prompt_computed + tokens.prompt_cached || null, (v) => showShare(tokens.prompt_cached, v)],
      ["Keys and values", cache.bytes, (v) => (cache.budget_bytes ? `${showBytes(v)} of ${showBytes(cache.budget_bytes)}` : showBytes(v))],
      ["Tokens generated", tokens.made, (v) => whole.format(v)],
    ];
    byId("figures").replaceChildren(...figures.filter(([, value]) => value !== null).map(([name, value, show]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, show(value)))));
  }

  #charts(state) {
    this.rates.draw([
      {name: "generated", css: "series-made", points: this.history.series(perSecond((s) => s.tokens.made))},
      {name: "of prompts", css: "series-read", points: this.history.series(perSecond((s) => s.tokens.prompt_computed))},
    ], this.history.span);
    this.waits.draw(state.legs.map((leg, i) => ({
      name: leg.name, css: legClass(i), points: this.history.series(perUnit((s) => s.legs[i].wait_us, (s) => s.steps.count)),
    })), this.history.span);
  }

  #legs({legs}) {
    const pairs = legs.reduce((sum, leg) => sum + leg.pairs, 0);
    const experts = legs.reduce((sum, leg) => sum + leg.experts, 0);
    const part = (leg) => (pairs ? leg.pairs / pairs : leg.experts / experts);
    const bar = byId("share-bar");
    bar.replaceChildren(...legs.map((leg, i) => {
      const piece = element("span", {class: legClass(i)});
      piece.style.flexGrow = String(part(leg));
      return piece;
    }));
    bar.setAttribute("aria-label", `Share of ${pairs ? "pairs" : "experts"}: ${legs.map((leg) => `${leg.name} ${showShare(part(leg), 1)}`).join(", ")}`);
    byId("legs").replaceChildren(...legs.map((leg, i) => this.#card(legs, i, {pairs, experts})));
    byId("map-legend").replaceChildren(...legs.map((leg, i) =>
      element("span", {class: "legend-item"}, swatch(legs, i), leg.name, element("b", {}, count(leg.experts, "expert")))));
  }

  #card(legs, index, all) {
    const leg = legs[index];
    const node = leg.kind === "node";
    const recent = (of) => this.history.recent(Tiers.kRecent, of);
    const aBatch = (field) => {
      const now = recent(perUnit((s) => s.legs[index][field], (s) => s.legs[index].batches));
      return now ?? (leg.batches ? leg[field] / leg.batches : null);
    };
    const traffic = (field) => {
      const rate = recent(perSecond((s) => s.legs[index][field]));
      return showBytes(leg[field]) + (rate ? ` · ${showBytes(rate)}/s` : "");
    };
    const rows = [
      ["Experts", `${whole.format(leg.experts)} (${showShare(leg.experts, all.experts)})`],
      ["Pairs", leg.pairs ? `${whole.format(leg.pairs)} (${showShare(leg.pairs, all.pairs)})` : "none yet"],
      ["Wait, a batch", aBatch("wait_us"), showMicroseconds],
      ["Computing, a batch", aBatch("compute_us"), showMicroseconds],
      node && ["Round trip, a batch", aBatch("round_trip_us"), showMicroseconds],
      node && ["Sent", traffic("bytes_sent")],
      node && ["Received", traffic("bytes_received")],
      node && ["Experts sent", showBytes(leg.weight_bytes_sent)],
      node && leg.losses > 0 && ["Lost, and back again", `${whole.format(leg.losses)}, ${whole.format(leg.rejoins)}`],
      node && leg.hedged_pairs > 0 && ["Pairs computed here instead", whole.format(leg.hedged_pairs)],
    ];
    return element("li", {class: `leg-card ${leg.state}`},
      element("h4", {}, swatch(legs, index), element("span", {class: "leg-name"}, leg.name)),
      element("p", {class: "leg-state"}, element("span", {class: "dot", "aria-hidden": "true"}),
        `${node ? "Node" : "This machine"}, ${legStates[leg.state] ?? leg.state}`),
      leg.reason && element("p", {class: "leg-reason"}, leg.reason),
      element("dl", {}, ...rows.filter((row) => row && row[1] !== null).map(([name, value, show]) =>
        element("div", {}, element("dt", {}, name), element("dd", {}, show ? show(value) : value)))));
  }
}
