// A sparkline of the last minute: messages in (solid) and out (dashed), one point per second.

const POINTS = 60;
const WIDTH = 120;
const HEIGHT = 22;
const SVG = "http://www.w3.org/2000/svg";

export class Spark {
  constructor() {
    this.in = [];
    this.out = [];
    this.element = document.createElementNS(SVG, "svg");
    this.element.setAttribute("class", "spark");
    this.element.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    this.element.setAttribute("preserveAspectRatio", "none");
    this.element.setAttribute("role", "img");
    this.paths = ["out", "in"].map((name) => {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      this.element.append(path);
      return path;
    });
    this.draw();
  }

  add(came, went) {
    const wasQuiet = this.isQuiet();
    for (const [series, value] of [[this.in, came], [this.out, went]]) {
      series.push(value);
      if (series.length > POINTS) series.shift();
    }
    if (!wasQuiet || !this.isQuiet()) this.draw();
  }

  isQuiet() {
    return this.in.every((value) => value === 0) && this.out.every((value) => value === 0);
  }

  draw() {
    const most = Math.max(1, ...this.in, ...this.out);
    this.paths[0].setAttribute("d", line(this.out, most));
    this.paths[1].setAttribute("d", line(this.in, most));
    const peak = Math.round(most);
    this.element.setAttribute("aria-label", this.isQuiet() ? "no messages in the last minute" : `at most ${peak} messages a second in the last minute`);
  }
}

function line(series, most) {
  if (series.every((value) => value === 0)) return "";
  const step = WIDTH / (POINTS - 1);
  const first = POINTS - series.length;
  const points = series.map((value, at) => `${((first + at) * step).toFixed(1)} ${(HEIGHT - 1 - (value / most) * (HEIGHT - 3)).toFixed(1)}`);
  return `M${points.join("L")}`;
}
