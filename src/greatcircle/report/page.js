"use strict";
(() => {
  const root = document.documentElement;
  const key = "greatcircle-report-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 40rem)");
  const charts = [];
  const $ = (id) => document.getElementById(id);

  // A page opened from a file may have no storage: the choice is then lost on reload.
  let chosen = null;
  try { chosen = localStorage.getItem(key); } catch { /* as above */ }
  if (chosen !== "light" && chosen !== "dark") chosen = null;
  const theme = () => chosen ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = theme();

  /** Return layout changes, by dotted path, for the colours of the page. */
  const colours = (layout) => {
    const style = getComputedStyle(root);
    const of = (name) => style.getPropertyValue(name).trim();
    const changes = {
      "paper_bgcolor": of("--card"), "plot_bgcolor": of("--card"),
      "font.color": of("--ink"), "font.family": of("--sans"), "font.size": 13,
      "hoverlabel.bgcolor": of("--card"), "hoverlabel.bordercolor": of("--line"),
      "hoverlabel.font.color": of("--ink"),
      "modebar.bgcolor": "rgba(0,0,0,0)", "modebar.color": of("--quiet"), "modebar.activecolor": of("--ink"),
    };
    for (const axis of Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name))) {
      changes[`${axis}.gridcolor`] = changes[`${axis}.zerolinecolor`] = of("--grid");
      changes[`${axis}.linecolor`] = of("--line");
    }
    return changes;
  };

  const at = (layout, path) => path.split(".").reduce((node, name) => node?.[name], layout);

  /** Return the layout changes for a phone, or those that undo them. */
  const sizes = (layout) => {
    const changes = layout.meta?.narrow ?? {};
    const chosen = narrow.matches ? changes
      : Object.fromEntries(Object.keys(changes).map((path) => [path, at(layout, path) ?? null]));
    // The box sets the height: with a height in the layout, Plotly does not adapt to the box.
    return { ...chosen, height: null, autosize: true };
  };
  const fit = (plot, layout) => {
    plot.style.height = `${(narrow.matches && layout.meta?.narrow?.height) || layout.height || 450}px`;
  };

  const changed = (layout, changes) => {
    const copy = structuredClone(layout);
    for (const [path, value] of Object.entries(changes)) {
      const names = path.split(".");
      const last = names.pop();
      names.reduce((node, name) => (node[name] ??= {}), copy)[last] = value;
    }
    return copy;
  };

  const paint = () => {
    root.dataset.theme = theme();
    $("theme")?.setAttribute("aria-pressed", String(theme() === "dark"));
    for (const { plot, layout } of charts) Plotly.relayout(plot, colours(layout));
  };

  /** Return the values at x as text; for several curves with one name, their range. */
  const valuesAt = (lines, x) => {
    const names = new Map();
    for (const trace of lines) {
      const value = trace.y[trace.x.indexOf(x)];
      if (Number.isFinite(value)) names.set(trace.name, [...(names.get(trace.name) ?? []), value]);
    }
    const words = (value) => value.toPrecision(4);
    return Array.from(names, ([name, values]) => values.length === 1
      ? `${name} ${words(values[0])}`
      : `${name} from ${words(Math.min(...values))} to ${words(Math.max(...values))}`).join("; ");
  };

  /** Return the title above a panel. */
  const panelTitle = (plot, axis) => {
    const note = plot.layout.annotations?.find(({ xref }) => xref === `${axis} domain`);
    const parsed = new DOMParser().parseFromString(note?.text ?? axis, "text/html");
    return parsed.body.textContent;
  };

  /** Return the points that the arrow keys visit: iterations of curves, cells of heatmaps. */
  const stops = (plot) => {
    // Plotly's copy of the traces has its packed arrays unpacked.
    const shown = plot._fullData.filter((trace) => trace.visible === true && trace.hoverinfo !== "skip");
    const title = (axis) => plot.layout[axis]?.title?.text || axis[0];
    const maps = shown.filter((trace) => trace.type === "heatmap");
    const cells = maps.flatMap((trace) => Array.from(trace.y, (y, row) => Array.from(trace.x, (x, column) => ({
      at: { xval: column, yval: row },
      subplot: trace.xaxis + trace.yaxis,
      words: () => `${trace.name}: ${title("yaxis")} ${y}, ${title("xaxis")} ${x}, `
        + (trace.text?.[row]?.[column] || "empty"),
    }))).flat());
    if (cells.length) return { row: maps[0].x.length, points: cells };
    const lines = shown.filter((trace) => trace.x?.length);
    // Panel by panel; curves that share an x axis are read together.
    const panels = [...new Set(lines.map((trace) => trace.xaxis))];
    const points = panels.flatMap((axis) => {
      const own = lines.filter((trace) => trace.xaxis === axis);
      const every = [...new Set(own.flatMap((trace) => Array.from(trace.x)))].sort((a, b) => a - b);
      const { anchor } = plot._fullLayout[axis.replace("x", "xaxis")];
      const panel = panels.length > 1 ? `${panelTitle(plot, axis)}, ` : "";
      const words = (x) => `${panel}${title(axis.replace("x", "xaxis"))} ${x}: ${valuesAt(own, x)}`;
      return every.map((x) => ({ at: { xval: x }, subplot: axis + anchor, words: () => words(x) }));
    });
    return { row: Math.max(1, Math.round(points.length / 10)), points };
  };

  const byKeyboard = (plot) => {
    let index = -1;
    plot.addEventListener("keydown", (event) => {
      if (event.target !== plot) return; // the focus is on a button of the chart
      if (event.key === "Escape") Plotly.Fx.unhover(plot);
      if (!/^(Arrow|Home|End)/.test(event.key) || event.ctrlKey || event.altKey || event.metaKey) return;
      const { row, points } = stops(plot);
      if (!points.length) return;
      const moved = {
        ArrowRight: index + 1, ArrowLeft: index - 1, ArrowDown: index + row, ArrowUp: index - row,
        Home: 0, End: points.length - 1,
      }[event.key];
      event.preventDefault();
      index = Math.min(Math.max(moved, 0), points.length - 1);
      Plotly.Fx.hover(plot, points[index].at, points[index].subplot);
      $(`${plot.id}-value`).textContent = points[index].words();
    });
    plot.addEventListener("blur", () => Plotly.Fx.unhover(plot));
  };

  const draw = async (plot) => {
    const { data, layout, choices } = JSON.parse($(`${plot.id}-data`).textContent);
    const config = {
      responsive: true, displaylogo: false, showTips: false, typesetMath: false,
      // Plotly's button to share a chart would upload the data.
      showSendToCloud: false, plotlyServerURL: "",
      // On a phone the buttons would cover the title, and dragging must scroll the page.
      displayModeBar: !narrow.matches,
      modeBarButtonsToRemove: ["lasso2d", "select2d"], toImageButtonOptions: { format: "svg", filename: plot.id },
    };
    fit(plot, layout);
    await Plotly.newPlot(plot, data, changed(layout, { ...colours(layout), ...sizes(layout) }), config);
    charts.push({ plot, layout });
    byKeyboard(plot);
    const select = $(`${plot.id}-choice`);
    if (select) {
      select.disabled = false;
      select.addEventListener("change", () => Plotly.update(plot, ...choices[select.selectedIndex]));
      // Browsers keep the state of a form on reload: the chart must match its list.
      if (select.selectedIndex > 0) Plotly.update(plot, ...choices[select.selectedIndex]);
    }
  };

  const copy = async () => {
    const command = $("command");
    let done = true;
    try {
      await navigator.clipboard.writeText(command.textContent);
    } catch {
      // Without a secure context there is no clipboard: select the text for Ctrl+C.
      getSelection().selectAllChildren(command);
      done = false;
    }
    $("copied").textContent = done ? "Command copied" : "Command selected";
    $("copy").textContent = done ? "Copied" : "Selected";
    setTimeout(() => { $("copy").textContent = "Copy"; }, 2000);
  };

  document.addEventListener("DOMContentLoaded", async () => {
    $("theme").hidden = false;
    $("theme").addEventListener("click", () => {
      chosen = theme() === "dark" ? "light" : "dark";
      try { localStorage.setItem(key, chosen); } catch { /* as above */ }
      paint();
    });
    if ($("copy")) {
      $("copy").hidden = false;
      $("copy").addEventListener("click", copy);
    }
    dark.addEventListener("change", paint);
    narrow.addEventListener("change", () => {
      for (const { plot, layout } of charts) {
        fit(plot, layout);
        Plotly.relayout(plot, sizes(layout));
      }
    });
    // Print on white, in a fixed width.
    addEventListener("beforeprint", () => {
      root.dataset.theme = "light";
      for (const { plot, layout } of charts) {
        const height = narrow.matches ? plot.clientHeight : 360;
        plot.style.height = `${height}px`;
        Plotly.relayout(plot, { ...colours(layout), width: 660, height });
      }
    });
    addEventListener("afterprint", () => {
      paint();
      for (const { plot, layout } of charts) {
        fit(plot, layout);
        Plotly.relayout(plot, { width: null, height: null, autosize: true });
      }
    });
    for (const plot of document.querySelectorAll(".plot")) await draw(plot);
    paint();
    root.dataset.ready = "true";
  });
})();
