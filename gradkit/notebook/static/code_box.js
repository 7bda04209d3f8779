// Code that can be changed. Shift+Enter or Ctrl+Enter runs it, Enter keeps the indentation, Tab goes on to the button.

const INDENT = /^[ ]*/;

export default {
  render({ model, el }) {
    const box = document.createElement("textarea");
    box.className = "gkq-code";
    box.spellcheck = false;
    box.autocapitalize = "off";
    box.wrap = "off";

    const name = () => box.setAttribute("aria-label", model.get("label"));
    const fit = () => { box.rows = Math.min(30, box.value.split("\n").length + 1); };
    const fill = () => {
      if (box.value !== model.get("value")) box.value = model.get("value");
      fit();
    };
    const tell = () => {
      model.set("value", box.value);
      model.save_changes();
      fit();
    };
    const keys = (event) => {
      if (event.isComposing || event.key !== "Enter") return;
      event.stopPropagation();
      event.preventDefault();
      if (event.shiftKey || event.ctrlKey || event.metaKey) {
        tell();
        model.send({ run: true, code: box.value });  // a change of state may still wait for an earlier one's reply
        return;
      }
      const line = box.value.slice(0, box.selectionStart).split("\n").pop();
      const deeper = line.trimEnd().endsWith(":") ? "    " : "";
      box.setRangeText(`\n${INDENT.exec(line)[0]}${deeper}`, box.selectionStart, box.selectionEnd, "end");
      tell();
    };

    box.addEventListener("keydown", keys);
    box.addEventListener("input", tell);
    model.on("change:value", fill);
    model.on("change:label", name);
    el.append(box);
    fill();
    name();
    return () => {
      model.off("change:value", fill);
      model.off("change:label", name);
    };
  },
};
