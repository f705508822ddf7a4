// Round ticks, scales and how numbers are written.
(() => {
  const NO_DATA = [0, 1]; // the span of an axis on which nothing lies, or only 0

  /** [smallest, largest] of what is a number in the lists; null where there is none. */
  function extent(lists) {
    let low = Infinity;
    let high = -Infinity;
    for (const list of lists) {
      for (const value of list) {
        if (value === null || value === undefined) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    return low <= high ? [low, high] : null;
  }

  function niceStep(span, count) {
    const rough = span / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9));
  }

  function multiples(step, first, last) {
    const ticks = [];
    // toPrecision takes off what binary fractions leave behind: 0.30000000000000004
    for (let i = first; i <= last; i += 1) ticks.push(Number((i * step).toPrecision(12)));
    return ticks;
  }

  /** Multiples of 1, 2 or 5 times a power of ten that lie within [low, high]. */
  function linearTicks(low, high, count) {
    const step = niceStep(high - low, count);
    return multiples(step, Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9));
  }

  /** Powers of ten within [low, high]; where they are too few, multiples of them as well. */
  function logTicks(low, high, count) {
    const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const every = Math.max(1, Math.ceil((last - first - 1) / Math.max(1, count)));
    const powers = [];
    for (let power = every * Math.floor(first / every); power <= last; power += every) powers.push(Number(`1e${power}`));
    for (const factors of [[1], [1, 3], [1, 2, 5]]) {
      const ticks = powers.flatMap((power) => factors.map((factor) => Number((factor * power).toPrecision(12))));
      const inside = ticks.filter((tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9));
      if (inside.length >= 3) return inside;
    }
    return linearTicks(low, high, count);
  }

  /** An axis that ends at round numbers: what it spans, and its ticks. */
  function roundAxis(range, count, { zero = false, log = false } = {}) {
    let [low, high] = range ?? NO_DATA;
    if (zero && low > 0) low = 0;
    if (zero && high < 0) high = 0;
    if (log) return logAxis(low, high, count);
    if (low === high) [low, high] = low ? [low - Math.abs(low) / 2, low + Math.abs(low) / 2] : NO_DATA;
    const step = niceStep(high - low, count);
    const [first, last] = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
    return { low: first * step, high: last * step, log: false, ticks: multiples(step, first, last) };
  }

  function logAxis(low, high, count) {
    const room = Math.max((high / low) ** 0.05, 1.05);
    const [from, to] = [low / room, high * room];
    return { low: from, high: to, log: true, ticks: logTicks(from, to, count) };
  }

  /** An axis that ends where the data ends, as steps do. */
  function plainAxis(range, count) {
    let [low, high] = range ?? NO_DATA;
    if (low === high) high = low + (Math.abs(low) || 1);
    return { low, high, log: false, ticks: linearTicks(low, high, count) };
  }

  /** From numbers of an axis to pixels. */
  function scale(axis, from, to) {
    const bend = axis.log ? Math.log10 : (value) => value;
    const [low, high] = [bend(axis.low), bend(axis.high)];
    return (value) => from + ((bend(value) - low) / (high - low)) * (to - from);
  }

  const minus = (text) => text.replace(/-/g, '−');
  const bare = (text) => (text.includes('.') ? text.replace(/\.?0+$/, '') : text);

  const decimals = (tick) => bare(tick.toFixed(9)).split('.')[1]?.length ?? 0;
  const withPower = (value, digits) => minus(value.toExponential(digits).replace('e+', 'e'));

  function withUnit(tick) {
    const [size, unit] = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']].find(([one]) => Math.abs(tick) >= one) ?? [1, ''];
    return minus(bare((tick / size).toFixed(6)) + unit);
  }

  /** How the ticks of one axis are written: all in the same way. */
  function tickText({ ticks, log }) {
    const largest = Math.max(...ticks.map(Math.abs), 0);
    const places = Math.max(...ticks.map(decimals), 0);
    return (tick) => {
      if (tick === 0) return '0';
      if (largest < 1e-3 || largest >= 1e12 || (log && Math.abs(tick) < 1e-3)) return withPower(tick);
      if (largest >= 1e4) return withUnit(tick);
      return minus(log ? bare(tick.toFixed(6)) : tick.toFixed(places));
    };
  }

  /** A measured number, as exactly as one wants to read it. */
  function number(value) {
    if (value === null || value === undefined) return '–';
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e6) return minus(value.toLocaleString('en'));
    if (size >= 1e6 || size < 1e-3) return withPower(value, 2);
    if (size >= 1000) return minus(value.toLocaleString('en', { maximumFractionDigits: 0 }));
    return minus(value.toFixed(size >= 100 ? 1 : size >= 1 ? 2 : 4));
  }

  /** Scores are compared down a column: always one decimal. */
  function score(value) {
    if (value === null || value === undefined) return '–';
    return minus(value.toLocaleString('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 }));
  }

  const steps = (value) => value.toLocaleString('en');

  /** Large counts, short. */
  function short(value) {
    const [unit, name] = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']].find(([size]) => value >= size) ?? [1, ''];
    return bare((value / unit).toFixed(value / unit < 10 ? 2 : 1)) + name;
  }

  function duration(seconds) {
    const minutes = Math.round(seconds / 60);
    if (minutes < 1) return `${Math.round(seconds)} s`;
    return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  function mean(values) {
    const known = values.filter((value) => value !== null && value !== undefined);
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
  }

  /** With numbers such as 500 000 on one line. */
  const unbroken = (text) => text.replace(/(?<=\d) (?=\d{3}(?!\d))/g, '\u00A0');

  const count = (amount, one, many = `${one}s`) => `${steps(amount)} ${amount === 1 ? one : many}`;

  ogspr.numbers = {
    extent, linearTicks, logTicks, roundAxis, plainAxis, scale, tickText, number, score, steps, short, duration, mean, count, unbroken,
  };
})();
