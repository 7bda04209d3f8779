// A piece of HTML whose buttons tell the kernel which one was pressed. Plain ESM.

export default {
  render({ model, el }) {
    const draw = () => {
      const held = el.contains(document.activeElement) ? document.activeElement.dataset.press : undefined;
      const box = el.querySelector(".gkp-scroll");
      const { scrollLeft, scrollTop } = box ?? {};
      el.innerHTML = model.get("html");
      if (box) Object.assign(el.querySelector(".gkp-scroll") ?? {}, { scrollLeft, scrollTop });
      if (held) el.querySelector(`[data-press="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
    };
    const press = ({ target }) => {
      const button = target.closest("button[data-press]");
      if (button) model.send({ press: button.dataset.press });
    };
    el.addEventListener("click", press);
    model.on("change:html", draw);
    draw();
    return () => model.off("change:html", draw);
  },
};
