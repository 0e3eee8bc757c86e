// The page of a server: its health, its entities and its last errors, live.

import { NONE, age, bytes, clock, count, rate } from "./format.js";
import { Stream, read } from "./live.js";
import { Table } from "./table.js";

const at = (id) => document.getElementById(id);
const table = new Table(at("rows"), at("entities").tHead, at("note"), at("count"));
const WORDS = { healthy: "Healthy", degraded: "Degraded", stopped: "Stopped", unhealthy: "Unhealthy" };

let offsetMs = 0; // The server's clock minus ours.
let lostSince = 0;
let lastError = -1;
let startedNs = 0;

function show(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

// Health and figures

function onStatus(status) {
  at("health").dataset.state = status.health;
  show("health-word", WORDS[status.health] ?? status.health);
  show("health-text", status.reasons.join("; "));
  show("store", status.store);
  show("facts", `up ${age(status.uptime_s)} · ${status.durability} · history ${bytes(status.history_bytes)}`);
  show("build", `${status.name} ${status.version}, ${status.build}, ${status.python}, process ${status.pid}`);
  show("figure-active", count(status.active));
  show("figure-in", rate(status.in_per_s));
  show("figure-out", rate(status.out_per_s));
  show("figure-dead", count(status.dead));
  show("figure-connections", count(status.connections));
  at("box-dead").classList.toggle("alarm", status.dead > 0);
  document.title = status.health === "healthy" ? "unibus" : `${WORDS[status.health] ?? status.health} – unibus`;
  if (startedNs !== status.started_ns) lastError = -1; // The server was restarted: its log begins again.
  startedNs = status.started_ns;
  if (status.last_error !== lastError) {
    lastError = status.last_error;
    showErrors();
  }
}

async function showErrors() {
  try {
    const { errors } = await read("server/errors");
    at("errors").replaceChildren(...errors.reverse().map(errorItem));
    at("no-errors").hidden = errors.length > 0;
  } catch (error) {
    onRefused(error);
  }
}

function errorItem(line) {
  const item = document.createElement("li");
  const time = document.createElement("time");
  const ms = line.at_ns / 1e6;
  time.dateTime = new Date(ms).toISOString();
  time.textContent = clock(ms);
  const level = document.createElement("span");
  level.className = `level ${line.level === "error" || line.level === "critical" ? line.level : "warning"}`;
  level.textContent = line.level;
  const text = document.createElement("span");
  text.className = "text";
  text.textContent = line.text;
  item.append(time, level, text);
  return item;
}

// Entities

function onSnapshot(data) {
  offsetMs = data.at_ns / 1e6 - Date.now();
  table.replace(data.rows);
  tick();
}

function onChanges(data) {
  offsetMs = data.at_ns / 1e6 - Date.now();
  table.apply(data.rows, data.removed);
}

function tick() {
  table.tick((Date.now() + offsetMs) * 1e6, !lostSince);
  if (lostSince) showLost();
}

// The connection

function onState(state) {
  if (state === "lost" && !lostSince) {
    lostSince = Date.now();
    read("server").catch(onRefused);
  } else if (state === "live") {
    lostSince = 0;
  }
  document.body.classList.toggle("lost", lostSince > 0);
  if (lostSince) {
    showLost();
  } else {
    at("link").dataset.state = "live";
    show("link-text", "Live");
  }
}

function showLost() {
  at("link").dataset.state = "lost";
  show("link-text", `Connection lost ${age((Date.now() - lostSince) / 1000)} ago, reconnecting`);
}

function onRefused(error) {
  // The key was replaced: the browser only asks for another one when the page is loaded again.
  if (error.status === 401 || error.status === 403) location.reload();
}

let streams = [];
function connect() {
  if (document.hidden) return;
  streams = [
    new Stream("server/live", { status: onStatus }, onState),
    new Stream("entities/live", { snapshot: onSnapshot, changes: onChanges }, () => {}),
  ];
}

// A browser has few connections to one server for all its tabs: a hidden tab closes its own.
document.addEventListener("visibilitychange", () => {
  for (const stream of streams) stream.close();
  streams = [];
  connect();
});
at("filter").addEventListener("input", (event) => table.filterBy(event.target.value));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== at("filter")) {
    event.preventDefault();
    at("filter").focus();
  } else if (event.key === "Escape" && document.activeElement === at("filter")) {
    at("filter").value = "";
    table.filterBy("");
  }
});
show("figure-active", NONE);
setInterval(tick, 1000);
connect();
