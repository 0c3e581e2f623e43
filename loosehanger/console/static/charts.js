import uPlot from "./vendor/uplot.js";
import { minuteOf } from "./times.js";

// The charts of the last hour. The tables beside them have the same numbers without scripts.
const HOUR_S = 3600;
const live = document.getElementById("live");
const drawn = new Map();

const plain = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const units = {
  rate: (value) => `${short.format(value)}/s`,
  bytes: (value) => `${short.format(value)}B/s`,
  count: (value) => short.format(value),
  seconds: (value) => (value < 120 ? `${plain.format(value)} s` : `${plain.format(value / 60)} min`),
  ms: (value) => (value < 1000 ? `${plain.format(value)} ms` : `${plain.format(value / 1000)} s`),
};

function made(element) {
  const { unit, colours, points } = element.dataset;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const show = units[unit];
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
    cursor: { drag: { x: false, y: false }, sync: { key: "past" } },
    scales: {
      x: { range: (_, least, most) => [most - HOUR_S, most] },
      y: { range: (_, least, most) => [0, most > 0 ? most * 1.1 : 1] },
    },
    axes: [
      { ...axis, values: (_, seconds) => seconds.map(minuteOf) },
      { ...axis, size: 72, values: (_, values) => values.map(show) },
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
      setCursor: [(self) => {
        const place = self.cursor.idx;
        tip.hidden = place == null;
        if (tip.hidden) return;
        const values = self.data.slice(1).map((line) => (line[place] == null ? "–" : show(line[place])));
        tip.textContent = `${minuteOf(self.data[0][place])}\n${values.join("\n")}`;
      }],
    },
  }, JSON.parse(points), element);
  element.append(tip);
  return { plot, colours, points };
}

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
    } else if (known.points !== element.dataset.points) {
      known.points = element.dataset.points;
      known.plot.setData(JSON.parse(known.points));
    }
  }
}

const sizes = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    drawn.get(target)?.plot.setSize({ width: target.clientWidth, height: target.clientHeight });
  }
});

live.addEventListener("changed", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const element of [...drawn.keys()]) remove(element);
  draw();
});
draw();
