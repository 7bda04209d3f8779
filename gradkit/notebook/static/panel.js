// Looks after the panel around it: roles and names for screen readers, keys, scrolling and focus. Plain ESM.

const HELD = new Set(["Control", "Meta"]);
const QUIET = "data-lm-suppress-shortcuts";

function whenInPlace(el, act) {
  const root = el.closest(".gkp");
  if (root) act(root);
  else requestAnimationFrame(() => whenInPlace(el, act));
}

function describe(root) {
  for (const button of root.querySelectorAll(".gkp-seg > button, .gkp-door > button, .gkp-cause")) {
    button.setAttribute("aria-pressed", button.classList.contains("gkp-on"));
  }
  for (const button of root.querySelectorAll(".gkp-step")) {
    if (button.classList.contains("gkp-now")) button.setAttribute("aria-current", "step");
    else button.removeAttribute("aria-current");
  }
}

function firstSeen(root, name) {
  return [...root.querySelectorAll(`.${name}`)].find((element) => element.offsetParent !== null);
}

// A button has to be seen as a whole; of anything else the beginning, high enough for something to be read below it.
function inSight(target) {
  let area = { top: 0, bottom: window.innerHeight };
  for (let up = target.parentElement; up; up = up.parentElement) {
    if (up.scrollHeight > up.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(up).overflowY)) {
      area = up.getBoundingClientRect();
      break;
    }
  }
  const box = target.getBoundingClientRect();
  if (box.top < area.top + 8) return false;
  return target.matches("button") ? box.bottom <= area.bottom : box.top < (area.top + area.bottom) / 2;
}

function attend(root, model) {
  const live = document.createElement("div");
  live.className = "gkp-live";
  live.setAttribute("aria-live", "polite");
  root.append(live);
  root.setAttribute("role", "region");

  const name = () => {
    root.setAttribute("aria-label", model.get("label"));
    root.lang = model.get("language") === "zh" ? "zh-CN" : "en";
  };
  const say = () => { live.textContent = model.get("said"); };
  const go = () => setTimeout(() => {
    const target = firstSeen(root, model.get("goal")[0]);
    if (!target) return;
    if (!inSight(target)) target.scrollIntoView({ block: "start", behavior: "smooth" });
    target.focus({ preventScroll: true });
  }, 80);

  // JupyterLab takes single letters and Enter before a button hears them (dd deletes the cell). This attribute stops
  // it, on the very element that has the focus; it stops Ctrl+S as well, so it is gone while Ctrl or Cmd is down. In a
  // code box it stays: there Ctrl+Enter would run the cell that the panel is in, and all that was typed were lost.
  const keys = ({ type, target, key, ctrlKey, metaKey }) => {
    const held = ctrlKey || metaKey || HELD.has(key);
    if (type === "keydown" && held && !target.matches("textarea")) target.removeAttribute(QUIET);
    else target.setAttribute(QUIET, "true");
  };
  for (const type of ["focusin", "keydown", "keyup"]) root.addEventListener(type, keys, true);

  let waiting = false;
  const observer = new MutationObserver(() => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; describe(root); linkPlaces(root); });
  });
  observer.observe(root, { subtree: true, childList: true, attributeFilter: ["class"] });

  const events = { "change:label": name, "change:language": name, "change:said": say, "change:goal": go };
  for (const [event, act] of Object.entries(events)) model.on(event, act);
  name();
  describe(root);
  linkPlaces(root);
  followPlaces(root);
  return () => {
    observer.disconnect();
    live.remove();
    for (const [event, act] of Object.entries(events)) model.off(event, act);
  };
}

export default {
  render({ model, el }) {
    let leave = () => {};
    whenInPlace(el, (root) => { leave = attend(root, model); });
    return () => leave();
  },
};
