// Writes into a cell of the notebook that the page shows, and runs cells when the kernel asks for it. Plain ESM.
//
// The cell's text is changed through the notebook's own model, so that the editor's undo takes it back. Where a page has
// no such model (VS Code, a saved page), `able` stays false and nothing is offered.

function notebookOf(model) {
  const found = model.widget_manager?.context?.model;
  return found?.cells && typeof found.cells.get === "function" ? found : null;
}

function cellsOf(notebook) {
  return Array.from({ length: notebook.cells.length }, (_, at) => notebook.cells.get(at));
}

const textOf = (cell) => cell.sharedModel.getSource().replace(/\n+$/, "");

// The cell that ran under a number with this text, or why there is none.
function found(notebook, { number, text }) {
  const code = cellsOf(notebook).filter((cell) => cell.type === "code");
  const same = code.filter((cell) => textOf(cell) === text);
  const ran = same.find((cell) => cell.executionCount === number);
  if (ran) return { cell: ran };
  if (code.some((cell) => cell.executionCount === number)) return { refused: "changed" };
  if (same.length === 1) return { cell: same[0] };
  return { refused: same.length ? "several" : "gone" };
}

// Only what differs is replaced: the cursor stays where it was, and undo shows what was done.
function replace(cell, now) {
  const was = textOf(cell);
  let first = 0;
  while (first < Math.min(was.length, now.length) && was[first] === now[first]) first += 1;
  let last = 0;
  while (last < Math.min(was.length, now.length) - first && was.at(-1 - last) === now.at(-1 - last)) last += 1;
  cell.sharedModel.updateSource(first, was.length - last, now.slice(first, now.length - last));
}

function write(notebook, asked) {
  const { cell, refused } = found(notebook, asked);
  if (refused) return refused;
  if (notebook.readOnly || cell.getMetadata("editable") === false) return "locked";
  replace(cell, asked.now);
  return "";
}

const aFrame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));

// The element of a cell; a long notebook may hold only those elements that are near to what is seen.
function elementOf(panel, notebook, cell) {
  const at = cellsOf(notebook).indexOf(cell);
  const known = [...panel.querySelectorAll(".jp-Notebook .jp-Cell")];
  return known.find((one) => one.dataset.windowedListIndex === String(at))
    ?? (known.length === notebook.cells.length ? known[at] : null);
}

// JupyterLab runs the cell that is active, and only what lies in an output that it trusts may ask for that: the panel.
async function runOne(panel, box, notebook, asked) {
  const { cell, refused } = found(notebook, asked);
  if (refused) return refused;
  const element = elementOf(panel, notebook, cell);
  const editor = element?.querySelector(".cm-content");
  if (!editor) return "gone";
  editor.focus({ preventScroll: true });
  await aFrame();
  const chosen = [...panel.querySelectorAll(".jp-Cell.jp-mod-active, .jp-Cell.jp-mod-selected")];
  if (chosen.some((one) => one !== element) || !chosen.length) return "gone";
  const step = document.createElement("a");
  step.dataset.commandlinkerCommand = "notebook:run-cell";
  box.append(step);
  step.click();
  step.remove();
  return "";
}

async function run(notebook, cells) {
  const box = [...document.querySelectorAll(".jp-NotebookPanel .gkp")].find((one) => one.offsetParent !== null);
  const panel = box?.closest(".jp-NotebookPanel");
  if (!panel) return "gone";
  for (const asked of cells) {
    const refused = await runOne(panel, box, notebook, asked);
    if (refused) return refused;
    await aFrame();
  }
  return "";
}

export default {
  initialize({ model }) {
    const notebook = notebookOf(model);
    const heard = async ({ ask, write: change, run: cells }) => {
      if (!notebook || ask === undefined) return;
      const refused = change ? write(notebook, change) : await run(notebook, cells);
      model.send({ ask, refused });
    };
    model.on("msg:custom", heard);
    if (notebook) {
      model.set("able", true);
      model.save_changes();
    }
    return () => model.off("msg:custom", heard);
  },
};
