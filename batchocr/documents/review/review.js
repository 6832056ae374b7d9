"use strict";
// The review page's script. What a model wrote reaches the document as text, or as HTML that batchocr has sanitised;
// the page's policy lets no other script run, and nothing be loaded.

const byId = (id) => document.getElementById(id);
const ui = Object.fromEntries(
  ["list-button", "list-pane", "text-filter", "source-filter", "type-filter", "status-filter", "mark-filter", "sort",
   "list", "listed", "page-title", "page-facts", "previous", "place", "next", "zoom", "good", "bad", "message",
   "missing", "desk", "sheet", "block-count", "raw", "blocks", "help", "help-button", "download",
  ].map((id) => [id, byId(id)]));
const index = JSON.parse(byId("index").textContent);
const pages = index.pages.map((entry, number) => ({ ...entry, number, source: index.sources[entry.document] }));
pages.forEach((page) => {
  page.stored = byId(`page-${page.number}`);
  page.picture = byId(`picture-${page.number}`);
});
const report = document.querySelector(".report");
const STATUSES = ["failed", "degraded", "ok", "skipped"];

let listed = []; // the pages that the filters let through, in order
let shown = null; // the page on the desk
let selected = null; // the number of the block that was clicked
let boxes = []; // of the page on the desk, by the number of their block
let cards = [];
let raw = false;

// ---- Small things -------------------------------------------------------------------------------------------------

function make(tag, properties = {}, ...children) {
  const { dataset = {}, aria = {}, ...rest } = properties;
  const element = Object.assign(document.createElement(tag), rest);
  Object.assign(element.dataset, dataset);
  for (const [name, value] of Object.entries(aria)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const percent = (share) => `${Math.floor(share * 100)}%`;
const counted = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const pageName = (page) => (page.page === null ? "whole document" : `page ${page.page + 1}`);
const smooth = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";

/** Scroll a pane, and nothing around it, until the element is in view. */
function reveal(pane, element, behavior = smooth) {
  const [outer, inner] = [pane.getBoundingClientRect(), element.getBoundingClientRect()];
  const top = Math.min(inner.top - outer.top - 12, Math.max(0, inner.bottom - outer.bottom + 12));
  const left = Math.min(inner.left - outer.left - 24, Math.max(0, inner.right - outer.right + 12));
  if (top || left) pane.scrollBy({ top, left, behavior });
}

/** What a block's colour goes by. */
function kindOf(type) {
  if (/caption|footnote/.test(type)) return "note";
  if (/header|footer|page_number|aside/.test(type)) return "margin";
  const kinds = { title: /title/, table: /table/, formula: /equation|formula/, figure: /image|chart|figure/,
                  code: /code|algorithm/, list: /list|ref_text|index/ };
  return Object.keys(kinds).find((kind) => kinds[kind].test(type)) ?? "text";
}

/** The page's data; parsed again each time, as two hundred pages need not be in memory twice. */
const dataOf = (page) => JSON.parse(page.stored.textContent);

// ---- Marks: "good" or "bad", each stored in this browser on its own, so that two tabs keep both theirs --------------

const keyOf = (page) => `batchocr-review:${JSON.stringify([index.table, page.source, page.page, page.doc])}`;
const marks = new Map(); // by key; what cannot be stored lasts as long as the page is open, and can be downloaded
const markOf = (page) => marks.get(keyOf(page));

function readMark(page) {
  let stored = null;
  try {
    stored = localStorage.getItem(keyOf(page));
  } catch {
    // There is no storage here.
  }
  if (stored === "good" || stored === "bad") marks.set(keyOf(page), stored);
  else marks.delete(keyOf(page));
}

function mark(page, value) {
  if (!page) return;
  const key = keyOf(page), isTakenBack = marks.get(key) === value;
  if (isTakenBack) marks.delete(key);
  else marks.set(key, value);
  try {
    if (isTakenBack) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // There is no storage here, or it is full.
  }
  showMarks();
}

addEventListener("storage", ({ key }) => { // from another tab; without a key, all has been cleared
  pages.filter((page) => key === null || key === keyOf(page)).forEach(readMark);
  showMarks();
});

function showMarks() {
  const own = pages.filter(markOf);
  ui.download.disabled = own.length === 0;
  byId("num-marks").textContent = own.length ? ` (${own.length})` : "";
  for (const page of pages) page.item.dataset.mark = markOf(page) ?? "";
  for (const value of ["good", "bad"]) {
    ui[value].setAttribute("aria-pressed", String(shown !== null && markOf(shown) === value));
  }
}

function download() {
  const lines = pages.filter(markOf).map((page) => JSON.stringify({
    source: page.source, page_index: page.page, doc_id: page.doc, status: page.status, mark: markOf(page),
  }));
  if (lines.length === 0) return;
  const href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "application/jsonl" }));
  make("a", { href, download: "marks.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

// ---- The list of pages and its filters ------------------------------------------------------------------------------

function makeItem(page) {
  const folder = page.source.lastIndexOf("/") + 1;
  const quality = page.quality === null ? {} : { quality: levelOf(page.quality) };
  const meter = make("span", { className: "meter", dataset: quality }, make("i"));
  meter.firstChild.style.width = `${(page.quality ?? 0) * 100}%`;
  const button = make("button", { type: "button", title: page.source, dataset: { status: page.status } },
    make("span", { className: "name" }, make("bdi", {}, page.source.slice(folder) || page.source)),
    make("span", { className: "quality", dataset: quality }, page.quality === null ? page.status : percent(page.quality)),
    make("span", { className: "where" }, pageName(page), page.status === "degraded" ? ", degraded" : "",
      folder ? make("bdi", {}, ` in ${page.source.slice(0, folder - 1)}`) : ""),
    page.quality === null ? "" : meter);
  button.addEventListener("click", () => { show(page); openList(false); });
  return make("li", {}, button);
}

/** How good a quality is. Pages under 0.5 are those that a run counts as doubtful. */
const levelOf = (quality) => quality < 0.5 ? "low" : quality < 0.9 ? "fair" : "good";

function fillFilters() {
  const types = [...new Set(pages.flatMap((page) => page.types))].sort();
  ui["type-filter"].append(...types.map((type) => make("option", { value: type }, type)));
  ui["source-filter"].append(...index.sources.map((source, at) => make("option", { value: String(at) }, source)));
  for (const status of STATUSES) {
    const number = pages.filter((page) => page.status === status).length;
    if (!number) continue;
    const chip = make("button", { type: "button", dataset: { status }, aria: { "aria-pressed": "false" } },
      `${status} `, make("b", {}, String(number)));
    chip.addEventListener("click", () => { toggle(chip); filter(); });
    ui["status-filter"].append(chip);
  }
}

const ORDERS = {
  worst: (a, b) => rank(a) - rank(b) || (a.quality ?? 0) - (b.quality ?? 0) || a.position - b.position,
  order: (a, b) => a.position - b.position,
  random: (a, b) => a.number - b.number,
  audit: (a, b) => a.number - b.number,
};
const rank = (page) => STATUSES.indexOf(page.status);

function filter() {
  const pressed = [...ui["status-filter"].querySelectorAll("[aria-pressed=true]")].map((chip) => chip.dataset.status);
  const source = ui["source-filter"].value, type = ui["type-filter"].value, marked = ui["mark-filter"].value;
  const text = searchedFor();
  listed = pages.filter((page) =>
    (pressed.length === 0 || pressed.includes(page.status)) &&
    (source === "" || String(page.document) === source) &&
    (type === "" || page.types.includes(type)) &&
    (marked === "" || (markOf(page) ?? "none") === marked) &&
    (text === "" || textOf(page).includes(text)));
  listed.sort(ORDERS[ui.sort.value]);
  ui.list.replaceChildren(...listed.map((page) => page.item));
  ui.listed.textContent = (listed.length === pages.length ? "" : `${listed.length} of `) + `${inAll()}.`;
  if (!listed.includes(shown)) show(listed[0] ?? null);
  else showPlace();
  showMatches();
}

/** How many pages are in the file, and how many documents of which there is none. */
function inAll() {
  const number = pages.filter((page) => page.page !== null).length;
  const said = number < pages.length ? ` and ${counted(pages.length - number, "document")} without one` : "";
  return counted(number, "page") + said;
}

const searchedFor = () => ui["text-filter"].value.trim().toLowerCase();

/** All text of a page, for the search: its name, its message and what was read. */
function textOf(page) {
  if (page.text === undefined) {
    const { message, blocks } = dataOf(page);
    page.text = [page.source, message, ...blocks.map((block) => block.text ?? "")].join("\n").toLowerCase();
  }
  return page.text;
}

/** Mark the blocks for which the page was found, and what was searched for in them, and go to the first. */
function showMatches() {
  const type = ui["type-filter"].value, text = searchedFor();
  ui.blocks.classList.toggle("searched", Boolean(type || text));
  ui.sheet.classList.toggle("searched", Boolean(type || text));
  (shown?.blocks ?? []).forEach((block, number) => {
    const matches = (!type || block.type === type) && (!text || (block.text ?? "").toLowerCase().includes(text));
    for (const element of [boxes[number], cards[number]]) element.classList.toggle("match", matches);
  });
  markFound(text);
  const first = type || text ? cards.find((card) => card.classList.contains("match")) : null;
  if (first) reveal(ui.blocks, first, "auto");
}

function openList(open) {
  ui["list-pane"].classList.toggle("open", open);
  ui["list-button"].setAttribute("aria-expanded", String(open));
}

const toggle = (button) => {
  const on = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", String(on));
  return on;
};

/** Mark a text, in lower case, wherever it stands in what was read; in browsers that can. */
function markFound(text) {
  if (!globalThis.CSS?.highlights) return;
  const ranges = [], nodes = document.createTreeWalker(ui.blocks, NodeFilter.SHOW_TEXT);
  while (text && nodes.nextNode()) {
    const node = nodes.currentNode, lower = node.data.toLowerCase();
    if (lower.length !== node.length || !node.parentElement.closest(".content")) continue;
    for (let at = lower.indexOf(text); at >= 0; at = lower.indexOf(text, at + text.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + text.length);
      ranges.push(range);
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
}

// ---- One page -------------------------------------------------------------------------------------------------------

function show(page) {
  shown?.item.firstChild.removeAttribute("aria-current");
  if (shown) shown.blocks = undefined;
  shown = page;
  selected = null;
  const data = page ? dataOf(page) : { shape: null, message: "", missing: "", blocks: [], more: 0 };
  if (page) page.blocks = data.blocks;
  showHead(page, data);
  showSheet(page, data);
  showBlocks(data);
  showPlace();
  showMarks();
  showMatches();
}

function showHead(page, data) {
  ui["page-title"].replaceChildren(...(page ? [make("bdi", {}, page.source)] : [pages.length ? "No page matches the filters" : "The table has no row"]));
  const facts = page ? [pageName(page) + (page.pages > 1 && page.page !== null ? ` of ${page.pages}` : "")] : [];
  if (page && page.status !== "ok") facts.push(page.status);
  facts.push(...page?.traits ?? []);
  if (page && page.quality !== null) facts.push(`quality ${percent(page.quality)}`);
  if (page?.ink_outside >= 0.01) facts.push(`${percent(page.ink_outside)} ink outside`);
  if (page?.findings) facts.push(counted(page.findings, "finding"));
  if (page && page.agreement !== null) facts.push(`text layer ${percent(page.agreement)}`);
  ui["page-facts"].textContent = facts.join(" · ");
  for (const [name, text] of [["message", data.message], ["missing", data.missing]]) {
    ui[name].replaceChildren(make("bdi", {}, text));
    ui[name].hidden = !text;
  }
  ui.message.dataset.status = page?.status ?? "";
}

function showSheet(page, { shape, blocks, findings = [] }) {
  boxes = blocks.map(({ type, box: [left, top, right, bottom] }, number) => {
    const box = make("button", { type: "button", className: "box", dataset: { kind: kindOf(type), block: number },
      aria: { "aria-label": `Block ${number}, ${type}` } }, make("span", {}, String(number)));
    Object.assign(box.style, { left: `${left * 100}%`, top: `${top * 100}%`, width: `${(right - left) * 100}%`,
      height: `${(bottom - top) * 100}%`, zIndex: String(1000 - Math.round(1000 * (right - left) * (bottom - top))) });
    box.classList.toggle("at-edge", left < 0.03);
    return box;
  });
  ui.sheet.hidden = page === null;
  ui.sheet.style.aspectRatio = shape ? `${shape[0]} / ${shape[1]}` : "210 / 297";
  ui.sheet.classList.toggle("empty", !page?.picture.textContent);
  ui.sheet.replaceChildren(...boxes, ...findings.map(makeFrame));
  if (page?.picture.textContent) {
    const image = make("img", { alt: `${page.source}, ${pageName(page)}`, decoding: "async" });
    image.addEventListener("load", () => { if (shown === page) showFigures(image, blocks); });
    image.src = `data:image/webp;base64,${page.picture.textContent}`;
    ui.sheet.prepend(image);
  }
  ui.desk.scrollTo(0, 0);
}

/** Show figures, and what was not read as text, in their block or in their place in a table, cut from the page. */
function showFigures(image, blocks) {
  blocks.forEach(({ type, text, box }, number) => {
    const content = cards[number].querySelector(".content");
    if (!text) content.replaceChildren(cut(image, box) ?? "");
    else if (kindOf(type) === "figure") content.prepend(cut(image, box) ?? "");
    for (const place of content.querySelectorAll(".picture[data-bbox]")) {
      place.replaceChildren(cut(image, place.dataset.bbox.split(",").map(Number)) ?? "");
    }
  });
}

/** A part of the image, given in shares of it; null if it has no area. */
function cut(image, box) {
  const [left, top, right, bottom] = box.map((share) => Math.max(0, Math.min(1, share)));
  const width = Math.round((right - left) * image.naturalWidth), height = Math.round((bottom - top) * image.naturalHeight);
  if (!(width > 0 && height > 0)) return null;
  const canvas = make("canvas", { width, height, aria: { role: "img", "aria-label": "Cut from the page" } });
  canvas.getContext("2d").drawImage(image, left * image.naturalWidth, top * image.naturalHeight, width, height,
    0, 0, width, height);
  return canvas;
}

/** What an audit found on the page: on the left what the table says, on the right what the second reader says. */
function makeFindings(findings) {
  const said = (text) => make("bdi", { className: text ? "" : "nothing" }, text || "nothing");
  const rows = findings.map(({ kind, block, text, second }) =>
    make("tr", { dataset: { finding: kind, ...(block === null ? {} : { block }) } },
      make("th", { scope: "row" }, kind), make("td", {}, said(text)), make("td", {}, said(second))));
  const head = ["", "the table says", "the second reader says"].map((name) => make("th", { scope: "col" }, name));
  return make("li", { className: "findings" },
    make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
}

/** A frame on the page around each finding. */
function makeFrame({ kind, box: [left, top, right, bottom] }) {
  const frame = make("div", { className: "finding", dataset: { finding: kind } });
  Object.assign(frame.style, { left: `${left * 100}%`, top: `${top * 100}%`, width: `${(right - left) * 100}%`,
    height: `${(bottom - top) * 100}%` });
  return frame;
}

function showBlocks({ blocks, more, findings = [] }) {
  ui["block-count"].textContent = shown ? counted(blocks.length + more, "block") : "";
  cards = blocks.map(makeCard);
  ui.blocks.replaceChildren(...(findings.length ? [makeFindings(findings)] : []), ...cards);
  if (more) ui.blocks.append(make("li", { className: "foot" }, `${counted(more, "more block")} left out.`));
  if (shown && !blocks.length) ui.blocks.append(make("li", { className: "foot" }, "Nothing was read on this page."));
  ui.blocks.scrollTo(0, 0);
}

function makeCard(block, number) {
  const badges = [];
  if (block.merge) badges.push(["continues the block before", ""]);
  if (block.by_page) badges.push(["the PDF's own text", ""]);
  else if (block.finish === "repetition") badges.push(["went in circles", "bad"]);
  else if (block.finish === "length") badges.push(["hit the token limit", "bad"]);
  if (block.cut) badges.push([`${counted(block.cut, "character")} more left out here`, "bad"]);
  if (block.confidence !== null) badges.push([percent(block.confidence), block.confidence < 0.9 ? "low" : "confidence"]);
  const content = make("div", { className: "content", dir: "auto" });
  fillContent(content, block);
  return make("li", { className: "card", dataset: { kind: kindOf(block.type), block: number } },
    make("button", { type: "button", className: "head", aria: { "aria-pressed": "false" } },
      make("span", { className: "number" }, String(number)), make("bdi", { className: "type" }, block.type),
      ...badges.map(([text, className]) => make("span", { className: `badge ${className}` }, text))),
    content);
}

function fillContent(content, block) {
  content.classList.toggle("raw", raw);
  if (block.text === null || block.text === "") content.replaceChildren(make("span", { className: "nothing" }, "no text"));
  else if (raw) content.textContent = block.text;
  else content.innerHTML = block.html; // sanitised by batchocr; the policy would stop what acts
}

function showPlace() {
  const at = listed.indexOf(shown);
  ui.place.textContent = listed.length ? `${at + 1} / ${listed.length}` : "0 / 0";
  ui.previous.disabled = at <= 0;
  ui.next.disabled = at < 0 || at === listed.length - 1;
  shown?.item.firstChild.setAttribute("aria-current", "true");
  if (shown) reveal(ui.list, shown.item, "auto");
}

function go(by) {
  const to = listed[listed.indexOf(shown) + by];
  if (to) show(to);
}

// ---- A box and its block --------------------------------------------------------------------------------------------

const numberUnder = (event) => {
  const element = event.target.closest("[data-block]");
  return element ? Number(element.dataset.block) : null;
};

function point(number, className) {
  for (const element of document.querySelectorAll(`.box.${className}, .card.${className}`)) element.classList.remove(className);
  if (number === null) return;
  for (const element of [boxes[number], cards[number]]) element.classList.add(className);
}

function select(number) {
  selected = number;
  point(number, "selected");
  cards.forEach((card, at) => card.firstChild.setAttribute("aria-pressed", String(at === number)));
  if (number === null) return;
  reveal(ui.desk, boxes[number]);
  reveal(ui.blocks, cards[number]);
}

function step(by) {
  const number = selected === null ? (by > 0 ? 0 : shown.blocks.length - 1) : selected + by;
  if (number >= 0 && number < shown.blocks.length) select(number);
}

for (const [pane, revealOther] of [
  [ui.sheet, (number) => reveal(ui.blocks, cards[number])],
  [ui.blocks, (number) => reveal(ui.desk, boxes[number])],
]) {
  pane.addEventListener("mouseover", (event) => {
    const number = numberUnder(event);
    point(number, "hovered");
    if (number !== null) revealOther(number);
  });
  pane.addEventListener("mouseleave", () => point(null, "hovered"));
  pane.addEventListener("click", (event) => {
    if (event.target.closest(".content a")) event.preventDefault();
    const number = numberUnder(event);
    if (number !== null && !getSelection().toString()) select(number);
  });
}

// ---- Keys and buttons -----------------------------------------------------------------------------------------------

function showRaw() {
  raw = toggle(ui.raw);
  if (!shown) return;
  shown.blocks.forEach((block, number) => {
    if (block.text) fillContent(cards[number].querySelector(".content"), block);
  });
  markFound(searchedFor());
}

const KEYS = {
  j: () => go(1), k: () => go(-1),
  n: () => shown && step(1), p: () => shown && step(-1),
  g: () => mark(shown, "good"), b: () => mark(shown, "bad"),
  r: showRaw,
  z: () => ui.desk.classList.toggle("large", toggle(ui.zoom)),
  h: () => ui.sheet.classList.toggle("no-boxes"),
  d: download,
  "/": () => { openList(true); ui["text-filter"].focus(); },
  "?": () => ui.help.showModal(),
  Escape: () => { select(null); openList(false); report.open = false; },
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || ui.help.open) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") {
      event.preventDefault();  // it would empty the search and leave the list as it was
      event.target.blur();
    }
    return;
  }
  const act = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : null;
  if (act) { event.preventDefault(); act(); }
});

document.addEventListener("click", ({ target }) => { if (!report.contains(target)) report.open = false; });
for (const [id, key] of [["previous", "k"], ["next", "j"], ["good", "g"], ["bad", "b"], ["raw", "r"], ["zoom", "z"],
                         ["download", "d"], ["help-button", "?"]]) {
  ui[id].addEventListener("click", () => KEYS[key]());
}
ui["list-button"].addEventListener("click", () => openList(!ui["list-pane"].classList.contains("open")));
byId("filters").addEventListener("submit", (event) => event.preventDefault());
for (const id of ["source-filter", "type-filter", "mark-filter", "sort"]) ui[id].addEventListener("change", filter);
let typing;
ui["text-filter"].addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(filter, 120); });

for (const page of pages) {
  page.item = makeItem(page);
  readMark(page);
}
fillFilters();
filter();
const drawn = listed.find((page) => page.picture.textContent); // those that failed come first, with nothing to see
if (drawn) show(drawn);
