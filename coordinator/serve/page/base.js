// What every part uses: elements, what the browser keeps, requests to the server, errors in plain words.
//
// The files of this folder are joined in the order of CMakeLists.txt into one module. Text that comes from a model or
// the server only ever becomes a text node; the page's policy (page.cpp) forbids anything else.

const byId = (id) => document.getElementById(id);

// element("button", {class: "quiet", "aria-label": "Copy", onclick: f}, "text", node, ...): null and false are left out.
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

function svgElement(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Values as JSON in a browser's storage. Where it is full or switched off, the page works without.
class Kept {
  constructor(storage, name) {
    this.storage = storage;
    this.name = `terrace.${name}`;
  }
  get(otherwise) {
    try {
      return JSON.parse(window[this.storage].getItem(this.name)) ?? otherwise;
    } catch {
      return otherwise;
    }
  }
  set(value) {
    try {
      if (value === null) window[this.storage].removeItem(this.name);
      else window[this.storage].setItem(this.name, JSON.stringify(value));
      return true;
    } catch {
      return false;
    }
  }
}

const apiKey = new Kept("sessionStorage", "key");

// An answer that is no success: `status` as HTTP has it, 0 where there was none; `detail` the server's own sentence.
class ServerError extends Error {
  constructor(status, detail, type = "") {
    super(detail);
    this.status = status;
    this.detail = detail;
    this.type = type;
  }

  static async of(response) {
    let told = {};
    try {
      told = (await response.json()).error ?? {};
    } catch {
      // no JSON: a proxy's page, say; the number is all there is to tell
    }
    return new ServerError(response.status, String(told.message ?? ""), String(told.type ?? ""));
  }
}

// fetch() with the key; throws a ServerError unless the answer is a success. An abort is thrown as fetch() throws it.
async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  const key = apiKey.get("");
  if (key) headers.set("Authorization", `Bearer ${key}`);
  let response;
  try {
    response = await fetch(path, {...options, headers, cache: "no-store", credentials: "omit"});
  } catch (error) {
    if (error.name === "AbortError" || error.name === "TimeoutError") throw error;
    throw new ServerError(0, "");
  }
  if (!response.ok) throw await ServerError.of(response);
  return response;
}

const withDetail = (sentence, detail) => (detail ? `${sentence} The server says: ${detail}` : sentence);

// What happened and what to do, for a person.
function plainWords(error) {
  const {status = -1, detail = "", type = ""} = error;
  if (error.name === "TimeoutError" || status === 0)
    return "The server cannot be reached. Check that it runs, then try again; your conversation is kept here.";
  if (type === "exceed_context_size_error")
    return withDetail("The conversation is longer than the model can read. Clear it, or lower the system message.", detail);
  if (status === 401) return "The server asks for an API key, or does not know the one that was given.";
  if (status === 429) return withDetail("Too many requests at once. Wait a little, then try again.", detail);
  if (status === 503 && /loading/i.test(detail)) return "The model is still loading. Try again in a moment.";
  if (status === 503) return withDetail("The server cannot take this now. Try again in a moment.", detail);
  if (status >= 500) return withDetail("The server failed to answer.", detail);
  if (status >= 400) return withDetail("The server refused the request.", detail);
  return withDetail("The answer broke off.", detail || String(error.message ?? ""));
}

// ---- numbers for people

const whole = new Intl.NumberFormat("en");
const upToOneDecimal = new Intl.NumberFormat("en", {maximumFractionDigits: 1});
const oneDecimal = new Intl.NumberFormat("en", {minimumFractionDigits: 1, maximumFractionDigits: 1});
const threeDigits = new Intl.NumberFormat("en", {maximumSignificantDigits: 3});

function showRate(perSecond) {
  return perSecond >= 100 ? whole.format(Math.round(perSecond)) : upToOneDecimal.format(perSecond);
}

function showBytes(bytes) {
  const units = ["B", "K", "M", "G", "T"];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    ++unit;
  }
  return `${threeDigits.format(bytes)} ${units[unit]}${unit ? "iB" : ""}`;
}

function showMicroseconds(us) {
  if (us >= 1e6) return `${threeDigits.format(us / 1e6)} s`;
  if (us >= 1e3) return `${threeDigits.format(us / 1e3)} ms`;
  return `${threeDigits.format(us)} µs`;
}

const showShare = (part, all) => `${oneDecimal.format(all > 0 ? (100 * part) / all : 0)} %`;
const count = (n, one, many = `${one}s`) => `${whole.format(n)} ${n === 1 ? one : many}`;
