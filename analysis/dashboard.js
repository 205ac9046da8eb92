// The page's only script: charts, maze trajectories and films of skills, from the JSON in #dash.
// Text of runs goes into the page by textContent alone, so that none of it becomes markup.
(function () {
  "use strict";
  const root = document.getElementById("dash");
  if (!root) return;
  let data = JSON.parse(root.dataset.json);
  const chosen = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const FILTERS = ["phase", "on", "agent", "variant"];
  const WORDS = { phase: "phase", on: "task or domain", agent: "agent", variant: "variant" };
  const hidden = {}; // skills of each maze that are switched off

  function make(tag, parent, text, attributes) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    if (parent) parent.appendChild(element);
    return element;
  }

  function short(value) {
    const size = Math.abs(value);
    if (size >= 1e6) return +(value / 1e6).toPrecision(3) + "M";
    if (size >= 1e3) return +(value / 1e3).toPrecision(3) + "k";
    return String(+value.toPrecision(3));
  }

  function canvas(parent, width, height, label) {
    const ratio = window.devicePixelRatio || 1;
    const element = make("canvas", parent, undefined, { role: "img", "aria-label": label });
    element.width = width * ratio;
    element.height = height * ratio;
    element.style.width = width + "px";
    element.style.maxWidth = "100%";
    const pen = element.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    return pen;
  }

  // ---------------------------------------------------------------------------------- curves

  function fits(curve) {
    return FILTERS.every((key) => !chosen[key] || String(curve[key]) === chosen[key]);
  }

  function filters(parent) {
    const bar = make("div", parent, undefined, { class: "filters" });
    for (const key of FILTERS) {
      const label = make("label", bar, WORDS[key] + " ");
      const select = make("select", label, undefined, { name: key });
      make("option", select, "all", { value: "" });
      for (const value of [...new Set(data.curves.map((curve) => String(curve[key])))].sort())
        make("option", select, value, { value: value });
      select.value = chosen[key] || "";
      select.addEventListener("change", () => {
        chosen[key] = select.value;
        history.replaceState(null, "", "#" + new URLSearchParams(chosen));
        charts();
      });
    }
  }

  function charts() {
    const place = root.querySelector(".charts");
    place.textContent = "";
    const curves = data.curves.filter(fits);
    const titled = (curve) => curve.phase + ": " + curve.on + ", " + curve.measure;
    const panels = [...new Set(curves.map(titled))];
    if (!panels.length) make("p", place, "No run fits.", { class: "note" });
    for (const title of panels) {
      const own = curves.filter((curve) => titled(curve) === title);
      const figure = make("figure", place);
      chart(figure, title, own);
      const list = make("ul", figure, undefined, { class: "legend" });
      for (const curve of own) {
        const item = make("li", list);
        make("span", item, undefined, { class: "dot" }).style.background = curve.colour;
        make("span", item, curve.name + " (" + curve.told + ")");
      }
    }
  }

  function chart(parent, title, curves) {
    const width = 460, height = 250, left = 46, right = 10, top = 24, bottom = 28;
    const pen = canvas(parent, width, height, title);
    const xs = curves.flatMap((curve) => curve.x);
    const ys = curves.flatMap((curve) => [...curve.low, ...curve.high]);
    const xmax = Math.max(1, ...xs);
    let low = Math.min(0, ...ys), high = Math.max(...ys);
    if (high <= low) high = low + 1;
    const px = (x) => left + (x / xmax) * (width - left - right);
    const py = (y) => height - bottom - ((y - low) / (high - low)) * (height - top - bottom);
    pen.fillStyle = "#1c1c22";
    pen.font = "bold 12px system-ui, sans-serif";
    pen.fillText(title, left, 14);
    pen.font = "11px system-ui, sans-serif";
    pen.strokeStyle = "#dcdce2";
    pen.fillStyle = "#5c5c66";
    for (let i = 0; i <= 4; i++) {
      const y = low + ((high - low) * i) / 4, x = (xmax * i) / 4;
      pen.beginPath();
      pen.moveTo(left, py(y));
      pen.lineTo(width - right, py(y));
      pen.stroke();
      pen.textAlign = "right";
      pen.fillText(short(y), left - 5, py(y) + 4);
      pen.textAlign = i === 4 ? "right" : "center";
      pen.fillText(short(x) + (i === 4 ? " frames" : ""), px(x), height - 10);
    }
    pen.textAlign = "left";
    for (const curve of curves) {
      pen.fillStyle = pen.strokeStyle = curve.colour;
      pen.globalAlpha = 0.18;
      pen.beginPath();
      curve.x.forEach((x, i) => pen.lineTo(px(x), py(curve.high[i])));
      for (let i = curve.x.length - 1; i >= 0; i--) pen.lineTo(px(curve.x[i]), py(curve.low[i]));
      pen.fill();
      pen.globalAlpha = 1;
      pen.lineWidth = 2;
      pen.beginPath();
      curve.x.forEach((x, i) => pen.lineTo(px(x), py(curve.mean[i])));
      pen.stroke();
      curve.x.forEach((x, i) => {
        pen.beginPath();
        pen.arc(px(x), py(curve.mean[i]), 2.5, 0, 7);
        pen.fill();
      });
    }
  }

  // ----------------------------------------------------------------------------------- mazes

  function maze(parent, one) {
    const figure = make("figure", parent, undefined, { class: "maze" });
    const size = 300, [x0, y0, x1, y1] = one.box;
    const scale = size / Math.max(x1 - x0, y1 - y0);
    const pen = canvas(figure, (x1 - x0) * scale, (y1 - y0) * scale, one.title);
    const px = ([x, y]) => [(x - x0) * scale, (y1 - y) * scale];
    const off = (hidden[one.title] = hidden[one.title] || new Set());
    function draw() {
      pen.clearRect(0, 0, 2 * size, 2 * size);
      pen.lineWidth = 1.5;
      one.paths.forEach((path) => {
        if (off.has(path.skill)) return;
        pen.strokeStyle = one.colours[path.skill];
        pen.globalAlpha = 0.45;
        pen.beginPath();
        for (let i = 0; i < path.xy.length; i += 2) pen.lineTo(...px([path.xy[i], path.xy[i + 1]]));
        pen.stroke();
      });
      pen.globalAlpha = 1;
      pen.strokeStyle = "#000";
      pen.lineWidth = 2.5;
      for (const [from, to] of one.walls) {
        pen.beginPath();
        pen.moveTo(...px(from));
        pen.lineTo(...px(to));
        pen.stroke();
      }
    }
    const bar = make("div", figure, undefined, { class: "toggles" });
    one.colours.forEach((colour, skill) => {
      const button = make("button", bar, String(skill), {
        type: "button", "aria-label": "skill " + skill, "aria-pressed": String(!off.has(skill)),
      });
      button.style.borderColor = colour;
      button.addEventListener("click", () => {
        off.has(skill) ? off.delete(skill) : off.add(skill);
        button.setAttribute("aria-pressed", String(!off.has(skill)));
        draw();
      });
    });
    make("figcaption", figure, one.title);
    draw();
  }

  // ----------------------------------------------------------------------------------- films

  function film(parent, one) {
    const figure = make("figure", parent, undefined, { class: "film" });
    const pen = canvas(figure, one.size, one.size, one.title);
    pen.canvas.style.width = Math.max(one.size, 260) + "px";
    const sheet = new Image();
    const inputs = {};
    const told = make("output", figure);
    function draw() {
      const skill = +inputs.skill.value, time = +inputs.time.value, gap = one.gap + one.size;
      pen.drawImage(sheet, time * gap, skill * gap, one.size, one.size, 0, 0, one.size, one.size);
      told.textContent = one.names[skill] + ", step " + one.steps[time];
    }
    for (const [name, count] of [["skill", one.names.length], ["time", one.steps.length]]) {
      const label = make("label", figure, name + " ");
      inputs[name] = make("input", label, undefined, {
        type: "range", name: name, min: 0, max: count - 1, value: 0, step: 1,
      });
      inputs[name].addEventListener("input", draw);
    }
    make("figcaption", figure, one.title);
    sheet.addEventListener("load", draw);
    sheet.src = one.sheet;
  }

  // ------------------------------------------------------------------------------------ page

  function show() {
    root.textContent = "";
    make("p", root, data.told, { class: "note" });
    if (data.curves.length) {
      filters(root);
      make("div", root, undefined, { class: "charts row" });
      charts();
    }
    const row = make("div", root, undefined, { class: "row" });
    data.mazes.forEach((one) => maze(row, one));
    data.films.forEach((one) => film(row, one));
  }

  show();
  if (root.dataset.live)
    setInterval(() => {
      fetch("data.json")
        .then((answer) => answer.json())
        .then((fresh) => {
          if (JSON.stringify(fresh.curves) === JSON.stringify(data.curves)) return;
          data = { ...data, curves: fresh.curves, told: fresh.told };
          show();
        })
        .catch(() => {}); // the server has ended; what is shown stays
    }, +root.dataset.live);
})();
