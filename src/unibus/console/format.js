// Formats numbers, ages and times for people.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const NONE = "–";

export function count(value) {
  if (value === null || value === undefined) return NONE;
  return value < 100_000 ? whole.format(value) : short.format(value);
}

export function rate(value) {
  if (value === null || value === undefined) return NONE;
  if (value > 0 && value < 10) return value.toFixed(1);
  return count(Math.round(value));
}

export function age(seconds) {
  const passed = Math.max(0, Math.floor(seconds));
  if (passed < 60) return `${passed} s`;
  if (passed < 3600) return `${Math.floor(passed / 60)} min`;
  if (passed < 86_400) return `${Math.floor(passed / 3600)} h`;
  return `${whole.format(Math.floor(passed / 86_400))} d`;
}

export function bytes(size) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? size : size.toFixed(1)} ${units[unit]}`;
}

export function clock(milliseconds, today = new Date()) {
  const at = new Date(milliseconds);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === today.toDateString() ? time : `${at.toLocaleDateString("en-CA")} ${time}`;
}
