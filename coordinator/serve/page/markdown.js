// A small, safe part of Markdown as elements: paragraphs, headings, lists, quotes, code, tables, rules; within a line
// code, bold, italic, struck out and links to http(s). Anything else, HTML above all, stays the text that it is.

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*)$/;
const kRule = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const kQuote = /^ {0,3}> ?/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const kTableRule = /^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const kDeepest = 6;  // of quotes and lists within each other
// A longer line is shown as it is: matching takes time that grows with the square of a line's length.
const kLongestLine = 4000;
const isLong = (line) => line.length > kLongestLine;

// ---- within a line

const kInline = new RegExp(
  [
    "(?<ticks>`+)(?<code>[^`](?:.*?[^`])?|[^`])\\k<ticks>(?!`)",
    "\\[(?<label>[^\\[\\]]+)\\]\\((?<target>https?:[^\\s()<>\"]+(?:\\([^\\s()<>\"]*\\))?)\\)",
    "(?<![\\w/])(?<bare>https?:\\/\\/[^\\s<>()\"'`]+[^\\s<>()\"'`.,;:!?])",
    "\\*\\*(?<strong>\\S(?:.*?\\S)?)\\*\\*(?!\\*)",
    "(?<!\\w)__(?<strong2>\\S(?:.*?\\S)?)__(?!\\w)",
    "(?<![\\w*])\\*(?<em>[^\\s*](?:[^*]*[^\\s*])?)\\*(?![\\w*])",
    "(?<!\\w)_(?<em2>[^\\s_](?:[^_]*[^\\s_])?)_(?!\\w)",
    "~~(?<struck>\\S(?:.*?\\S)?)~~",
    "\\\\(?<escaped>[\\\\`*_{}\\[\\]()#+\\-.!|~>])",
  ].join("|"),
  "gs",
);

function link(target, children) {
  return element("a", {href: target, target: "_blank", rel: "noopener noreferrer"}, ...children);
}

function inline(text, depth = 0) {
  if (depth > kDeepest || isLong(text)) return [text];
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(kInline)) {
    if (match.index > end) nodes.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    const {code, label, target, bare, strong, strong2, em, em2, struck, escaped} = match.groups;
    if (code !== undefined) nodes.push(element("code", {}, code));
    else if (label !== undefined) nodes.push(link(target, inline(label, depth + 1)));
    else if (bare !== undefined) nodes.push(link(bare, [bare]));
    else if (escaped !== undefined) nodes.push(escaped);
    else if (struck !== undefined) nodes.push(element("s", {}, ...inline(struck, depth + 1)));
    else if (em ?? em2) nodes.push(element("em", {}, ...inline(em ?? em2, depth + 1)));
    else nodes.push(element("strong", {}, ...inline(strong ?? strong2, depth + 1)));
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

// Lines of a paragraph; a line break that was written is kept.
function lines(text) {
  return text.split("\n").flatMap((line, i) => (i === 0 ? inline(line) : [element("br"), ...inline(line.trimStart())]));
}

// ---- blocks: each takes lines from `at` on and gives where it ends

function endOfFence(source, at) {
  const [, mark] = source[at].match(kFence);
  const closing = new RegExp(`^ {0,3}${mark[0] === "`" ? "`" : "~"}{${mark.length},}\\s*$`);
  for (let end = at + 1; end < source.length; ++end) if (closing.test(source[end])) return end + 1;
  return source.length;  // still being written
}

function endWhile(source, at, holds) {
  let end = at + 1;
  while (end < source.length && holds(source[end], end)) ++end;
  return end;
}

const isTable = (source, at) =>
  source[at].includes("|") && at + 1 < source.length && !isLong(source[at + 1]) && kTableRule.test(source[at + 1]);

function beginsBlock(source, at) {
  const line = source[at];
  return isLong(line) || kFence.test(line) || kHeading.test(line) || kRule.test(line) || kQuote.test(line) || kItem.test(line) ||
         isTable(source, at);
}

// [{kind, lines}] of a text: what stands between empty lines, and each block of its own kind.
function blocksOf(text) {
  const source = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  let at = 0;
  const take = (kind, end) => {
    blocks.push({kind, lines: source.slice(at, end)});
    at = end;
  };
  while (at < source.length) {
    const line = source[at];
    if (!line.trim()) ++at;
    else if (isLong(line)) take("long", at + 1);
    else if (kFence.test(line)) take("code", endOfFence(source, at));
    else if (kHeading.test(line)) take("heading", at + 1);
    else if (kRule.test(line)) take("rule", at + 1);
    else if (kQuote.test(line)) take("quote", endWhile(source, at, (next) => kQuote.test(next)));
    else if (isTable(source, at)) take("table", endWhile(source, at, (next) => next.includes("|")));
    else if (kItem.test(line))
      take("list", endWhile(source, at, (next, i) =>
        kItem.test(next) || /^\s+\S/.test(next) ||
        (!next.trim() && i + 1 < source.length && (kItem.test(source[i + 1]) || /^ {2,}\S/.test(source[i + 1])))));
    else take("text", endWhile(source, at, (next, i) => next.trim() && !beginsBlock(source, i)));
  }
  return blocks;
}

function codeBlock(source) {
  const language = source[0].match(kFence)[2];
  const closed = source.length > 1 && /^ {0,3}(`{3,}|~{3,})\s*$/.test(source[source.length - 1]);
  const text = source.slice(1, closed ? -1 : undefined).join("\n");
  return element("pre", {tabindex: "0", role: "region", "aria-label": language ? `Code, ${language}` : "Code"},
                 element("code", {}, text));
}

const cellsOf = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());

function tableBlock(source) {
  const head = cellsOf(source[0]);
  const row = (line) => {
    const cells = cellsOf(line);
    return element("tr", {}, ...head.map((_, i) => element("td", {}, ...inline(cells[i] ?? ""))));
  };
  return element("div", {class: "table-frame", tabindex: "0", role: "region", "aria-label": "Table"},
    element("table", {},
      element("thead", {}, element("tr", {}, ...head.map((cell) => element("th", {scope: "col"}, ...inline(cell))))),
      element("tbody", {}, ...source.slice(2).map(row))));
}

// Items by their indentation: deeper lines belong to the item before them and are read as blocks of their own.
function listBlock(source, depth) {
  const [, indent, mark] = source[0].match(kItem);
  const ordered = /\d/.test(mark);
  const items = [];
  for (const line of source) {
    const item = line.match(kItem);
    if (item && item[1].length <= indent.length + 1) items.push([item[3]]);
    else items[items.length - 1].push(line);
  }
  const start = ordered && parseInt(mark, 10) !== 1 ? parseInt(mark, 10) : null;
  return element(ordered ? "ol" : "ul", {start}, ...items.map(([first, ...rest]) => {
    const least = Math.min(...rest.filter((line) => line.trim()).map((line) => line.search(/\S/)));
    const inner = rest.map((line) => line.slice(least)).join("\n");
    return element("li", {}, ...inline(first), ...(inner.trim() ? blockElements(inner, depth + 1) : []));
  }));
}

function blockElement({kind, lines: source}, depth) {
  if (depth > kDeepest) return element("p", {}, source.join("\n"));
  switch (kind) {
    case "long": return element("p", {}, source[0]);
    case "code": return codeBlock(source);
    case "rule": return element("hr");
    case "table": return tableBlock(source);
    case "list": return listBlock(source, depth);
    case "quote":
      return element("blockquote", {}, ...blockElements(source.map((line) => line.replace(kQuote, "")).join("\n"), depth + 1));
    case "heading": {
      // Below the page's own two levels.
      const [, marks, text] = source[0].match(kHeading);
      return element(`h${Math.min(marks.length + 2, 6)}`, {}, ...inline(text.trimEnd().replace(/#+$/, "").trimEnd()));
    }
    default: return element("p", {}, ...lines(source.join("\n")));
  }
}

const blockElements = (text, depth) => blocksOf(text).map((block) => blockElement(block, depth));

// Shows a text that grows: blocks that did not change keep their elements, so that a long answer costs no more per
// token than its last block, and what was selected stays selected.
class MarkdownView {
  constructor(root) {
    this.root = root;
    this.shown = [];  // [blocks] of root's children: their source
  }
  show(text) {
    const blocks = blocksOf(text);
    const sources = blocks.map((block) => `${block.kind}\n${block.lines.join("\n")}`);
    let same = 0;
    while (same < sources.length && sources[same] === this.shown[same]) ++same;
    while (this.root.childElementCount > same) this.root.lastElementChild.remove();
    this.root.append(...blocks.slice(same).map((block) => blockElement(block, 0)));
    this.shown = sources;
  }
}
