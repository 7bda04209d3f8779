// A poll without a server: counts of hands typed by somebody, or votes out of files of results.

const data = JSON.parse(document.getElementById("data").textContent);
const { labels, guesses, beliefs } = data;
const counts = beliefs.map(() => Object.fromEntries(guesses.map((one) => [one.id, 0])));
const open = beliefs.map(() => false);
let at = 0;
let read = 0;

const fill = (text, facts) => text.replace(/\{(\w+)\}/g, (_, name) => facts[name]);

function made(tag, look, text) {
  const element = document.createElement(tag);
  if (look) element.className = look;
  if (text !== undefined) element.textContent = text;
  return element;
}

function button(text, act, name) {
  const element = made("button", "", text);
  element.type = "button";
  element.dataset.act = name;
  element.addEventListener("click", act);
  return element;
}

const poll = document.getElementById("poll");
const top = made("div", "top");
const [title, number, heard] = [made("span", "", labels.title), made("span", "number"), made("span", "heard")];
heard.setAttribute("aria-live", "polite");
top.append(title, number, heard);
const belief = made("h1");
belief.tabIndex = -1;
const how = made("p", "how", labels.how);
const rows = guesses.map((one, n) => {
  const row = made("div", "row");
  row.dataset.guess = one.id;
  const name = made("span", "name");
  name.append(made("b", "", n + 1), one.label);
  const less = button("−", () => count(n, -1), `less-${one.id}`);
  const more = button("+", () => count(n, 1), `more-${one.id}`);
  less.setAttribute("aria-label", fill(labels.less, { name: one.label }));
  more.setAttribute("aria-label", fill(labels.more, { name: one.label }));
  const [shown, space, bar] = [made("span", "count"), made("div"), made("div", "bar")];
  space.append(bar);
  row.append(name, less, more, shown, space);
  return { row, shown, bar, one };
});
const told = made("div", "told");
told.setAttribute("aria-live", "polite");
const buttons = made("div", "buttons");
const reveal = button("", turn, "reveal");
const file = made("label", "file", labels.files);
const input = made("input");
Object.assign(input, { type: "file", multiple: true, accept: ".csv" });
input.addEventListener("change", () => hear([...input.files]));
file.append(input);
buttons.append(
  button(labels.before, () => go(at - 1), "before"),
  reveal,
  button(labels.after, () => go(at + 1), "after"),
  file,
  button(labels.save, save, "save"),
);
poll.append(top, belief, how, ...rows.map((one) => one.row), buttons, told, made("p", "keys", labels.keys));

function count(n, step) {
  const mine = counts[at];
  mine[guesses[n].id] = Math.max(0, mine[guesses[n].id] + step);
  show();
}

function turn() {
  open[at] = !open[at];
  show();
}

function go(number) {
  at = (number + beliefs.length) % beliefs.length;
  show();
  belief.focus();
}

function show() {
  const [one, mine] = [beliefs[at], counts[at]];
  number.textContent = fill(labels.number, { at: at + 1, all: beliefs.length });
  belief.innerHTML = one.belief;
  const most = Math.max(1, ...Object.values(mine));
  for (const { row, shown, bar, one: guess } of rows) {
    shown.textContent = mine[guess.id];
    bar.style.width = `${(100 * mine[guess.id]) / most}%`;
    row.classList.toggle("right", open[at] && guess.id === one.verdict);
  }
  reveal.textContent = open[at] ? labels.hide : labels.reveal;
  told.hidden = !open[at];
  told.innerHTML = open[at] ? one.told : "";
}

// The rows of a file of results: kind, name and guess stand in columns that its first line names.
function cells(line) {
  return [...line.matchAll(/("(?:[^"]|"")*"|[^,]*)(?:,|$)/g)].map((found) => found[1].replace(/^"|"$/g, "").replaceAll('""', '"'));
}

async function hear(files) {
  let votes = 0;
  for (const one of files) {
    const lines = (await one.text()).replace(/^\ufeff/, "").split(/\r?\n/).filter(Boolean).map(cells);
    const [head, ...body] = lines;
    const column = (name) => (head ?? []).indexOf(name);
    for (const row of body) {
      const n = beliefs.findIndex((known) => known.id === row[column("name")]);
      const guess = row[column("predicted")];
      if (row[column("kind")] === "belief" && n >= 0 && guess in counts[n]) {
        counts[n][guess] += 1;
        votes += 1;
      }
    }
  }
  read += files.length;
  heard.textContent = votes ? fill(labels.counted, { files: read, votes }) : labels.none;
  input.value = "";
  show();
}

function save() {
  const lines = beliefs.map((one, n) => [one.id, one.verdict, ...guesses.map((guess) => counts[n][guess.id])].join(","));
  const text = `belief,verdict,${guesses.map((one) => one.id).join(",")}\n${lines.join("\n")}\n`;
  const link = made("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = "poll.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const digit = /^(?:Digit|Numpad)([1-3])$/.exec(event.code);
  if (digit) count(Number(digit[1]) - 1, event.shiftKey ? -1 : 1);
  else if (event.key === "ArrowRight" || event.key === "PageDown") go(at + 1);
  else if (event.key === "ArrowLeft" || event.key === "PageUp") go(at - 1);
  else if (event.key.toLowerCase() === "r") turn();
  else return;
  event.preventDefault();
});

show();
