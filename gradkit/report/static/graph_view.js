// A drawing that one can move, zoom, search and ask. The SVG and the cards come from Python, gzipped, as one parcel;
// this file knows neither torch nor a language. Plain ESM: anywidget loads it as it is.

const POINT = 96 / 72; // CSS pixels for a point of the drawing at 100 %
const [SMALLEST, LARGEST, STEP] = [0.05, 4, 1.25];
const READABLE = 0.65; // a drawing that fits at this zoom or above is shown whole
const FIRST = 0.8; // the zoom at which a larger one is opened
const MARGIN = 12;
const [LOWEST, AROUND] = [300, 140]; // pixels of height that a view has in any case, and those that the page needs beside it
const NARROW = 860; // below this width the card lies under the drawing
const FOLDED = "-"; // begins the path of what was folded, among what was opened
const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

async function unpack(parcel) {
  if (!parcel || !parcel.byteLength) return null;
  const stream = new Blob([parcel]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// ---------------------------------------------------------------- the sheet: where the drawing is, and how large

// What a text takes on a sign, in pixels: Chinese characters are as wide as they are high.
const wide = (text) => 14 + [...text].reduce((sum, char) => sum + (char > "\u2e7f" ? 12.5 : 7), 0);

const contains = (outer, inner) => outer.x <= inner.x && outer.y <= inner.y
  && outer.x + outer.w >= inner.x + inner.w && outer.y + outer.h >= inner.y + inner.h;

// The box around boxes, each with its middle.
function around(boxes) {
  const [left, right] = [Math.min(...boxes.map(({ x, w }) => x - w / 2)), Math.max(...boxes.map(({ x, w }) => x + w / 2))];
  const [top, bottom] = [Math.min(...boxes.map(({ y, h }) => y - h / 2)), Math.max(...boxes.map(({ y, h }) => y + h / 2))];
  return { x: (left + right) / 2, y: (top + bottom) / 2, w: right - left, h: bottom - top };
}

class Sheet {
  constructor(stage, { onPlace, onZoom }) {
    Object.assign(this, { stage, onPlace, onZoom });
    this.paper = make("div", { class: "gk-paper" });
    this.over = make("div", { class: "gk-over" }); // buttons on boxes and frames: part of no saved file
    this.said = make("div", { class: "gk-said", "aria-hidden": "true" });
    stage.append(this.paper, this.said);
    Object.assign(this, { x: 0, y: 0, zoom: 1, width: 0, height: 0, nodes: [], frames: [], byNumber: new Map(), svg: null });
  }

  load(text) {
    const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    this.svg = document.importNode(parsed, true);
    const box = this.svg.viewBox.baseVal;
    [this.width, this.height] = [box.width * POINT, box.height * POINT];
    this.svg.setAttribute("width", this.width);
    this.svg.setAttribute("height", this.height);
    this.svg.setAttribute("role", "img");
    this.paper.replaceChildren(this.svg, this.over);
    this.over.replaceChildren();
    this.root = this.svg.querySelector("g.graph") ?? this.svg;
    this.measure();
  }

  clear() {
    this.paper.replaceChildren();
    this.said.replaceChildren();
    Object.assign(this, { width: 0, height: 0, nodes: [], frames: [], links: [], byNumber: new Map(), svg: null });
  }

  measure() {
    const shift = this.root.transform?.baseVal.consolidate()?.matrix ?? { e: 0, f: 0 };
    this.nodes = [...this.svg.querySelectorAll("g.node")].map((group) => {
      const box = group.getBBox();
      const [x, y] = [(box.x + shift.e) * POINT, (box.y + shift.f) * POINT];
      const number = Number(group.id.slice(1));
      group.removeAttribute("id"); // several drawings on one page would share it
      group.dataset.number = number;
      return { number, group, box, x: x + (box.width * POINT) / 2, y: y + (box.height * POINT) / 2,
               w: box.width * POINT, h: box.height * POINT };
    });
    this.nodes.sort((a, b) => a.number - b.number);
    this.byNumber = new Map(this.nodes.map((node) => [node.number, node]));
    this.links = [...this.svg.querySelectorAll("g.edge")].map((group) => {
      const ends = group.id.match(/^e(\d+)-(\d+)$/);
      group.removeAttribute("id");
      return { group, tail: ends ? Number(ends[1]) : null, head: ends ? Number(ends[2]) : null };
    });
    this.frames = [...this.svg.querySelectorAll("g.cluster")].map((group) => {
      const { x, y, width, height } = group.getBBox();
      const index = Number(group.id.slice(1));
      group.removeAttribute("id");
      return { index, x: (x + shift.e) * POINT, y: (y + shift.f) * POINT, w: width * POINT, h: height * POINT };
    });
  }

  // What frames say stays in sight as long as they are: names of frames in each other share a sign.
  name(told) {
    for (const frame of this.frames) [frame.name, frame.folds, frame.shaded] = told[frame.index] ?? ["", "", ""];
    this.sign();
  }

  sign() {
    const { w, h } = this.room;
    const signs = [];
    for (const frame of this.frames) {
      const [left, top] = [this.x + frame.x * this.zoom, this.y + frame.y * this.zoom];
      const [right, bottom] = [left + frame.w * this.zoom, top + frame.h * this.zoom];
      if ((left >= -6 && top >= -4) || right < 60 || left > w - 60 || bottom < 48 || top > h - 20) continue;
      const names = [frame.name].filter(Boolean);
      const shaded = this.svg?.classList.contains("gk-what-if") ? "" : frame.shaded;
      const around = signs.find(({ inner }) => contains(inner, frame));
      if (around) Object.assign(around, { inner: frame, names: [...around.names, ...names], shaded: around.shaded || shaded });
      else signs.push({ inner: frame, names, shaded, x: Math.max(4, left + 4), y: Math.max(4, top + 4) });
    }
    const shown = signs.filter(({ names, shaded }) => names.length || shaded);
    this.said.replaceChildren(...shown.flatMap(({ inner, names, shaded, x, y }) => {
      const text = [names.join(" › "), shaded].filter(Boolean).join(" · ");
      const at = this.aside({ x, y, w: wide(text), h: 22 }, inner);
      if (!at) return [];
      const sign = make("span", {}, text);
      sign.style.transform = `translate(${at.x}px, ${at.y}px)`;
      return [sign];
    }));
  }

  // Where in its frame a sign stands over no box: along the upper edge or the lower; else at the upper left, though
  // never over a plate. Null: nowhere.
  aside(sign, frame) {
    const right = Math.min(this.room.w, this.x + (frame.x + frame.w) * this.zoom) - sign.w - 4;
    const bottom = this.y + (frame.y + frame.h) * this.zoom - sign.h - 2;
    const boxes = this.nodes.map((node) => ({ plate: node.group.classList.contains("cut"), ...this.seen(node) }));
    for (const y of bottom < this.room.h - sign.h ? [sign.y, bottom] : [sign.y]) {
      const beside = boxes.filter((box) => box.y < y + sign.h && box.y + box.h > y);
      const free = (x) => x >= sign.x && x <= right && beside.every((box) => box.x > x + sign.w || box.x + box.w < x);
      const x = [sign.x, ...beside.map((box) => box.x + box.w + 6).sort((a, b) => a - b), right].find(free);
      if (x != null) return { x, y };
    }
    const covers = (box) => box.x < sign.x + sign.w && box.x + box.w > sign.x && box.y < sign.y + sign.h && box.y + box.h > sign.y;
    return boxes.some((box) => box.plate && covers(box)) ? null : { x: sign.x, y: sign.y };
  }

  // A small button at a corner of a box or frame, in the drawing's own measure.
  attach(at, name, text, act, corner) {
    const button = make("button", { type: "button", class: `gk-on gk-on-${corner}`, tabindex: "-1", title: name, "aria-label": name, onclick: act }, text);
    button.style.left = `${at.x}px`;
    button.style.top = `${at.y}px`;
    this.over.append(button);
    return button;
  }

  // Only these boxes stay bright, and the arrows between them; null: all do.
  light(numbers) {
    this.svg.classList.toggle("gk-dimmed", numbers != null);
    for (const { number, group } of this.nodes) group.classList.toggle("gk-lit", numbers?.has(number) ?? false);
    for (const { group, tail, head } of this.links) {
      group.classList.toggle("gk-lit", (numbers?.has(tail) && numbers.has(head) && !this.ends?.has(tail)) ?? false);
    }
  }

  get room() {
    return { w: this.stage.clientWidth, h: this.stage.clientHeight };
  }

  place() {
    this.onPlace(); // these two first: they measure the stage, which after a write would have to be laid out anew
    this.sign();
    this.paper.classList.add("gk-moving");
    this.paper.style.transform = `translate(${this.x}px, ${this.y}px) scale(${this.zoom})`;
    clearTimeout(this.rest);
    // Without will-change the browser draws the text anew at the zoom that it now has.
    this.rest = setTimeout(() => this.paper.classList.remove("gk-moving"), 160);
    this.onZoom();
  }

  move(dx, dy) {
    const { w, h } = this.room;
    const keep = 48; // pixels of the drawing that always stay in sight
    this.x = Math.min(w - keep, Math.max(keep - this.width * this.zoom, this.x + dx));
    this.y = Math.min(h - keep, Math.max(keep - this.height * this.zoom, this.y + dy));
    this.keepInSight();
    this.place();
  }

  // Between boxes there may be nothing for a whole screen: the nearest box stays at least in part.
  keepInSight() {
    const { w, h } = this.room;
    if (!this.nodes.length || !w || !h) return;
    const near = this.nodes.map((node) => {
      const at = this.where(node);
      const [hw, hh] = [(node.w * this.zoom) / 2, (node.h * this.zoom) / 2];
      const [inX, inY] = [Math.min(32, 2 * hw), Math.min(32, 2 * hh)];
      const dx = at.x + hw < inX ? inX - at.x - hw : at.x - hw > w - inX ? w - inX - at.x + hw : 0;
      const dy = at.y + hh < inY ? inY - at.y - hh : at.y - hh > h - inY ? h - inY - at.y + hh : 0;
      return { dx, dy, far: Math.hypot(dx, dy) };
    }).reduce((a, b) => (b.far < a.far ? b : a));
    this.x += near.dx;
    this.y += near.dy;
  }

  zoomTo(zoom, at = { x: this.room.w / 2, y: this.room.h / 2 }) {
    const next = Math.min(LARGEST, Math.max(SMALLEST, zoom));
    this.x = at.x - ((at.x - this.x) * next) / this.zoom;
    this.y = at.y - ((at.y - this.y) * next) / this.zoom;
    this.zoom = next;
    this.move(0, 0);
  }

  get whole() {
    const { w, h } = this.room;
    return Math.min(1, (w - 2 * MARGIN) / this.width, (h - 2 * MARGIN) / this.height);
  }

  fit() {
    this.zoom = Math.max(SMALLEST, this.whole);
    const { w, h } = this.room;
    this.x = (w - this.width * this.zoom) / 2;
    this.y = Math.max((h - this.height * this.zoom) / 2, Math.min(MARGIN, h));
    this.place();
  }

  // In the middle, as far as there is something to be seen on all sides.
  centre(node, zoom = this.zoom) {
    const { w, h } = this.room;
    this.zoom = zoom;
    const start = (at, size, room) => (size * zoom <= room - 2 * MARGIN ? (room - size * zoom) / 2
      : Math.min(MARGIN, Math.max(room - MARGIN - size * zoom, room / 2 - at * zoom)));
    [this.x, this.y] = [start(node.x, this.width, w), start(node.y, this.height, h)];
    this.move(0, 0);
  }

  // The box whole, and in the middle.
  bring(node) {
    const { w, h } = this.room;
    const most = Math.min((w - 2 * MARGIN) / node.w, (h - 2 * MARGIN) / node.h);
    this.zoom = Math.max(SMALLEST, Math.min(Math.max(this.zoom, 1), most));
    [this.x, this.y] = [w / 2 - node.x * this.zoom, h / 2 - node.y * this.zoom];
    this.place();
  }

  where(node) {
    return { x: this.x + node.x * this.zoom, y: this.y + node.y * this.zoom };
  }

  // The box of a node on the stage.
  seen(node) {
    const [at, w, h] = [this.where(node), node.w * this.zoom, node.h * this.zoom];
    return { x: at.x - w / 2, y: at.y - h / 2, w, h };
  }

  isInSight(node) {
    const { w, h } = this.room;
    return contains({ x: -2, y: -2, w: w + 4, h: h + 4 }, this.seen(node));
  }

  reveal(node) {
    const at = this.where(node);
    const { w, h } = this.room;
    const [hw, hh] = [(node.w * this.zoom) / 2 + MARGIN, (node.h * this.zoom) / 2 + MARGIN];
    const shift = (low, high, size) => (high - low > size ? size / 2 - (low + high) / 2
      : low < 0 ? -low : high > size ? size - high : 0);
    const [dx, dy] = [shift(at.x - hw, at.x + hw, w), shift(at.y - hh, at.y + hh, h)];
    if (dx || dy) this.move(dx, dy);
  }

  ring(node, kind) {
    const pad = 5;
    const rect = document.createElementNS(SVG, "rect");
    const { x, y, width, height } = node.box;
    for (const [name, value] of Object.entries({ x: x - pad, y: y - pad, width: width + 2 * pad,
                                                 height: height + 2 * pad, rx: 8, class: kind })) {
      rect.setAttribute(name, value);
    }
    this.root.append(rect);
  }

  unring(kind) {
    for (const rect of this.root.querySelectorAll(`rect.${kind}`)) rect.remove();
  }

  // The nearest node in a direction: what lies straight ahead counts more than what lies aside.
  neighbour(from, dx, dy) {
    let best = null;
    for (const node of this.nodes) {
      const [x, y] = [node.x - from.x, node.y - from.y];
      const [ahead, aside] = [x * dx + y * dy, Math.abs(x * dy) + Math.abs(y * dx)];
      if (node === from || ahead < 8) continue;
      const cost = ahead + 2.5 * aside;
      if (!best || cost < best.cost) best = { node, cost };
    }
    return best?.node;
  }

  middle() {
    const { w, h } = this.room;
    const distance = (node) => Math.hypot(this.where(node).x - w / 2, this.where(node).y - h / 2);
    return this.nodes.reduce((a, b) => (distance(b) < distance(a) ? b : a), this.nodes[0]);
  }
}

// ---------------------------------------------------------------- ways through the drawing

// From a box with the flow of the data, to the loss or to where the gradient is cut, whichever comes first.
class Ways {
  constructor(arrows, info) {
    this.info = info;
    this.next = new Map();
    for (const [tail, head, status] of arrows) {
      if (!this.next.has(tail)) this.next.set(tail, []);
      this.next.get(tail).push([head, status]);
    }
  }

  kind(number) {
    return this.info[number]?.kind;
  }

  // All boxes behind one, and which of them lie on a way to an end.
  from(start, liveOnly = false) {
    const before = new Map([[start, []]]);
    const ends = [];
    for (const todo = [start]; todo.length;) {
      const at = todo.pop();
      if (at !== start && ["cut", "loss"].includes(this.kind(at))) {
        ends.push(at);
        continue;
      }
      for (const [head, status] of this.next.get(at) ?? []) {
        if (liveOnly && status !== "live") continue;
        if (!before.has(head)) {
          before.set(head, []);
          todo.push(head);
        }
        before.get(head).push(at);
      }
    }
    const on = new Set([start]);
    for (const todo = [...ends]; todo.length;) {
      const at = todo.pop();
      if (on.has(at) && at !== start) continue;
      on.add(at);
      if (at !== start) todo.push(...before.get(at));
    }
    return { on, ends };
  }

  tell(start) {
    const { on, ends } = this.from(start);
    const cuts = ends.filter((end) => this.kind(end) === "cut");
    const place = [...new Set(cuts.map((cut) => this.info[cut].place).filter(Boolean))].join(", ");
    const live = this.from(start, true).ends.length > 0;
    const said = !ends.length ? "path_none" : cuts.length ? (live ? "path_both" : "path_cut") : live ? "path_live" : "path_dead";
    return { on, place, said, cuts: new Set(cuts) };
  }
}

// ---------------------------------------------------------------- what would flow without a cut

const words = (text) => text.replaceAll("\u00a0", " ").replace(/\s+/g, " ").trim();

// No box moves: colours and words change in the drawing as it is, and can be put back.
class WhatIf {
  constructor(sheet, { boxes, arrows }) {
    this.sheet = sheet;
    [this.changed, this.lines, this.tips] = [[], [], []];
    sheet.svg.classList.add("gk-what-if");
    for (const [number, status, texts] of boxes) {
      const node = sheet.byNumber.get(number);
      if (!node) continue;
      node.group.classList.add("gk-would", `gk-would-${status}`);
      for (const [old, said] of texts) this.say(node, words(old), said);
    }
    const flowing = new Set(arrows.map((ends) => ends.join("-")));
    for (const { group, tail, head } of sheet.links) {
      const path = group.querySelector("path");
      if (!path || !flowing.has(`${tail}-${head}`)) continue;
      group.classList.add("gk-flows");
      this.turn(group, path);
      this.reach(path, group.querySelector("polygon"));
    }
    for (const text of sheet.svg.querySelectorAll("g.cluster text")) {
      if (sheet.frames.some(({ shaded }) => shaded && words(shaded) === words(text.textContent))) text.classList.add("gk-untrue");
    }
    sheet.sign();
  }

  // The line goes on to where its arrowhead ended, which points the other way now.
  reach(path, head) {
    if (!head?.points?.length) return;
    const end = path.getPointAtLength(path.getTotalLength());
    const far = (point) => Math.hypot(point.x - end.x, point.y - end.y);
    const tip = [...head.points].reduce((a, b) => (far(b) > far(a) ? b : a));
    this.lines.push([path, path.getAttribute("d")]);
    path.setAttribute("d", `${path.getAttribute("d")} L${tip.x},${tip.y}`);
  }

  // An arrowhead where the gradient arrives: at the beginning of the line.
  turn(group, path) {
    const [tip, next] = [path.getPointAtLength(0), path.getPointAtLength(10)];
    const long = Math.hypot(next.x - tip.x, next.y - tip.y) || 1;
    const [x, y] = [(next.x - tip.x) / long, (next.y - tip.y) / long];
    const corners = [[tip.x, tip.y], [tip.x + 11 * x - 6 * y, tip.y + 11 * y + 6 * x], [tip.x + 11 * x + 6 * y, tip.y + 11 * y - 6 * x]];
    const head = document.createElementNS(SVG, "polygon");
    head.setAttribute("class", "gk-tip");
    head.setAttribute("points", corners.map((corner) => corner.join(",")).join(" "));
    group.append(head);
    this.tips.push(head);
  }

  say(node, old, said) {
    const text = [...node.group.querySelectorAll("text")].find((one) => words(one.textContent) === old);
    if (!text) return;
    this.changed.push([text, text.textContent]);
    text.textContent = text.textContent.match(/^[\s\u00a0]*/)[0] + said;
    text.classList.add("gk-would-say");
    const room = node.box.x + node.box.width - Number(text.getAttribute("x")) - 6;
    if (text.getBBox().width > room && text.getAttribute("text-anchor") === "start") {
      text.setAttribute("textLength", room);
      text.setAttribute("lengthAdjust", "spacingAndGlyphs");
    }
  }

  end() {
    this.sheet.svg.classList.remove("gk-what-if");
    for (const { group } of this.sheet.nodes) group.classList.remove("gk-would", ...[...group.classList].filter((one) => one.startsWith("gk-would-")));
    for (const { group } of this.sheet.links) group.classList.remove("gk-flows");
    for (const head of this.tips) head.remove();
    for (const [text, before] of this.changed) {
      text.textContent = before;
      text.classList.remove("gk-would-say");
      text.removeAttribute("textLength");
      text.removeAttribute("lengthAdjust");
    }
    for (const [path, line] of this.lines) path.setAttribute("d", line);
    for (const text of this.sheet.svg.querySelectorAll(".gk-untrue")) text.classList.remove("gk-untrue");
    this.sheet.sign();
  }
}

// ---------------------------------------------------------------- files

async function bitmap(svg, width, height) {
  const scale = Math.min(2, 16000 / width, 16000 / height, Math.sqrt(5e7 / (width * height)));
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = make("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
  const brush = canvas.getContext("2d");
  brush.fillStyle = "#fff";
  brush.fillRect(0, 0, canvas.width, canvas.height);
  brush.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, fail) => canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("no bitmap"))), "image/png"));
}

function handOut(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// ---------------------------------------------------------------- the card: what there is to say about one node

function codeBlock(lines) {
  const shared = Math.min(...lines.filter((line) => line.text.trim()).map((line) => line.text.search(/\S/)), 200);
  const block = make("pre", { class: "gk-code" });
  for (const { line, text, here, from, to } of lines) {
    const row = make("div", { class: here ? "gk-here" : "" }, make("span", { class: "gk-number" }, `${line}`));
    const [start, end] = [Math.max(from, shared), Math.max(to, from, shared)];
    if (here && end > start) {
      row.append(text.slice(shared, start), make("mark", {}, text.slice(start, end)), text.slice(end));
    } else {
      row.append(text.slice(shared) || " ");
    }
    block.append(row);
  }
  return block;
}

function fillCard(card, info, labels, { close, unfold, fold, undo, path, found }) {
  const head = make("div", { class: "gk-card-head" }, make("h3", {}, info.title),
    make("button", { type: "button", class: "gk-close", "aria-label": labels.close, title: labels.close, onclick: close }, "×"));
  const parts = [head];
  if (info.state) parts.push(make("p", { class: `gk-state gk-is-${info.status}` }, info.state));
  for (const sentence of info.why ?? []) parts.push(make("p", { class: "gk-why" }, sentence));
  if (info.place) parts.push(make("p", { class: "gk-place" },
    make("span", { title: info.path, "data-file": info.path, "data-line": info.line, "data-cell": info.cell || null }, info.place)));
  if (info.code?.length) parts.push(codeBlock(info.code));
  if (undo) parts.push(make("button", { type: "button", class: "gk-undo", "aria-pressed": "false", onclick: undo }, labels.undo));
  const rows = [...(found.length ? [[labels.found_here, found.join("\n")]] : []), ...(info.rows ?? [])];
  if (path) {
    parts.push(make("button", { type: "button", class: "gk-path", "aria-pressed": "false", onclick: path }, labels.path));
  }
  if (rows.length) {
    const list = make("dl", {});
    for (const [name, value] of rows) list.append(make("dt", {}, name), make("dd", {}, value));
    parts.push(list);
  }
  if (info.open) parts.push(make("button", { type: "button", class: "gk-unfold", onclick: unfold }, `+ ${labels.open}`));
  if (fold) parts.push(make("button", { type: "button", class: "gk-fold", onclick: fold.act }, `− ${fold.name}`));
  if (info.note) parts.push(make("p", { class: "gk-aside" }, info.note));
  card.replaceChildren(...parts);
  card.scrollTop = 0;
  const [block, mark] = [card.querySelector(".gk-code"), card.querySelector("mark")];
  if (mark) block.scrollLeft = Math.max(0, mark.offsetLeft + mark.offsetWidth + MARGIN - block.clientWidth);
}

// ---------------------------------------------------------------- the whole view

class View {
  constructor(model, el) {
    this.model = model;
    this.info = {};
    this.current = null;
    this.hits = [];
    this.pressed = { number: null, at: -1000 };
    this.fitted = false;
    this.build(el);
    this.listen();
    this.relabel();
    this.load();
  }

  build(el) {
    const button = (name, text, act) => make("button", { type: "button", "data-name": name, onclick: act }, text);
    this.search = make("input", { type: "search", class: "gk-search", spellcheck: "false", autocomplete: "off" });
    this.count = make("span", { class: "gk-count" });
    this.earlier = button("previous", "‹", () => this.turn(-1));
    this.later = button("next", "›", () => this.turn(1));
    this.saving = make("span", { class: "gk-group", role: "group" },
      ...["svg", "png", "dot"].map((form) => button(`save_${form}`, form.toUpperCase(), () => this.save(form))));
    this.percent = button("actual", "100 %", () => this.zoom(1 / this.sheet.zoom));
    const zooms = make("span", { class: "gk-group" }, // they stay together where the bar has two lines
      button("zoom_out", "−", () => this.zoom(1 / STEP)), this.percent, button("zoom_in", "+", () => this.zoom(STEP)));
    this.views = make("span", { class: "gk-views", role: "group" },
      ...["map", "graph", "torchviz"].map((view) => button(view, "", () => this.put("view", view))));
    this.foldAll = button("fold", "", () => this.put("opened", []));
    this.toCut = button("cut", "", () => this.goTo(this.nextPlate()));
    this.turning = button("sideways", "⇄", () => this.turnOver());
    this.full = button("full", "□", () => this.fillScreen());
    this.full.hidden = !document.fullscreenEnabled; // a frame may not be allowed to
    this.bar = make("div", { class: "gk-bar", role: "toolbar" }, this.views, this.foldAll, this.search, this.count, this.earlier, this.later,
      make("span", { class: "gk-gap" }), this.toCut, zooms, button("fit", "⤢", () => this.fit()), this.turning, this.full, this.saving);
    this.stage = make("div", { class: "gk-stage", tabindex: "0", role: "application" });
    this.note = make("div", { class: "gk-note", role: "status" });
    this.away = make("button", { type: "button", class: "gk-away", tabindex: "-1", hidden: true, onclick: () => this.goTo(this.nearest) });
    this.stage.append(this.note, this.away);
    this.card = make("aside", { class: "gk-card", hidden: true, tabindex: "-1" });
    this.live = make("div", { class: "gk-quiet", "aria-live": "polite" });
    this.help = make("div", { class: "gk-quiet", id: `gk-help-${crypto.randomUUID?.() ?? Math.random()}` });
    this.stage.setAttribute("aria-describedby", this.help.id);
    this.body = make("div", { class: "gk-body" }, this.stage, this.card);
    this.foot = make("p", { class: "gk-foot", hidden: true });
    this.legend = make("p", { class: "gk-legend" });
    this.root = make("div", { class: "gk-view" }, this.bar, this.body, this.legend, this.foot, this.live, this.help);
    this.sheet = new Sheet(this.stage, { onPlace: () => this.pointAway(), onZoom: () => this.nameZoom() });
    el.append(this.root);
  }

  listen() {
    const events = {
      "change:packed": () => this.load(),
      "change:labels": () => this.relabel(),
      "change:language": () => this.relabel(),
      "change:opened": () => this.relabel(),
      "change:view": () => this.relabel(),
      "change:message": () => this.tell(),
      "change:limit": () => this.tell(),
      "change:height": () => this.resize(),
      "change:selected": () => this.select(this.model.get("selected"), { echo: false }),
    };
    for (const [name, act] of Object.entries(events)) this.model.on(name, act);
    this.observer = new ResizeObserver(() => this.resized());
    this.observer.observe(this.root);
    for (const name of ["focusin", "keydown", "keyup"]) {
      this.root.addEventListener(name, (event) => this.shortcuts(event), true);
    }
    this.stage.addEventListener("keydown", (event) => this.key(event));
    this.card.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      if (this.way) this.leave();
      else { this.select(null); this.stage.focus(); }
      event.stopPropagation();
    });
    this.stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.stage.addEventListener("pointerdown", (event) => this.press(event));
    this.stage.addEventListener("scroll", () => { // nothing may scroll what is moved by hand
      const [dx, dy] = [this.stage.scrollLeft, this.stage.scrollTop];
      this.stage.scrollTo(0, 0);
      if (dx || dy) this.sheet.move(-dx, -dy);
    });
    this.root.addEventListener("fullscreenchange", () => this.resize());
    const turn = () => { // how high the window is decides which way the drawing runs
      if (this.root.clientWidth) this.resize();
      this.resized();
    };
    window.addEventListener("resize", turn);
    this.body.addEventListener("dblclick", () => this.unfold(this.pressed.number));
    this.search.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.find(), 120);
    });
    this.search.addEventListener("keydown", (event) => this.searchKey(event));
    this.forget = () => {
      for (const [name, act] of Object.entries(events)) this.model.off(name, act);
      this.observer.disconnect();
      window.removeEventListener("resize", turn);
      clearTimeout(this.typing);
      clearTimeout(this.sheet.rest);
    };
  }

  put(name, value) {
    this.model.set(name, value);
    this.model.save_changes();
  }

  // -------------------------------------------------------------- words and sizes

  relabel() {
    const labels = (this.labels = this.model.get("labels") ?? {});
    this.root.lang = this.model.get("language") === "zh" ? "zh-CN" : "en";
    for (const control of this.bar.querySelectorAll("[data-name]")) {
      const name = control.dataset.name;
      if (name === "actual") continue;
      if (["map", "graph", "torchviz", "fold", "cut"].includes(name)) control.textContent = labels[name] ?? "";
      else control.setAttribute("aria-label", labels[name] ?? "");
    }
    this.saving.setAttribute("aria-label", labels.save ?? "");
    this.nameZoom();
    const view = this.model.get("view");
    this.views.hidden = !view;
    this.views.setAttribute("aria-label", labels.views ?? "");
    for (const choice of this.views.children) choice.setAttribute("aria-pressed", choice.dataset.name === view);
    this.foldAll.hidden = !(this.model.get("opened") ?? []).length;
    this.search.placeholder = labels.search ?? "";
    this.search.setAttribute("aria-label", labels.search ?? "");
    this.stage.setAttribute("aria-label", labels.label ?? "");
    this.bar.setAttribute("aria-label", labels.label ?? "");
    this.card.setAttribute("aria-label", labels.card ?? "");
    this.sheet.svg?.setAttribute("aria-label", labels.label ?? "");
    this.help.textContent = labels.help ?? "";
    this.legend.replaceChildren(
      ...["live", "cut", "dead"].map((kind) => make("span", { class: `gk-sample gk-sample-${kind}` }, labels[`legend_${kind}`] ?? "")),
      make("span", { class: "gk-keys" }, labels.keys ?? ""));
    this.stage.title = "";
    const chosen = this.model.get("selected");
    if (!this.card.hidden && this.info?.[chosen]) this.fill(chosen, this.info[chosen]);
    if (this.loaded) this.buttons();
    this.pointAway();
    this.tell();
    this.refreshCount();
  }

  // What has nothing to work on is disabled, and its title says why.
  enable() {
    const missing = this.loaded ? "" : this.model.get("message") ?? "";
    const flat = this.model.get("view") === "torchviz" ? this.labels.no_fold ?? "" : "";
    for (const control of [...this.bar.querySelectorAll("[data-name]"), this.search]) {
      const name = control.dataset.name ?? "search";
      const reason = this.views.contains(control) ? "" : missing || (name === "fold" ? flat : "");
      control.disabled = Boolean(reason);
      control.title = reason || (this.labels[`${name}_hint`] ?? (name === "search" ? "" : this.labels[name] ?? ""));
    }
  }

  nameZoom() {
    this.percent.textContent = `${Math.round(this.sheet.zoom * 100)} %`;
    this.percent.setAttribute("aria-label", `${this.percent.textContent}, ${this.labels.actual ?? ""}`);
  }

  tell() {
    const text = this.model.get("message") || (this.loaded ? "" : this.labels.loading ?? "");
    this.note.textContent = text;
    this.note.hidden = !text;
    this.legend.hidden = !this.loaded || this.model.get("view") === "torchviz"; // torchviz has colours of its own
    this.saving.hidden = !text ? false : !this.model.get("message");
    this.enable();
    const undone = this.whatIf ? this.info[this.undoing]?.undo?.said : "";
    this.foot.textContent = this.way ? this.sentence() : undone || (this.model.get("limit") ?? "");
    this.foot.hidden = !this.foot.textContent;
    this.foot.classList.toggle("gk-way", Boolean(this.way || undone));
  }

  fillScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.root.requestFullscreen();
  }

  // The height at most: in a low window less than what is asked for. A frame is as high as its page wants to be.
  get most() {
    const asked = this.model.get("height") || 560;
    return window.parent === window ? Math.max(LOWEST, Math.min(asked, window.innerHeight - AROUND)) : asked;
  }

  resize() {
    const { most } = this;
    // A drawing that is shown whole needs no more height than it has.
    const across = (width) => Math.min(1, (this.root.clientWidth - 2 * MARGIN) / (width || 1));
    const focus = this.sheet.byNumber.get(this.focusNumber());
    const scale = across(this.sheet.width) >= READABLE ? across(this.sheet.width) : Math.min(FIRST, across(focus?.w));
    const wanted = this.loaded ? this.sheet.height * scale + 2 * MARGIN : this.model.get("message") ? 0 : most;
    if (document.fullscreenElement === this.root) return void (this.body.style.height = "");
    this.body.style.height = `${Math.round(Math.max(220, Math.min(most, wanted)))}px`;
  }

  resized() {
    if (!this.root.clientWidth) return; // hidden: the drawing stays where it is
    this.root.classList.toggle("gk-narrow", this.root.clientWidth < NARROW);
    const before = this.seen;
    this.seen = this.sheet.room;
    if (this.waiting && this.stage.clientWidth) this.show(this.waiting);
    else if (this.loaded && this.untouched && this.across(this.parcel) !== this.isAcross) this.show(this.parcel);
    else if (this.loaded && this.untouched) { this.resize(); this.open(); }
    else if (this.loaded && this.fitted) this.fit();
    else if (this.loaded && this.brought != null) this.sheet.bring(this.brought);
    else if (this.loaded) {
      if (before) this.sheet.move((this.seen.w - before.w) / 2, (this.seen.h - before.h) / 2);
      if (!this.card.hidden) this.sheet.reveal(this.sheet.byNumber.get(this.current));
    }
    this.seen = this.sheet.room;
  }

  // From left to right where the drawing is larger that way, or where a person has turned it.
  across(parcel) {
    if (!parcel.sideways) return false;
    if (this.turned != null) return this.turned;
    const room = { w: this.root.clientWidth, h: document.fullscreenElement === this.root ? this.body.clientHeight : this.most };
    const scale = (svg) => {
      const [, , w, h] = (svg.match(/viewBox="([^"]*)"/)?.[1] ?? "0 0 1 1").split(/[\s,]+/).map(Number);
      return Math.min(1, (room.w - 2 * MARGIN) / (w * POINT), (room.h - 2 * MARGIN) / (h * POINT));
    };
    return scale(parcel.sideways) > 1.1 * scale(parcel.svg);
  }

  turnOver() {
    this.turned = !this.isAcross;
    this.untouched = true;
    this.show(this.parcel);
    this.open();
  }

  // -------------------------------------------------------------- a new drawing

  async load() {
    const ticket = (this.ticket = (this.ticket ?? 0) + 1);
    const parcel = await unpack(this.model.get("packed"));
    if (ticket !== this.ticket) return;
    if (!parcel) return this.clear();
    if (this.stage.clientWidth) this.show(parcel);
    else this.waiting = parcel; // in a folded tab nothing can be measured yet
  }

  // There is no drawing, or none that can be made: the sentence that says why stands alone.
  clear() {
    this.waiting = this.way = this.whatIf = this.brought = null;
    this.current = null;
    this.hits = [];
    this.loaded = this.fitted = false;
    this.sheet.clear();
    this.card.hidden = true;
    this.resize();
    this.tell();
    this.refreshCount();
  }

  show(parcel) {
    this.waiting = null;
    const anchor = this.loaded ? this.sheet.byNumber.get(this.current ?? -1) ?? this.sheet.middle() : null;
    const before = anchor && { number: anchor.number, ...this.sheet.where(anchor) };
    this.info = parcel.info;
    this.parcel = parcel;
    this.ways = new Ways(parcel.arrows ?? [], this.info);
    const way = this.way?.start;
    const undone = this.whatIf ? this.undone : null;
    this.way = this.whatIf = this.brought = null;
    this.isAcross = this.across(parcel);
    this.sheet.load(this.isAcross ? parcel.sideways : parcel.svg);
    this.sheet.name(parcel.frames ?? []);
    this.turning.hidden = !parcel.sideways;
    this.loaded = true;
    this.resize();
    this.toCut.hidden = !this.sheet.nodes.some(({ number }) => ["cut", "plate"].includes(this.info[number]?.kind));
    this.relabel();
    const same = before && this.sheet.byNumber.get(before.number);
    if (same && !this.fitted && !this.untouched) {
      const now = this.sheet.where(same);
      this.sheet.move(before.x - now.x, before.y - now.y);
    } else {
      this.open();
    }
    if (this.search.value) this.find();
    this.select(this.model.get("selected"), { echo: false });
    if (way != null && this.sheet.byNumber.has(way)) this.follow(way);
    const plate = undone == null ? null : this.sheet.nodes.find(({ number }) => this.info[number]?.finding === undone && this.info[number].undo);
    if (plate) this.undo(plate.number);
    this.seen = this.sheet.room;
  }

  // + on what can be unfolded, − on what can be folded, and what undoes a cut in the drawing.
  buttons() {
    if (!this.sheet.svg) return;
    this.sheet.over.replaceChildren();
    const does = (act) => (event) => { event.stopPropagation(); act(); this.stage.focus({ preventScroll: true }); };
    const say = (key, name) => (this.labels[key] ?? "").replace("{name}", name);
    for (const { number, x, y, w, h } of this.sheet.nodes) {
      const info = this.info[number];
      if (info?.open) this.sheet.attach({ x: x + w / 2, y: y - h / 2 }, say("unfold_one", info.title), "+", does(() => this.unfold(number)), "box");
      if (info?.undo) {
        const button = this.sheet.attach({ x: x + w / 2, y: y + h / 2 }, this.labels.undo ?? "", this.labels.undo ?? "", does(() => this.undo(number)), "plate");
        button.dataset.plate = number;
      }
    }
    for (const frame of this.sheet.frames) {
      const { name, folds } = frame;
      if (!folds || !this.foldsTo(folds)) continue;
      this.sheet.attach({ x: frame.x + frame.w, y: frame.y }, say("fold_one", name), "−", does(() => this.fold(folds)), "frame");
    }
    this.pressUndo();
  }

  // The first view: all of it, or the cut at a size at which it can be read and is in sight from edge to edge.
  open() {
    this.untouched = true;
    this.fitted = this.sheet.whole >= READABLE;
    if (this.fitted) return this.sheet.fit();
    const focus = this.sheet.byNumber.get(this.focusNumber());
    const { w, h } = this.sheet.room;
    const most = (box) => Math.min(1, (w - 2 * MARGIN) / box.w, (h - 2 * MARGIN) / box.h);
    if (!focus) return this.sheet.zoomTo(Math.max(FIRST, this.sheet.whole));
    const every = around([focus, ...this.plates()]);
    const shown = most(every) >= READABLE ? every : focus;
    return this.sheet.centre(shown, Math.max(SMALLEST, Math.min(most(shown), Math.max(FIRST, this.sheet.whole))));
  }

  // The plates in the drawing, in the order of the findings; of a finding with several, the first.
  plates() {
    const found = new Map();
    for (const node of this.sheet.nodes) {
      const { kind, finding } = this.info[node.number] ?? {};
      const key = finding ?? `n${node.number}`;
      if (["cut", "plate"].includes(kind) && !found.has(key)) found.set(key, node);
    }
    return [...found.values()];
  }

  // From plate to plate; the first is the one that is in the middle at the beginning.
  nextPlate() {
    const order = [this.focusNumber(), ...this.plates().map(({ number }) => number)];
    const all = [...new Set(order)];
    return this.card.hidden ? all[0] : all[(all.indexOf(this.current) + 1) % all.length];
  }

  // What of the problems is out of sight, and which way the nearest of them lies.
  pointAway() {
    const { w, h } = this.sheet.room;
    const away = w && this.loaded ? this.plates().filter((node) => !this.sheet.isInSight(node)) : [];
    this.away.hidden = !away.length;
    if (!away.length) return;
    const from = (node) => { const at = this.sheet.where(node); return [at.x - w / 2, at.y - h / 2]; };
    const near = away.reduce((a, b) => (Math.hypot(...from(b)) < Math.hypot(...from(a)) ? b : a));
    const [dx, dy] = from(near);
    const [side, arrow] = Math.abs(dx) / w > Math.abs(dy) / h ? (dx > 0 ? ["right", "→"] : ["left", "←"]) : dy > 0 ? ["down", "↓"] : ["up", "↑"];
    const said = (this.labels[away.length > 1 ? "away_many" : "away_one"] ?? "").replace("{n}", away.length);
    this.nearest = near.number;
    if (this.away.textContent === `${said} ${arrow}`) return;
    this.away.className = `gk-away gk-away-${side}`;
    this.away.textContent = `${said} ${arrow}`;
  }

  focusNumber() {
    for (const kind of ["cut", "plate", "fixed", "loss"]) {
      const found = this.sheet.nodes.find(({ number }) => this.info[number]?.kind === kind);
      if (found) return found.number;
    }
    return this.sheet.nodes.at(-1)?.number;
  }

  fit() {
    this.untouched = false;
    this.fitted = true;
    this.sheet.fit();
  }

  zoom(factor, at) {
    this.fitted = this.untouched = false;
    this.brought = null;
    const node = !at && this.sheet.byNumber.get(this.current ?? -1);
    this.sheet.zoomTo(this.sheet.zoom * factor, at ?? (node ? this.sheet.where(node) : undefined));
  }

  // -------------------------------------------------------------- choosing a node

  select(number, { echo = true } = {}) {
    const node = number == null ? null : this.sheet.byNumber.get(number);
    this.sheet.svg && this.sheet.unring("gk-chosen");
    if (echo && this.model.get("selected") !== (node ? number : null)) this.put("selected", node ? number : null);
    const info = node && this.info[number];
    this.card.hidden = !info;
    if (!node) return;
    this.untouched = false;
    this.brought = null;
    this.at(node);
    this.sheet.ring(node, "gk-chosen");
    if (info) this.fill(number, info);
    if (this.fitted && this.sheet.whole < READABLE) {
      this.fitted = false; // the card has taken too much room to show all of it
      this.sheet.centre(node, READABLE);
    } else if (this.fitted) {
      this.sheet.fit();
    }
    this.sheet.reveal(node);
  }

  fill(number, info) {
    fillCard(this.card, info, this.labels, {
      close: () => { this.select(null); this.stage.focus(); },
      unfold: () => this.unfold(number),
      fold: this.foldFor(number),
      undo: info.undo ? () => this.undo(number) : null,
      path: ["cut", "plate", "input", "loss"].includes(info.kind) ? null
        : () => (this.way?.start === number ? this.leave() : this.follow(number)),
      found: this.matching(number),
    });
    this.pressPath();
    this.pressUndo();
  }

  // The keys go on in the card: Tab walks through it, Escape leads back.
  intoCard() {
    (this.card.querySelector(".gk-undo, .gk-path, .gk-unfold") ?? this.card.querySelector("button"))?.focus();
  }

  at(node) {
    this.current = node?.number ?? null;
    if (!this.sheet.svg) return;
    this.sheet.unring("gk-current");
    if (!node) return;
    this.sheet.ring(node, "gk-current");
    const info = this.info[node.number];
    this.live.textContent = info ? [info.title, info.state, info.place].filter(Boolean).join(", ") : "";
  }

  // -------------------------------------------------------------- the path to the loss

  follow(start) {
    const { on, place, said, cuts } = this.ways.tell(start);
    this.way = { start, place, said };
    this.sheet.ends = cuts;
    this.sheet.light(on);
    this.tell();
    this.live.textContent = this.foot.textContent;
    this.pressPath();
  }

  leave() {
    this.way = null;
    this.sheet.light(null);
    this.tell();
    this.pressPath();
  }

  sentence() {
    const name = this.info[this.way.start]?.title ?? "";
    return (this.labels[this.way.said] ?? "").replace("{name}", name).replace("{place}", this.way.place);
  }

  pressPath() {
    const button = this.card.querySelector(".gk-path");
    const on = this.way != null && this.way.start === this.current;
    button?.setAttribute("aria-pressed", on);
    if (button) button.textContent = on ? this.labels.path_clear : this.labels.path;
  }

  // -------------------------------------------------------------- files

  async save(form) {
    const { width, height } = this.sheet;
    const name = `${this.model.get("name") || "gradkit"}.${form}`;
    const text = form === "dot" ? (this.isAcross ? this.parcel.dot.replace("rankdir=TB", "rankdir=LR") : this.parcel.dot)
      : this.isAcross ? this.parcel.sideways : this.parcel.svg;
    try {
      const blob = form === "png" ? await bitmap(text, width, height)
        : new Blob([text], { type: form === "svg" ? "image/svg+xml" : "text/vnd.graphviz" });
      handOut(blob, name);
      this.live.textContent = (this.labels.saved ?? "").replace("{name}", name);
    } catch {
      this.live.textContent = this.note.textContent = this.labels.save_failed ?? "";
      this.note.hidden = false;
    }
  }

  goTo(number) {
    const node = this.sheet.byNumber.get(number);
    if (!node) return;
    this.fitted = this.untouched = false;
    this.select(number); // its card takes some of the room
    this.sheet.bring(node);
    this.brought = node;
    this.seen = this.sheet.room;
    this.stage.focus({ preventScroll: true });
  }

  step(node) {
    if (!node) return;
    this.untouched = false;
    this.brought = null;
    if (this.card.hidden) this.at(node);
    else this.select(node.number);
    this.sheet.reveal(node);
  }

  unfold(number) {
    const path = this.info[number]?.open;
    const opened = this.model.get("opened") ?? [];
    if (!path || opened.includes(path)) return;
    this.current = number;
    this.fitted = this.untouched = false;
    const folded = `${FOLDED}${path}`;
    this.put("opened", opened.includes(folded) ? opened.filter((one) => one !== folded) : [...opened, path]);
  }

  // What is unfolded once a module is one box again; null where that cannot be shown.
  foldsTo(path) {
    const opened = this.model.get("opened") ?? [];
    const kept = opened.filter((one) => one !== path && !one.startsWith(`${path}.`) && !one.startsWith(`${FOLDED}${path}.`));
    const wanted = [...kept, `${FOLDED}${path}`];
    return this.model.leads ? this.model.leads(wanted) : wanted;
  }

  fold(path) {
    const wanted = path && this.foldsTo(path);
    if (!wanted) return;
    this.fitted = this.untouched = false;
    this.put("opened", wanted);
  }

  // The innermost frame around a box that can be folded.
  frameOf(number) {
    const node = this.sheet.byNumber.get(number);
    const box = node && { x: node.x - node.w / 2, y: node.y - node.h / 2, w: node.w, h: node.h };
    const around = this.sheet.frames.filter((frame) => box && frame.folds && contains(frame, box));
    return around.reduce((a, b) => (!a || contains(a, b) ? b : a), null);
  }

  foldFor(number) {
    const { name, folds } = this.frameOf(number) ?? {};
    return folds && this.foldsTo(folds)
      ? { name: (this.labels.fold_frame ?? "").replace("{name}", name), act: () => { this.fold(folds); this.stage.focus({ preventScroll: true }); } } : null;
  }

  // -------------------------------------------------------------- what would flow

  undo(number) {
    const same = this.whatIf && this.undoing === number;
    this.whatIf?.end();
    this.whatIf = null;
    const shown = this.info[number]?.undo;
    if (!same && shown) {
      this.leave();
      [this.undoing, this.undone] = [number, this.info[number].finding];
      this.whatIf = new WhatIf(this.sheet, shown);
    }
    this.tell();
    this.live.textContent = this.whatIf ? shown.said : "";
    this.pressUndo();
  }

  pressUndo() {
    const on = (number) => Boolean(this.whatIf) && this.undoing === number;
    const press = (button, number) => {
      button.setAttribute("aria-pressed", on(number));
      button.textContent = (on(number) ? this.labels.undo_off : this.labels.undo) ?? "";
      button.setAttribute("aria-label", button.textContent);
      button.title = "";
    };
    for (const button of this.sheet.over.querySelectorAll("[data-plate]")) press(button, Number(button.dataset.plate));
    const button = this.card.querySelector(".gk-undo");
    if (button) press(button, this.current);
  }

  // -------------------------------------------------------------- search

  find() {
    clearTimeout(this.typing);
    this.typing = null;
    if (!this.sheet.svg) return;
    this.sheet.unring("gk-hit");
    const wanted = this.wanted();
    this.hits = wanted ? this.sheet.nodes.filter(({ number }) => this.matches(number, wanted)) : [];
    if (wanted && !this.hits.length && /^\d+$/.test(wanted)) {
      const whole = new RegExp(`(^|\\D)${wanted}(\\D|$)`); // no line of that number: a size, or a layer?
      this.hits = this.sheet.nodes.filter((node) => whole.test(this.text(node)));
    }
    for (const node of this.hits) this.sheet.ring(node, "gk-hit");
    this.refreshCount();
    this.live.textContent = this.count.textContent;
    if (this.hits.length) this.sheet.reveal(this.hits[0]);
  }

  wanted() {
    return this.search.value.trim().toLowerCase();
  }

  text({ number, group }) {
    const { title = "", rows = [] } = this.info[number] ?? {};
    return [title, ...rows.map((row) => row[1]), group.textContent].join("\n").toLowerCase().replaceAll("\u00a0", " ");
  }

  // The names or lines in a box that are meant: "41" and "train.py:41" mean that line, and no other that begins so.
  matching(number, wanted = this.wanted()) {
    const { names = [], places = [] } = this.info[number] ?? {};
    if (!wanted) return [];
    const line = wanted.match(/^([^\s:]*:)?(\d+)$/);
    if (line) {
      return places.filter((place) => place.toLowerCase() === wanted || place.endsWith(line[1] ? `/${wanted}` : `:${wanted}`));
    }
    return [...names, ...places].filter((name) => name.toLowerCase().includes(wanted)).slice(0, 6);
  }

  matches(number, wanted) {
    if (this.matching(number, wanted).length) return true;
    return !/^([^\s:]*:)?\d+$/.test(wanted) && this.text(this.sheet.byNumber.get(number)).includes(wanted);
  }

  refreshCount() {
    const none = !this.search.value.trim();
    const at = this.hits.findIndex(({ number }) => number === this.current);
    const words = at < 0 ? this.labels.hits : this.labels.hit;
    this.count.textContent = none ? "" : this.hits.length
      ? (words ?? "{n}").replace("{n}", this.hits.length).replace("{at}", at + 1) : this.labels.no_hits ?? "";
    this.earlier.hidden = this.later.hidden = this.hits.length < 2;
  }

  turn(by) {
    if (!this.hits.length) return;
    const at = this.hits.findIndex(({ number }) => number === this.current);
    const next = at < 0 ? (by > 0 ? 0 : this.hits.length - 1) : (at + by + this.hits.length) % this.hits.length;
    this.select(this.hits[next].number);
    this.refreshCount();
  }

  searchKey(event) {
    if (event.key === "Enter" && this.typing) this.find(); // typed faster than the search waits
    if (event.key === "Enter" && this.hits.length) {
      this.turn(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      this.search.value = "";
      this.find();
      this.stage.focus();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  // -------------------------------------------------------------- mouse

  hit(event) {
    const group = event.target.closest?.("g.node");
    return group ? Number(group.dataset.number) : null;
  }

  wheel(event) {
    if (!this.loaded || !(event.ctrlKey || event.metaKey || this.stage.matches(":focus"))) return; // the page scrolls
    event.preventDefault();
    const box = this.stage.getBoundingClientRect();
    const lines = event.deltaMode ? 16 : 1;
    this.zoom(Math.exp(-event.deltaY * lines * 0.0016), { x: event.clientX - box.left, y: event.clientY - box.top });
  }

  press(event) {
    if (event.button !== 0) return;
    const start = { x: event.clientX, y: event.clientY, number: this.hit(event) };
    // The first of two clicks opens the card, and the drawing may move: a double click means what the first one hit.
    if (event.timeStamp - this.pressed.at > 500) this.pressed = { number: start.number, at: event.timeStamp };
    let [last, dragging] = [start, false];
    const move = (to) => {
      if (!dragging && Math.hypot(to.clientX - start.x, to.clientY - start.y) < 4) return;
      if (!dragging) this.stage.setPointerCapture(event.pointerId);
      dragging = true;
      this.brought = null;
      this.fitted = this.untouched = false;
      this.stage.classList.add("gk-dragging");
      this.sheet.move(to.clientX - last.x, to.clientY - last.y);
      last = { x: to.clientX, y: to.clientY };
    };
    const end = (up) => {
      for (const [name, act] of [["pointermove", move], ["pointerup", end], ["pointercancel", end]]) {
        this.stage.removeEventListener(name, act);
      }
      this.stage.classList.remove("gk-dragging");
      if (!dragging && up.type === "pointerup" && start.number != null) this.select(start.number);
    };
    for (const [name, act] of [["pointermove", move], ["pointerup", end], ["pointercancel", end]]) {
      this.stage.addEventListener(name, act);
    }
  }

  // -------------------------------------------------------------- keys

  // JupyterLab takes single letters before a widget sees them: d d deletes the cell. This attribute stops it, but only
  // on the very element that has the focus. It would stop Ctrl+S as well, so it is gone while Ctrl or Cmd is down.
  shortcuts(event) {
    const held = event.type === "keydown" && (event.ctrlKey || event.metaKey || ["Control", "Meta"].includes(event.key));
    if (held) event.target.removeAttribute("data-lm-suppress-shortcuts");
    else event.target.setAttribute("data-lm-suppress-shortcuts", "true");
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.loaded) return;
    const here = this.sheet.byNumber.get(this.current ?? -1);
    const arrows = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    const order = this.sheet.nodes;
    const next = here && order[order.indexOf(here) + (event.shiftKey ? -1 : 1)];
    if (event.key in arrows) {
      const [dx, dy] = arrows[event.key];
      if (event.shiftKey) this.sheet.move(-60 * dx, -60 * dy);
      else this.step(here ? this.sheet.neighbour(here, dx, dy) : this.sheet.middle());
    } else if (event.key === "Tab" && next) this.step(next);
    else if ((event.key === "Enter" || event.key === " ") && here && !this.card.hidden) this.intoCard();
    else if (event.key === "Enter" || event.key === " ") this.select((here ?? this.sheet.middle()).number);
    else if (event.key === "Escape" && this.way) this.leave();
    else if ((event.key === "n" || event.key === "p") && this.hits.length) this.turn(event.key === "n" ? 1 : -1);
    else if (event.key === "Escape" && (here || !this.card.hidden)) { this.select(null); this.at(null); }
    else if (event.key === "+" || event.key === "=") this.zoom(STEP);
    else if (event.key === "-" || event.key === "_") this.zoom(1 / STEP);
    else if (event.key === "0") this.fit();
    else if (event.key === "/") this.search.focus();
    else if (event.key === "u" && here) this.unfold(here.number);
    else if (event.key === "f" && here) this.fold(this.frameOf(here.number)?.folds);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

export default {
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.forget();
  },
};
