// What the user sets: sampling, system message; kept in this browser. A field that is empty is not sent.

const kSettings = [
  {name: "temperature", label: "Temperature", min: 0, max: 5, step: 0.05, help: "0 always takes the likeliest token."},
  {name: "top_p", label: "Top-p", min: 0, max: 1, step: 0.01, help: "Keep the likeliest tokens up to this sum; 1 is off."},
  {name: "top_k", label: "Top-k", min: 0, max: 100000, step: 1, help: "Keep so many tokens; 0 is off."},
  {name: "min_p", label: "Min-p", min: 0, max: 1, step: 0.01, help: "Drop tokens below this part of the likeliest; 0 is off."},
  {name: "seed", label: "Seed", min: 0, max: 4294967295, step: 1, otherwise: "random", help: "The same seed gives the same answer again."},
  {name: "max_tokens", label: "Max tokens", min: 1, max: 1048576, step: 1, otherwise: "no limit", help: "The longest answer."},
];

class Settings {
  constructor() {
    this.kept = new Kept("localStorage", "settings");
    this.values = this.kept.get({});
    this.inputs = new Map();
    this.dialog = byId("settings");
    this.system = byId("set-system");
    this.#build();
    byId("open-settings").addEventListener("click", () => this.#open());
    byId("close-settings").addEventListener("click", () => this.dialog.close());
    byId("reset-settings").addEventListener("click", () => this.#reset());
    byId("forget-key").addEventListener("click", () => {
      apiKey.set(null);
      byId("key-field").hidden = true;
    });
    // A click on the backdrop, which is the dialog's own box beside its content.
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog && event.offsetX < 0) this.dialog.close();
    });
    this.#show();
  }

  // As fields of a request.
  get fields() {
    const fields = {};
    for (const {name} of kSettings) if (typeof this.values[name] === "number") fields[name] = this.values[name];
    return fields;
  }
  get systemMessage() {
    return typeof this.values.system === "string" ? this.values.system.trim() : "";
  }

  // The server's own values, from GET /props, where a field is left empty.
  showDefaults(params) {
    for (const {name} of kSettings) {
      const value = params?.[name];
      if (typeof value === "number" && value >= 0 && name !== "seed")
        this.inputs.get(name).placeholder = String(Number(value.toFixed(3)));
    }
  }

  #build() {
    for (const setting of kSettings) {
      const id = `set-${setting.name}`;
      const input = element("input", {
        id, type: "number", inputmode: setting.step < 1 ? "decimal" : "numeric", min: setting.min, max: setting.max,
        step: setting.step < 1 ? "any" : 1, placeholder: setting.otherwise ?? "", "aria-describedby": `${id}-help`,
        oninput: () => this.#take(),
      });
      this.inputs.set(setting.name, input);
      byId("fields").append(element("div", {class: "field"},
        element("label", {for: id}, setting.label), input,
        element("p", {id: `${id}-help`, class: "help"}, setting.help)));
    }
    this.system.addEventListener("input", () => this.#take());
  }

  #open() {
    byId("key-field").hidden = !apiKey.get("");
    this.dialog.showModal();
  }

  #take() {
    const values = {};
    for (const [name, input] of this.inputs) {
      const wrong = !input.checkValidity();
      input.setAttribute("aria-invalid", String(wrong));
      byId(`${input.id}-help`).textContent = wrong ? input.validationMessage : kSettings.find((s) => s.name === name).help;
      if (!wrong && input.value !== "") values[name] = input.valueAsNumber;
    }
    if (this.system.value.trim()) values.system = this.system.value;
    this.values = values;
    this.kept.set(values);
    this.#badge();
  }

  #show() {
    for (const [name, input] of this.inputs) input.value = this.values[name] ?? "";
    this.system.value = this.values.system ?? "";
    this.#take();
  }

  #reset() {
    this.values = {};
    this.#show();
  }

  #badge() {
    const changed = Object.keys(this.values).length;
    byId("settings-changed").hidden = changed === 0;
    byId("settings-changed").textContent = `${changed} set`;
  }
}
