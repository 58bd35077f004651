// A line chart of the last minutes as SVG, with a legend and, for who does not see it, one sentence.

const kChart = {width: 480, height: 170, left: 66, right: 8, top: 8, bottom: 22};

// The least of 1, 2, 2.5, 5 times a power of ten that is no less than `value`.
function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((top) => top >= value * (1 - 1e-9));
}

// Pieces of a line: where nothing was measured for long, nothing is drawn.
function unbroken(points) {
  const longest = 12;  // s
  const pieces = [];
  for (const point of points) {
    if (pieces.length && pieces.at(-1).at(-1).t - point.t <= longest) pieces.at(-1).push(point);
    else pieces.push([point]);
  }
  return pieces;
}

class Chart {
  // show(value): a value as text; name: what the chart is of
  constructor(root, name, show) {
    this.root = root;
    this.name = name;
    this.show = show;
    this.svg = svgElement("svg", {viewBox: `0 0 ${kChart.width} ${kChart.height}`, role: "img"});
    this.legend = element("div", {class: "legend"});
    root.append(this.svg, this.legend);
  }

  // lines: [{name, css: class of colour, points: [{t, value}]}]; span: seconds that are shown
  draw(lines, span) {
    const ago = span < 120 ? `${span} s ago` : ago;
    const {width, height, left, right, top, bottom} = kChart;
    const most = niceTop(Math.max(0, ...lines.flatMap(({points}) => points.map(({value}) => value))));
    const x = (t) => width - right - (t / span) * (width - left - right);
    const y = (value) => height - bottom - (value / most) * (height - top - bottom);
    const text = (at, line, anchor, content) => svgElement("text", {x: at, y: line, "text-anchor": anchor}, content);

    const parts = [0, most / 2, most].flatMap((value) => [
      svgElement("line", {class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value)}),
      text(left - 6, y(value) + 4, "end", value === 0 ? "0" : this.show(value)),
    ]);
    parts.push(text(left, height - 4, "start", `${Math.round(span / 60)} min ago`), text(width - right, height - 4, "end", "now"));
    for (const {css, points} of lines)
      for (const piece of unbroken(points.filter(({t}) => t <= span))) {
        const at = piece.map(({t, value}) => [x(t).toFixed(1), y(value).toFixed(1)]);
        parts.push(at.length > 1 ? svgElement("polyline", {class: `line ${css}`, points: at.join(" ")})
                                 : svgElement("circle", {class: `point ${css}`, cx: at[0][0], cy: at[0][1], r: 2.5}));
      }
    this.svg.replaceChildren(...parts);
    const now = ({points}) => (points.length ? this.show(points.at(-1).value) : "no numbers yet");
    this.svg.setAttribute("aria-label", `${this.name}: ${lines.map((line) => `${line.name} ${now(line)}`).join(", ")}`);
    this.legend.replaceChildren(...lines.map((line) =>
      element("span", {class: "legend-item"}, element("span", {class: `swatch ${line.css}`, "aria-hidden": "true"}), line.name,
              element("b", {}, now(line)))));
  }
}
