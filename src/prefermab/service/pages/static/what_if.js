// The slider of the page "what if": it snaps to the points that the server worked out.
"use strict";
{
  const form = document.getElementById("what-if");
  if (form) {
    const slider = document.getElementById("slider");
    const mark = document.getElementById("mark");
    const dots = [...form.querySelectorAll("circle[data-budget]")];
    const budgets = dots.map((dot) => Number(dot.dataset.budget));
    const nearest = (value) =>
      budgets.reduce((best, one, k) => (Math.abs(one - value) < Math.abs(budgets[best] - value) ? k : best), 0);
    let now = nearest(Number(slider.value));

    const show = (k) => {
      now = Math.min(Math.max(k, 0), dots.length - 1);
      const dot = dots[now];
      slider.value = dot.dataset.budget;
      slider.setAttribute("aria-valuetext", `budget ${dot.dataset.shown}: ${dot.dataset.chosen} people`);
      mark.setAttribute("x1", dot.getAttribute("cx"));
      mark.setAttribute("x2", dot.getAttribute("cx"));
      for (const [name, key] of [["budget", "shown"], ["chosen", "chosen"], ["spent", "spent"], ["gain", "gain"], ["more", "more"]]) {
        const place = document.getElementById(`of-${name}`);
        if (place) place.textContent = dot.dataset[key];
      }
    };
    const keys = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5, Home: -1e9, End: 1e9 };
    slider.addEventListener("keydown", (event) => {
      if (event.key in keys) {
        event.preventDefault();
        show(now + keys[event.key]);
      }
    });
    slider.addEventListener("input", () => show(nearest(Number(slider.value))));
    form.addEventListener("submit", (event) => event.preventDefault());
    show(now);
  }
}
