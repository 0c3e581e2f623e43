import uPlot from "./vendor/uplot.js";
import { minuteOf, secondOf } from "./times.js";
import { choose, cover, whenZoomed, zoom } from "./zoom.js";

// The charts of the last hour. The tables beside them have the same numbers without scripts.
const live = document.getElementById("live");
const drawn = new Map();

const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function size(bytes) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (bytes < 999.5) return `${Number(bytes.toPrecision(3))} ${unit}`;
    bytes /= 1000;
  }
  return `${Number(bytes.toPrecision(3))} TB`;
}

function span(seconds) {
  if (seconds >= 3600) return `${(seconds / 3600).toFixed(1)} h`;
  return seconds >= 60 ? `${(seconds / 60).toFixed(1)} min` : `${whole.format(seconds)} s`;
}

const duration = (ms) => (ms < 1000 ? `${whole.format(ms)} ms` : `${tenths.format(ms / 1000)} s`);
// As charting.py has them; the second of each is for the axis.
const units = {
  rate: [(value) => `${(value < 100 ? tenths : whole).format(value)} records/s`, (value) => `${short.format(value)}/s`],
  bytes: [(value) => `${size(value)}/s`, (value) => `${size(value)}/s`],
  count: [(value) => `${whole.format(value)} records`, short.format],
  seconds: [span, span],
  ms: [duration, duration],
};
const marksOf = (element) => JSON.parse(element.dataset.marks);

// What the reader points at: the time, a line for each value, and what happened within a few pixels.
function fill(tip, element, plot, place, colour) {
  const show = units[element.dataset.unit][0];
  const names = JSON.parse(element.dataset.names);
  const numbers = element.dataset.colours.split(",");
  const at = plot.data[0][place];
  const rows = [[secondOf(at)]];
  plot.data.slice(1).forEach((line, index) => {
    const value = line[place] == null ? "–" : show(line[place]);
    rows.push([`${names[index]}: ${value}`, colour(`series-${numbers[index]}`)]);
  });
  const pixels = plot.valToPos(at, "x");
  marksOf(element).forEach(([when, text], index) => {
    if (Math.abs(plot.valToPos(when, "x") - pixels) < 6) rows.push([`${index + 1}. ${text}`]);
  });
  tip.replaceChildren(...rows.map(([text, stroke]) => {
    const row = document.createElement("div");
    if (stroke) {
      const dot = document.createElement("span");
      dot.className = "dot";
      dot.style.background = stroke;
      row.append(dot);
    }
    row.append(text);
    return row;
  }));
  // On the side that the reader does not point at.
  tip.classList.toggle("left", pixels > plot.over.clientWidth / 2);
}

function drawMarks(plot, element, colour) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour("muted");
  ctx.lineWidth = devicePixelRatio;
  ctx.font = `${11 * devicePixelRatio}px ${getComputedStyle(element).fontFamily}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  marksOf(element).forEach(([when], index) => {
    const x = plot.valToPos(when, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) return;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillText(String(index + 1), x + 3 * devicePixelRatio, bbox.top);
  });
  ctx.restore();
}

function made(element) {
  const { unit, colours } = element.dataset;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  const axis = {
    stroke: colour("muted"),
    font: `12px ${getComputedStyle(element).fontFamily}`,
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1 },
  };
  const plot = new uPlot({
    width: element.clientWidth,
    height: element.clientHeight,
    legend: { show: false },
    cursor: {
      drag: { x: true, y: false, setScale: false, dist: 4 },
      sync: { key: "past", filters: { pub: isMove, sub: isMove } },
    },
    scales: {
      x: { range: (_, least, most) => zoom() ?? wholeRange(element, least, most) },
      y: { range: (_, least, most) => [0, height(Number(element.dataset.end), most)] },
    },
    axes: [
      { ...axis, values: (_, seconds, _place, _space, step) => seconds.map(step < 60 ? secondOf : minuteOf) },
      { ...axis, size: 72, values: (_, values) => values.map(units[unit][1]) },
    ],
    series: [
      {},
      ...colours.split(",").map((number) => ({
        stroke: colour(`series-${number}`),
        width: 2,
        points: { size: 4 },
      })),
    ],
    hooks: {
      draw: [(self) => drawMarks(self, element, colour)],
      setSelect: [(self) => {
        const { left, width } = self.select;
        if (width <= 0) return;
        self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        choose(self.posToVal(left, "x"), self.posToVal(left + width, "x"));
      }],
      setCursor: [(self) => {
        const place = self.cursor.idx;
        tip.hidden = place == null;
        if (!tip.hidden) fill(tip, element, self, place, colour);
      }],
    },
  }, pointsOf(element), element);
  element.append(tip);
  return { plot, colours, shown: shownBy(element) };
}

// Only the line that follows the pointer is the same in all charts; what is dragged over reaches them by the zoom.
const isMove = (type) => type === "mousemove" || type === "mouseleave";

function wholeRange({ dataset }, least, most) {
  return [dataset.seconds ? most - dataset.seconds : least, most];
}

function height(end, most) {
  const own = most > 0 ? most * 1.1 : 1;
  if (!end) return own;
  return zoom() ? Math.min(end, own) : end;
}

// The newest points, with those before them that a zoom still shows: a range leaves them behind.
function pointsOf(element, before) {
  const newest = JSON.parse(element.dataset.points);
  const shown = zoom();
  if (!shown || before?.length !== newest.length) return newest;
  const until = before[0].findIndex((at) => at >= newest[0][0]);
  const end = until < 0 ? before[0].length : until;
  const after = before[0].findIndex((at) => at >= shown[0]);
  const start = Math.max(0, after - 1);
  return after < 0 || start >= end ? newest : newest.map((line, index) => [...before[index].slice(start, end), ...line]);
}

const shownBy = ({ dataset }) => [dataset.points, dataset.marks, dataset.end].join();

function remove(element) {
  drawn.get(element).plot.destroy();
  element.replaceChildren();
  drawn.delete(element);
}

function draw() {
  for (const element of [...drawn.keys()]) if (!element.isConnected) remove(element);
  for (const element of live.querySelectorAll(".plot")) {
    const known = drawn.get(element);
    if (known && known.colours !== element.dataset.colours) remove(element);
    if (!drawn.has(element)) {
      drawn.set(element, made(element));
      sizes.observe(element);
    } else if (known.shown !== shownBy(element)) {
      known.shown = shownBy(element);
      known.plot.setData(pointsOf(element, known.plot.data));
    }
  }
  const plot = live.querySelector(".plot");
  const times = plot && JSON.parse(plot.dataset.points)[0];
  cover(times?.length > 1 ? wholeRange(plot, times[0], times.at(-1)) : null);
}

whenZoomed(() => {
  for (const [element, { plot }] of drawn) plot.setData(pointsOf(element, plot.data));
});

const sizes = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    drawn.get(target)?.plot.setSize({ width: target.clientWidth, height: target.clientHeight });
  }
});

live.addEventListener("changed", draw);
live.addEventListener("dblclick", ({ target }) => { if (target.closest(".plot")) choose(null, null); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const element of [...drawn.keys()]) remove(element);
  draw();
});
draw();
