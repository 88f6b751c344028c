// Numbers as people read them, and small helpers on columns of numbers.

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function short(value) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-4) return value.toExponential(1).replace("e+", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

const percent = (value) => (isNumber(value) ? `${(100 * value).toFixed(value && Math.abs(value) < 0.1 ? 1 : 0)}%` : "–");
const percentTick = (value) => `${Number((100 * value).toPrecision(3))}%`;
const share = (value) => (isNumber(value) ? value.toFixed(3) : "–");
const whole = (value) => (isNumber(value) ? Math.round(value).toLocaleString("en") : "–");
const signed = (value, format = short) => (isNumber(value) ? `${value < 0 ? "−" : "+"}${format(Math.abs(value))}` : "–");

function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 120) return `${short(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const measureName = (measure, samples) => measure.replace("_at_k", `@${samples ?? "k"}`).replace("_at_many", "@many");

const mean = (values) => {
  const known = values.filter(isNumber);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
};

const last = (values) => {
  for (let i = (values ?? []).length - 1; i >= 0; i--) if (isNumber(values[i])) return values[i];
  return null;
};

// Mean of the last `width` known values at every place; null where the column has none.
function smooth(values, width) {
  const known = [];
  return values.map((value) => {
    if (!isNumber(value)) return null;
    known.push(value);
    return mean(known.slice(-width));
  });
}

const sameColumn = (a, b) => a.length === b.length && a.every((value, i) => (value ?? null) === (b[i] ?? null));

// Round numbers that cover [low, high]: about `count` of them.
function ticks(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = power * ([1, 2, 5, 10].find((factor) => span / (factor * power) <= count) ?? 10);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) found.push(Number((n * step).toPrecision(12)));
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of [1, 2, 5]) {
      const value = Number((factor * 10 ** power).toPrecision(6));
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  if (found.length < 3) return ticks(low, high, 4);
  return found.length > 6 ? found.filter((value) => Number.isInteger(Math.log10(value) + 1e-12) || value === 1) : found;
}
