// A saved report. The page holds every drawing that it can show; this stands where the viewer expects the kernel.
// It comes after graph_view.js in one script.

{
  const held = JSON.parse(document.getElementById("gkr-data").textContent);
  const root = document.documentElement;
  const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;
  const same = (some, others) => some.length === others.length && some.every((one, at) => one === others[at]);

  function bytes(text) {
    const letters = atob(text);
    const made = new Uint8Array(letters.length);
    for (let at = 0; at < letters.length; at += 1) made[at] = letters.charCodeAt(at);
    return new DataView(made.buffer);
  }

  class Kernel {
    constructor(language, view) {
      this.heard = {};
      this.state = { language, view, opened: [], selected: null, height: held.height, labels: held.labels[language],
                     packed: null, message: "", limit: "", name: "gradkit" };
      Object.assign(this.state, this.drawing());
    }

    get(name) {
      return this.state[name];
    }

    on(name, act) {
      (this.heard[name] ??= []).push(act);
    }

    off(name, act) {
      this.heard[name] = (this.heard[name] ?? []).filter((other) => other !== act);
    }

    set(name, value) {
      if (this.state[name] === value) return;
      this.state[name] = name === "opened" ? this.unfolded(value) : value;
      if (name === "view") this.state.opened = this.unfolded(this.state.opened);
      this.tell(name);
      if (!["opened", "view", "language"].includes(name)) return;
      const drawing = this.drawing();
      Object.assign(this.state, drawing);
      for (const other of Object.keys(drawing)) this.tell(other);
    }

    save_changes() {}

    tell(name) {
      for (const act of this.heard[`change:${name}`] ?? []) act();
    }

    has(opened) {
      return held.drawings.some((one) => one.view === this.state.view && same(one.opened, opened));
    }

    // What is asked for where the page holds it, else the part that was asked for last, with what it lies in.
    unfolded(asked) {
      if (!asked.length || this.has(asked)) return asked;
      const last = asked.at(-1);
      if (last.startsWith("-")) { // what was unfolded by hand is folded by leaving it out
        const rest = asked.slice(0, -1);
        return this.has(rest) ? rest : this.state.opened;
      }
      return held.drawings.find((one) => one.view === this.state.view && one.opened.at(-1) === last)?.opened ?? [];
    }

    // What folding comes to; null where the page does not hold it.
    leads(asked) {
      const found = this.unfolded(asked);
      return same(found, this.state.opened) ? null : found;
    }

    drawing() {
      const { language, view, opened } = this.state;
      const mine = held.drawings.filter((one) => one.language === language && one.view === view);
      const found = mine.find((one) => same(one.opened, opened)) ?? mine.find((one) => !one.opened.length);
      return { packed: found.packed ? bytes(found.packed) : null, message: found.message, limit: found.limit,
               name: found.name };
    }

    speak(language) {
      this.state.labels = held.labels[language];
      this.set("language", language);
    }
  }

  const place = document.getElementById("gkr-viewer");
  const kernel = new Kernel(chosen("gkr-language"), held.view);
  root.classList.add("gkr-alive");
  const view = new View(kernel, place);

  const speak = () => {
    root.lang = chosen("gkr-language") === "zh" ? "zh-CN" : "en";
    document.title = held.titles[chosen("gkr-language")];
    kernel.speak(chosen("gkr-language"));
  };
  for (const button of document.querySelectorAll('input[name="gkr-language"]')) button.addEventListener("change", speak);

  // A finding's plate: its button is there where the drawing has one.
  const plate = (finding) => Object.keys(view.info).find((number) => view.info[number].finding === finding);
  for (const button of document.querySelectorAll(".gkr-look")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      if (plate(Number(button.value)) == null) {
        kernel.set("view", held.view); // the view at hand has no drawing
        await view.load();
      }
      const number = plate(Number(button.value));
      if (number == null) return;
      place.scrollIntoView({ block: "nearest" });
      view.goTo(Number(number));
    });
  }

  // The page around a frame knows which places it can open, and opens them.
  function linkThrough(around) {
    const [known, key] = [new Map(), ({ file, line, cell }) => `${file}:${line}:${cell ?? ""}`];
    const link = () => linkPlaces(document, (place) => known.get(key(place)) === true);
    const ask = () => {
      const places = [...document.querySelectorAll("[data-file]")].map(placeOf).filter((one) => !known.has(key(one)));
      for (const one of places) known.set(key(one), false);
      if (places.length) around.postMessage({ gradkit: "places", asked: places }, "*");
      link();
    };
    window.addEventListener("message", ({ source, data }) => {
      if (source !== around || data?.gradkit !== "opens" || !Array.isArray(data.known)) return;
      for (const one of data.known) known.set(key(one), one.opens === true);
      link();
    });
    followPlaces(document, (place) => around.postMessage({ gradkit: "open", place }, "*"));
    new MutationObserver(ask).observe(document.body, { childList: true, subtree: true });
    ask();
  }

  // In a cell of a notebook the page lies in a frame, which is made as high as the page is, and as dark as the notebook.
  if (window.parent !== window) {
    const tell = () => parent.postMessage({ gradkit: "height", height: Math.ceil(document.body.getBoundingClientRect().height) }, "*");
    new ResizeObserver(tell).observe(document.body);
    window.addEventListener("message", ({ source, data }) => { // on a slide the picture comes first, and is seen whole
      if (source !== parent || data?.gradkit !== "slide" || !(data.height > 0)) return;
      document.body.classList.add("gkr-slide");
      kernel.set("height", Math.max(260, Math.min(held.height, Math.round(0.5 * data.height))));
    });
    window.addEventListener("message", ({ source, data }) => {
      if (source !== parent || data?.gradkit !== "theme") return;
      const wanted = document.getElementById(data.dark ? "gkr-dark" : "gkr-light");
      if (!root.dataset.chosen) wanted.checked = true;
    });
    linkThrough(window.parent);
    for (const button of document.querySelectorAll('input[name="gkr-colours"]')) {
      button.addEventListener("change", () => { root.dataset.chosen = "yes"; });
    }
  }
}
