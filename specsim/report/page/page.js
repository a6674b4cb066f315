"use strict";
(() => {
  const options = {
    mode: "vega-lite",
    renderer: "svg",
    actions: false,
    defaultStyle: false,
    tooltip: { theme: "custom" },
  };

  // Boxes of the legend switch series; the last one stays on.
  function follow(plot, view) {
    const boxes = [...plot.closest("figure").querySelectorAll(".keys input")];
    const change = (event) => {
      if (!boxes.some((box) => box.checked)) event.target.checked = true;
      const hidden = boxes.filter((box) => !box.checked).map((box) => box.value);
      view.signal("hidden", hidden).runAsync();
    };
    for (const box of boxes) box.addEventListener("change", change);
  }

  async function draw({ id, spec }) {
    const plot = document.getElementById(id);
    try {
      const { view } = await vegaEmbed(plot, spec, options);
      follow(plot, view);
    } catch (error) {
      plot.textContent = `This chart cannot be drawn here (${error.message}); its data are below.`;
      plot.classList.add("failed");
      console.error(error);
    }
  }

  const charts = JSON.parse(document.getElementById("specifications").textContent);
  Promise.all(charts.map(draw)).then(() => {
    document.documentElement.dataset.drawn = String(charts.length);
  });
})();
