// What JavaScript adds; without it all pages work as well.
(function () {
  "use strict";
  const root = document.documentElement;

  const toggle = document.querySelector("[data-toggle-theme]");
  if (toggle) {
    const dark = () => root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    const name = () => {
      toggle.textContent = dark() ? "Light" : "Dark";
      toggle.setAttribute("aria-label", toggle.textContent + " theme");
    };
    toggle.hidden = false;
    name();
    toggle.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch (error) { /* for this page */ }
      name();
    });
  }

  document.querySelectorAll("[data-copy]").forEach(button => {
    const text = document.querySelector(button.dataset.copy);
    if (!navigator.clipboard || !text) return;
    button.hidden = false;
    button.addEventListener("click", () => {
      navigator.clipboard.writeText(text.textContent.trim()).then(() => { button.textContent = "Copied"; });
    });
  });

  // A page that answers a form is not asked for by that form again.
  const after = document.body.dataset.after;
  if (after) history.replaceState(null, "", after);

  // A form is sent once.
  document.querySelectorAll("form").forEach(form => {
    form.addEventListener("submit", event => {
      if (form.dataset.sent) event.preventDefault();
      form.dataset.sent = "yes";
    });
  });
  addEventListener("pageshow", () => {
    document.querySelectorAll("form").forEach(form => { delete form.dataset.sent; });
  });

  // The improvements in the picture, one by one, by the arrow keys.
  const plot = document.querySelector("[data-plot]");
  const readout = document.querySelector("[data-plot-text]");
  if (plot && readout) {
    const pictures = [...plot.querySelectorAll("svg")].map(one => [...one.querySelectorAll(".dot")]);
    const count = pictures[0] ? pictures[0].length : 0;
    let at = count;
    const show = next => {
      at = Math.max(0, Math.min(count - 1, next));
      pictures.forEach(dots => dots.forEach((dot, place) => dot.classList.toggle("on", place === at)));
      readout.textContent = pictures[0][at].querySelector("title").textContent;
    };
    if (count) {
      plot.tabIndex = 0;
      plot.setAttribute("role", "group");
      plot.setAttribute("aria-label", "Improvements: arrow keys go from one to the next");
      plot.addEventListener("keydown", event => {
        const step = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: count - 1 }[event.key];
        if (step === undefined) return;
        event.preventDefault();
        show(step);
      });
      pictures.forEach(dots => dots.forEach((dot, place) => dot.addEventListener("click", () => show(place))));
    }
  }
})();
