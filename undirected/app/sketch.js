// A square to draw on, with a pen, a rubber, and a tool that hides what it touches.
// Its value is two grids as base64, "ink.hidden": a byte from 0 (paper) to 255 (ink) for every cell, row by row.
const SIDE = 280, GRID = 56, CELL = SIDE / GRID;
const WIDTHS = { pen: 22, rubber: 30, hide: 54 };
// Digits to begin with, as strokes on a square of side 100.
const EXAMPLES = [
  [[[68, 14], [36, 15], [33, 45], [50, 41], [66, 49], [69, 66], [60, 82], [45, 87], [30, 81]]],
  [[[30, 32], [36, 19], [51, 14], [65, 21], [66, 36], [55, 54], [29, 84], [50, 80], [73, 84]]],
  [[[31, 22], [45, 13], [62, 17], [65, 32], [55, 45], [43, 48], [60, 52], [69, 66], [60, 82], [44, 87], [29, 79]]],
  [[[55, 12], [40, 38], [27, 60], [48, 58], [74, 58]], [[63, 36], [60, 62], [57, 89]]],
  [[[27, 19], [50, 17], [72, 17], [58, 44], [45, 87]]],
  [[[50, 12], [34, 25], [29, 50], [36, 78], [51, 88], [67, 76], [72, 50], [66, 24], [50, 12]]],
  [[[62, 12], [44, 30], [33, 56], [36, 78], [52, 88], [67, 77], [66, 60], [50, 53], [36, 64]]],
  [[[64, 30], [50, 22], [37, 32], [42, 47], [56, 49], [66, 36], [65, 28], [64, 56], [58, 88]]],
];

const canvas = element.querySelector("canvas");
const shown = canvas.getContext("2d");
const layers = { ink: layer(), hidden: layer() };
let tool = "pen", last = null, example = 0;

function layer() {
  const made = document.createElement("canvas");
  made.width = made.height = SIDE;
  const context = made.getContext("2d", { willReadFrequently: true });
  context.lineCap = context.lineJoin = "round";
  return context;
}

function stroke(context, from, to, width, rubs) {
  context.globalCompositeOperation = rubs ? "destination-out" : "source-over";
  context.lineWidth = width;
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(to[0] + 0.01, to[1]);
  context.stroke();
}

function mark(from, to) {
  const width = WIDTHS[tool];
  if (tool === "hide") return stroke(layers.hidden, from, to, width, false);
  stroke(layers.ink, from, to, width, tool === "rubber");
  stroke(layers.hidden, from, to, width, true);
}

function show() {
  shown.globalCompositeOperation = "source-over";
  shown.clearRect(0, 0, SIDE, SIDE);
  shown.drawImage(layers.hidden.canvas, 0, 0);
  shown.globalCompositeOperation = "source-in";
  shown.fillStyle = "#fde3cf";
  shown.fillRect(0, 0, SIDE, SIDE);
  shown.globalCompositeOperation = "source-atop";
  shown.strokeStyle = "#c2510c";
  shown.lineWidth = 1;
  shown.beginPath();
  for (let x = -SIDE; x < SIDE; x += 10) { shown.moveTo(x, SIDE); shown.lineTo(x + SIDE, 0); }
  shown.stroke();
  shown.globalCompositeOperation = "destination-over";
  shown.drawImage(layers.ink.canvas, 0, 0);
  shown.fillStyle = "white";
  shown.fillRect(0, 0, SIDE, SIDE);
}

// The opacity of a layer, averaged over each cell, as base64.
function cells(context) {
  const data = context.getImageData(0, 0, SIDE, SIDE).data, sums = new Float64Array(GRID * GRID);
  for (let y = 0; y < SIDE; y++)
    for (let x = 0; x < SIDE; x++)
      sums[Math.floor(y / CELL) * GRID + Math.floor(x / CELL)] += data[4 * (y * SIDE + x) + 3];
  return btoa(Array.from(sums, (sum) => String.fromCharCode(Math.round(sum / CELL / CELL))).join(""));
}

function send() {
  show();
  props.value = cells(layers.ink) + "." + cells(layers.hidden);
  trigger("sketch");
}

function clear(context) { context.clearRect(0, 0, SIDE, SIDE); }

function at(event) {
  const box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left) * SIDE / box.width, (event.clientY - box.top) * SIDE / box.height];
}

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  last = at(event);
  mark(last, last);
  show();
});
canvas.addEventListener("pointermove", (event) => {
  if (last === null) return;
  const next = at(event);
  mark(last, next);
  last = next;
  show();
});
for (const end of ["pointerup", "pointercancel"])
  canvas.addEventListener(end, () => { if (last !== null) { last = null; send(); } });

const actions = {
  clear() { clear(layers.ink); clear(layers.hidden); },
  half() { clear(layers.hidden); layers.hidden.globalCompositeOperation = "source-over"; layers.hidden.fillRect(0, SIDE / 2, SIDE, SIDE / 2); },
  unhide() { clear(layers.hidden); },
  example() {
    actions.clear();
    const size = SIDE / 100;
    for (const line of EXAMPLES[example % EXAMPLES.length])
      for (let i = 1; i < line.length; i++)
        stroke(layers.ink, line[i - 1].map((v) => v * size), line[i].map((v) => v * size), WIDTHS.pen, false);
    example++;
  },
};
for (const button of element.querySelectorAll("[data-action]"))
  button.addEventListener("click", () => { actions[button.dataset.action](); send(); });
const tools = element.querySelectorAll("[data-tool]");
for (const button of tools)
  button.addEventListener("click", () => {
    tool = button.dataset.tool;
    tools.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
  });

actions.example();
send();
