// Runs the cell of the start notebook that shows gradkit's panel, as soon as the notebook stands open. It runs nothing
// else: no other notebook, no cell that says anything else, and none that was run before.

const PANEL = /^import gradkit\s+gradkit\.panel\(\)$/;

function opened() {
  const config = document.getElementById("jupyter-config-data");
  return config ? JSON.parse(config.textContent).treePath ?? "" : "";
}

async function notebookAt(app, path) {
  for (let tries = 0; tries < 100; tries += 1) {
    for (const widget of app.shell.widgets("main")) {
      if (widget.context?.path === path && widget.sessionContext) return widget;
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return null;
}

function panelCell(notebook) {
  const at = notebook.widgets.findIndex((cell) => cell.model.type === "code");
  const model = notebook.widgets[at]?.model;
  const fresh = model && model.executionCount === null && model.outputs.length === 0;
  return fresh && PANEL.test(model.sharedModel.getSource().trim()) ? at : -1;
}

async function show(app) {
  const path = opened();
  if (!path.endsWith(".ipynb")) return;
  const widget = await notebookAt(app, path);
  if (!widget) return;
  await widget.context.ready;
  await widget.revealed;
  await widget.sessionContext.ready;
  const at = panelCell(widget.content);
  if (at < 0 || !widget.sessionContext.session?.kernel) return;
  widget.content.activeCellIndex = at;
  await app.commands.execute("notebook:run-cell");
}

const plugin = {
  id: "gradkit-start:plugin",
  description: "Shows gradkit's panel in its start notebook.",
  autoStart: true,
  activate: (app) => {
    app.restored.then(() => show(app)).catch((error) => console.warn("gradkit-start", error));
  },
};

window._JUPYTERLAB = window._JUPYTERLAB ?? {};
window._JUPYTERLAB["gradkit-start"] = {
  init: () => {},
  get: async () => () => ({ __esModule: true, default: plugin }),
};
