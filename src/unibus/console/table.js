// The table of entities: one row for each, updated in place, so that text selections stay and nothing flickers.
// Every text from the server is set as text, never as markup.

import { NONE, age, count, rate } from "./format.js";
import { Spark } from "./spark.js";

const SHOWN_MAX = 500;
const DIVIDER = "/Subscriptions/";

const MEASURES = {
  name: (row) => row.name.toLowerCase(),
  kind: (row) => row.kind,
  active: (row) => row.active,
  locked: (row) => row.locked,
  oldest: (row) => (row.oldest_ns ? -row.oldest_ns : -Infinity),
  in: (row) => row.in_per_s ?? 0,
  out: (row) => row.out_per_s ?? 0,
  dead: (row) => row.dead,
};

class Row {
  constructor(row) {
    this.element = document.createElement("tr");
    this.cells = {};
    for (const [name, style] of [
      ["name", "name"], ["kind", "kind wide"], ["active", "number"], ["locked", "number wide"], ["oldest", "number"],
      ["in", "number"], ["out", "number"], ["trend", "trend wide"], ["dead", "number"],
    ]) {
      const cell = document.createElement(name === "name" ? "th" : "td");
      if (name === "name") cell.scope = "row";
      cell.className = style;
      this.cells[name] = cell;
      this.element.append(cell);
    }
    this.spark = new Spark();
    this.cells.trend.append(this.spark.element);
    this.showName(row.name);
    this.update(row);
  }

  showName(name) {
    const at = name.lastIndexOf(DIVIDER);
    const cell = this.cells.name;
    cell.title = name;
    if (at < 0) {
      cell.textContent = name;
      return;
    }
    const topic = document.createElement("span");
    topic.className = "topic";
    topic.textContent = `${name.slice(0, at)} › `;
    cell.append(topic, name.slice(at + DIVIDER.length));
  }

  update(row) {
    this.row = row;
    const topic = row.kind === "topic";
    this.text("kind", row.kind);
    this.number("active", topic ? null : row.active, count);
    this.number("locked", topic ? null : row.locked, count);
    this.number("in", row.in_per_s, rate);
    this.number("out", topic ? null : row.out_per_s, rate);
    this.number("dead", topic ? null : row.dead, count);
    this.cells.dead.classList.toggle("alarm", row.dead > 0);
  }

  showAge(nowNs) {
    const oldest = this.row.oldest_ns;
    this.text("oldest", oldest && this.row.active ? age((nowNs - oldest) / 1e9) : NONE);
    this.cells.oldest.classList.toggle("zero", !oldest || !this.row.active);
  }

  number(name, value, format) {
    this.text(name, format(value));
    this.cells[name].classList.toggle("zero", !value);
  }

  text(name, text) {
    if (this.cells[name].textContent !== text) this.cells[name].textContent = text;
  }
}

export class Table {
  constructor(body, head, note, counted) {
    this.body = body;
    this.note = note;
    this.counted = counted;
    this.rows = new Map();
    this.shown = new Map();
    this.filter = "";
    this.sort = { by: "active", descending: true };
    this.buttons = [...head.querySelectorAll("button[data-sort]")];
    for (const button of this.buttons) button.addEventListener("click", () => this.sortBy(button.dataset.sort));
    this.showSort();
  }

  sortBy(by) {
    const descending = this.sort.by === by ? !this.sort.descending : by !== "name" && by !== "kind";
    this.sort = { by, descending };
    this.showSort();
    this.arrange();
  }

  showSort() {
    for (const button of this.buttons) {
      const heading = button.closest("th");
      if (button.dataset.sort === this.sort.by) {
        heading.setAttribute("aria-sort", this.sort.descending ? "descending" : "ascending");
      } else {
        heading.removeAttribute("aria-sort");
      }
    }
  }

  filterBy(text) {
    this.filter = text.trim().toLowerCase();
    this.arrange();
  }

  replace(rows) {
    this.rows = new Map(rows.map((row) => [row.name, row]));
    this.arrange();
  }

  apply(rows, removed) {
    for (const name of removed) this.rows.delete(name);
    for (const row of rows) this.rows.set(row.name, row);
    this.arrange();
  }

  arrange() {
    const wanted = [...this.rows.values()].filter((row) => row.name.toLowerCase().includes(this.filter));
    const measure = MEASURES[this.sort.by];
    const sign = this.sort.descending ? -1 : 1;
    wanted.sort((a, b) => {
      const one = measure(a), other = measure(b);
      if (one !== other) return one < other ? -sign : sign;
      return MEASURES.name(a) < MEASURES.name(b) ? -1 : 1;
    });
    const visible = wanted.slice(0, SHOWN_MAX);
    const names = new Set(visible.map((row) => row.name));
    for (const [name, row] of this.shown) {
      if (!names.has(name)) {
        row.element.remove();
        this.shown.delete(name);
      }
    }
    visible.forEach((row, place) => this.put(row, place));
    this.counted.textContent = this.rows.size === wanted.length ? count(wanted.length) : `${count(wanted.length)} of ${count(this.rows.size)}`;
    this.showNote(wanted.length - visible.length);
  }

  put(row, place) {
    let found = this.shown.get(row.name);
    if (!found) {
      found = new Row(row);
      this.shown.set(row.name, found);
    } else if (found.row !== row) {
      found.update(row);
    }
    if (this.body.children[place] !== found.element) this.body.insertBefore(found.element, this.body.children[place] ?? null);
  }

  showNote(hidden) {
    const text = this.rows.size === 0 ? "No queues or topics, or none on which your key has the right Listen."
      : hidden > 0 ? `${count(hidden)} more are not shown: filter by name.`
      : this.shown.size === 0 ? "No name contains the filter text." : "";
    this.note.textContent = text;
    this.note.hidden = !text;
  }

  // Once per second: ages and trends advance, also without an event.
  tick(nowNs, isLive) {
    for (const row of this.shown.values()) {
      row.showAge(nowNs);
      if (isLive) row.spark.add(row.row.in_per_s ?? 0, row.row.out_per_s ?? 0);
    }
  }
}
