// The places of a report, "train.py:41", as links: where the page around is JupyterLab or VS Code, they open the file at
// that line; the place of a cell leads to the cell. Elsewhere they are plain text.

const PLACES = "[data-file]";

function jupyterRoot() {
  const config = document.getElementById("jupyter-config-data");
  try {
    return config && document.querySelector("#main.jp-LabShell, .jp-LabShell") ? JSON.parse(config.textContent).serverRoot ?? null : null;
  } catch {
    return null;
  }
}

// A file as JupyterLab's server calls it; null where it lies outside of the folder that the server shows.
function inJupyter(file, root) {
  const path = file.replaceAll("\\", "/");
  const home = path.match(/^(\/root|\/home\/[^/]+|\/Users\/[^/]+|\/home|[A-Za-z]:\/Users\/[^/]+)(?=\/)/)?.[0] ?? "";
  const whole = root.replaceAll("\\", "/").replace(/^~/, home).replace(/\/$/, "");
  return path.startsWith(`${whole}/`) ? path.slice(whole.length + 1) : null;
}

function inVSCode() {
  return /vscode-/.test(document.body.className);
}

// "vscode://file/C:/my%20runs/train.py:41": each part of the path by itself, so that no # or ? in it ends it.
function vscodeLink(file, line) {
  const parts = file.replaceAll("\\", "/").replace(/^\//, "").split("/");
  const path = parts.map((one, at) => (at === 0 && /^[A-Za-z]:$/.test(one) ? one : encodeURIComponent(one))).join("/");
  return `vscode://file/${path}:${line}`;
}

function cellOf(number) {
  const prompts = [...document.querySelectorAll(".jp-CodeCell .jp-InputPrompt")];
  return prompts.find((one) => one.innerText.trim().startsWith(`[${number}]`))?.closest(".jp-Cell") ?? null;
}

function canOpen({ file, cell }) {
  if (cell) return cellOf(cell) != null;
  if (inVSCode()) return true;
  const root = jupyterRoot();
  return root != null && inJupyter(file, root) != null;
}

// JupyterLab follows a link without asking where it lies in an output that it trusts: so the link lies beside `near`.
function openPlace({ file, line, cell }, near = document.body) {
  if (cell) {
    const found = cellOf(cell);
    found?.scrollIntoView({ block: "center", behavior: "smooth" });
    found?.querySelector(".cm-content")?.focus({ preventScroll: true });
    return;
  }
  const step = document.createElement("a");
  if (inVSCode()) {
    step.href = vscodeLink(file, line);
  } else {
    const path = inJupyter(file, jupyterRoot() ?? "");
    if (path == null) return;
    step.dataset.commandlinkerCommand = "rendermime:handle-local-link";
    step.dataset.commandlinkerArgs = JSON.stringify({ path, id: `#line=${Math.max(0, line - 1)}` }); // counted from 0
  }
  near.append(step);
  step.click();
  step.remove();
}

function placeOf(element) {
  const { file, line, cell } = element.dataset;
  return { file, line: Number(line), cell };
}

// Makes links of the places within an element, also of those that come later if it is called again.
function linkPlaces(root, can = canOpen) {
  for (const one of root.querySelectorAll(`${PLACES}:not([role])`)) {
    if (!can(placeOf(one))) continue;
    one.setAttribute("role", "link");
    one.tabIndex = 0;
  }
}

function followPlaces(root, open = openPlace) {
  const follow = (event) => {
    const link = event.target.closest?.(`${PLACES}[role="link"]`);
    if (!link || (event.type === "keydown" && event.key !== "Enter")) return;
    event.preventDefault();
    event.stopPropagation();
    open(placeOf(link), link.parentElement);
  };
  root.addEventListener("click", follow);
  root.addEventListener("keydown", follow, true);
}
