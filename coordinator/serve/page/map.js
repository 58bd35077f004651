// The map of layers and experts: who owns each, how much it was used. Drawn on a canvas, read out cell by cell for the
// keyboard and a pointer, and given as a table.

// "0–15, 20" of rising numbers.
function showRanges(numbers) {
  const ranges = [];
  for (const n of numbers) {
    if (ranges.length && ranges.at(-1)[1] === n - 1) ranges.at(-1)[1] = n;
    else ranges.push([n, n]);
  }
  if (ranges.length > 4) return count(numbers.length, "expert");
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

class ExpertMap {
  constructor() {
    this.canvas = byId("map");
    this.read = byId("map-read");
    this.heat = byId("map-heat");
    this.experts = null;  // {owners, use}: [layers][experts]
    this.legs = [];
    this.cell = null;  // {layer, expert} that is read out
    this.heat.addEventListener("change", () => this.draw());
    this.canvas.addEventListener("keydown", (event) => this.#move(event));
    this.canvas.addEventListener("focus", () => this.#point(this.cell ?? {layer: 0, expert: 0}));
    this.canvas.addEventListener("blur", () => this.#point(null));
    this.canvas.addEventListener("pointermove", (event) => this.#point(this.#under(event)));
    this.canvas.addEventListener("pointerleave", () => this.#point(null));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(experts, legs) {
    this.experts = experts;
    this.legs = legs;
    this.most = Math.max(1, ...experts.use.map((layer) => Math.max(...layer)));
    this.draw();
    this.#table();
    if (this.cell) this.#tell();
  }

  get layers() { return this.experts.owners.length; }
  get columns() { return this.experts.owners[0]?.length ?? 0; }

  draw() {
    const frame = this.canvas.parentElement.clientWidth - 8;  // its padding, where the outline of the focus shows
    if (!this.experts || !frame || !this.columns) return;
    const {layers, columns} = this;
    const margin = 26, top = 5;  // for the layers' numbers
    const width = Math.max(frame, margin + 3 * columns);  // below 3 pixels a cell the frame scrolls
    const cellWidth = (width - margin) / columns;
    const cellHeight = Math.max(5, Math.min(18, Math.round(420 / layers)));
    const height = top + layers * cellHeight + 16;
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, {width: Math.round(width * ratio), height: Math.round(height * ratio)});
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.box = {margin, top, cellWidth, cellHeight};

    const style = getComputedStyle(this.canvas);
    const colours = this.legs.map((_, leg) => style.getPropertyValue(`--leg-${leg % 8}`));
    const draw = this.canvas.getContext("2d");
    draw.scale(ratio, ratio);
    const gap = cellWidth >= 5 ? 1 : 0;
    for (let layer = 0; layer < layers; ++layer)
      for (let expert = 0; expert < columns; ++expert) {
        draw.globalAlpha = this.#strength(layer, expert);
        draw.fillStyle = colours[this.experts.owners[layer][expert]];
        draw.fillRect(margin + expert * cellWidth, top + layer * cellHeight, cellWidth - gap, cellHeight - 1);
      }
    draw.globalAlpha = 1;
    this.#axes(draw, style, {columns, layers});
    if (this.cell) this.#frameCell(draw, style);
  }

  // A root, so that what is used seldom still differs from what is not used at all.
  #strength(layer, expert) {
    if (!this.heat.checked) return 1;
    return 0.16 + 0.84 * Math.sqrt(this.experts.use[layer][expert] / this.most);
  }

  #axes(draw, style, {columns, layers}) {
    const {margin, top, cellWidth, cellHeight} = this.box;
    draw.fillStyle = style.getPropertyValue("--muted");
    draw.font = "11px system-ui, sans-serif";
    const layerStep = Math.ceil(14 / cellHeight), step = Math.max(1, 2 ** Math.ceil(Math.log2(34 / cellWidth)));
    draw.textBaseline = "middle";
    draw.textAlign = "right";
    for (let layer = 0; layer < layers; layer += layerStep) draw.fillText(layer, margin - 6, top + (layer + 0.5) * cellHeight);
    draw.textAlign = "left";
    for (let expert = 0; expert < columns; expert += step) draw.fillText(expert, margin + expert * cellWidth, top + layers * cellHeight + 9);
  }

  #frameCell(draw, style) {
    const {margin, top, cellWidth, cellHeight} = this.box;
    draw.strokeStyle = style.getPropertyValue("--text");
    draw.lineWidth = 2;
    draw.strokeRect(margin + this.cell.expert * cellWidth - 1, top + this.cell.layer * cellHeight - 1, cellWidth + 1, cellHeight + 1);
  }

  #under(event) {
    if (!this.box) return null;
    const expert = Math.floor((event.offsetX - this.box.margin) / this.box.cellWidth);
    const layer = Math.floor((event.offsetY - this.box.top) / this.box.cellHeight);
    return expert >= 0 && expert < this.columns && layer >= 0 && layer < this.layers ? {layer, expert} : null;
  }

  #move(event) {
    const steps = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
    if (!this.experts || !steps[event.key]) return;
    event.preventDefault();
    const [down, right] = steps[event.key];
    const {layer, expert} = this.cell ?? {layer: 0, expert: 0};
    const within = (n, size) => Math.max(0, Math.min(size - 1, n));
    this.#point({layer: within(layer + down, this.layers), expert: within(expert + right, this.columns)});
  }

  #point(cell) {
    if (!this.experts || (cell?.layer === this.cell?.layer && cell?.expert === this.cell?.expert)) return;
    this.cell = cell;
    this.draw();
    this.#tell();
  }

  #tell() {
    if (!this.cell) {
      this.read.textContent = "";
      return;
    }
    const {layer, expert} = this.cell;
    this.read.textContent = `Layer ${layer}, expert ${expert}: ${this.legs[this.experts.owners[layer][expert]].name}, ` +
      `used ${count(this.experts.use[layer][expert], "time")}`;
  }

  #table() {
    const head = element("tr", {}, element("th", {scope: "col"}, "Layer"),
      ...this.legs.flatMap((leg) => [element("th", {scope: "col"}, `Experts of ${leg.name}`), element("th", {scope: "col", class: "number"}, "Use")]),
      element("th", {scope: "col"}, "Most used"));
    const rows = this.experts.owners.map((owners, layer) => {
      const use = this.experts.use[layer];
      const all = use.reduce((sum, n) => sum + n, 0);
      const cells = this.legs.flatMap((_, leg) => {
        const owned = owners.flatMap((owner, expert) => (owner === leg ? [expert] : []));
        const used = owned.reduce((sum, expert) => sum + use[expert], 0);
        return [element("td", {}, showRanges(owned) || "none"), element("td", {class: "number"}, showShare(used, all))];
      });
      const busiest = use.indexOf(Math.max(...use));
      return element("tr", {}, element("th", {scope: "row"}, String(layer)), ...cells,
        element("td", {}, all ? `expert ${busiest}, ${count(use[busiest], "time")}` : "none yet"));
    });
    byId("map-table").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  }
}
