// Charts: drawn when they come near the window, at their size in pixels, and read with pointer, finger or arrow keys.
//
// A model says what is shown:
//   label    for screen readers           message  instead of a drawing, where there is nothing to draw
//   title    of the horizontal axis, where there is room for it
//   xs       all horizontal positions     ys       lists of all heights
//   zero     the vertical axis has 0      log      and is logarithmic
//   bands    {x, low, high, colour}       lines    {x, y, look, dashed, thin}
//   dots     {points, colour}             marks    {x, y, look}: a short line at a height
//   stops    positions at which the cursor stops, ascending
//   readout  (stop) => {title, rows: [{label, text, note, method, kind, x, y}]}
(() => {
  const { element, svg, say } = ogspr.dom;
  const { extent, plainAxis, roundAxis, scale, tickText } = ogspr.numbers;
  const MARKER_GAP = 90; // pixels between two markers of a line
  const CHARACTER = 6.6; // width of a digit of a tick label

  const charts = new Map(); // host -> {make, stale, near, drawn, stop}

  const near = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        const chart = charts.get(target);
        if (!chart) continue;
        chart.near = isIntersecting;
        if (isIntersecting && chart.stale) draw(target, chart);
      }
    },
    { rootMargin: '150px 0px' },
  );

  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const chart = charts.get(target);
      if (!chart?.drawn || chart.drawn.width === target.clientWidth) continue;
      chart.stale = true;
      if (chart.near) draw(target, chart);
    }
  });

  /** A place for a chart. `make` gives its model, again for each drawing; `open` is where a click leads. */
  function chart(make, { size = 'small', open = null, keep = null } = {}) {
    const host = element('div', {
      class: `chart ${size}${open ? ' opens' : ''}`,
      tabindex: '0',
      role: 'application',
      'aria-roledescription': 'chart',
      'data-keep': keep,
    });
    charts.set(host, { make, stale: true, near: false, drawn: null, stop: null });
    listen(host, open);
    near.observe(host);
    resized.observe(host);
    return host;
  }

  /** After a choice has changed: what is in view at once, the rest when it comes into view. */
  function redraw() {
    for (const [host, one] of charts) {
      one.stale = true;
      if (one.near && host.isConnected) draw(host, one);
    }
  }

  /** Paper does not scroll. */
  function drawAll() {
    for (const [host, one] of charts) if (one.stale && host.isConnected) draw(host, one);
  }

  /** Charts whose view is gone. */
  function forgetGone() {
    for (const host of charts.keys()) {
      if (host.isConnected) continue;
      near.unobserve(host);
      resized.unobserve(host);
      charts.delete(host);
    }
  }

  function draw(host, one) {
    const [width, height] = [host.clientWidth, host.clientHeight];
    if (!width) return;
    const model = one.make();
    host.setAttribute('aria-label', model.label);
    one.stale = false;
    one.drawn = null;
    if (model.message) {
      host.replaceChildren(element('p', { class: 'chart-message' }, model.message));
      return;
    }
    const frame = layout(model, width, height);
    const cursor = svg('g', { class: 'cursor' });
    host.replaceChildren(
      svg(
        'svg',
        { class: 'plot', viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' },
        axes(frame),
        ...(model.bands ?? []).map((band) => bandPath(band, frame)),
        ...(model.marks ?? []).map((mark) => markPath(mark, frame)),
        ...(model.dots ?? []).map((dots) => dotsPath(dots, frame)),
        ...(model.lines ?? []).map((line) => linePath(line, frame)),
        cursor,
      ),
    );
    one.drawn = { model, frame, cursor, width };
  }

  // ---- where things lie

  function layout(model, width, height) {
    const titled = height > 240;
    const top = 8;
    const bottom = height - (titled ? 40 : 22);
    const yAxis = roundAxis(extent(model.ys), (bottom - top) / (titled ? 38 : 32), model);
    const yText = tickText(yAxis);
    const widest = Math.max(...yAxis.ticks.map((tick) => yText(tick).length), 1);
    const left = Math.ceil(widest * CHARACTER) + 10;
    const right = width - 14;
    const xAxis = plainAxis(extent([model.xs]), (right - left) / (titled ? 75 : 58));
    return {
      top, bottom, left, right, xAxis, yAxis, yText, xText: tickText(xAxis), height,
      title: titled ? model.title : '',
      x: scale(xAxis, left, right),
      y: scale(yAxis, bottom, top),
    };
  }

  function axes({ bottom, left, right, xAxis, yAxis, xText, yText, x, y, title, height }) {
    const group = svg('g', { class: 'axes' });
    for (const tick of yAxis.ticks) {
      const at = fixed(y(tick));
      group.append(svg('path', { class: 'gridline', d: `M${left} ${at}H${right}` }));
      group.append(svg('text', { x: left - 6, y: at, dy: '0.32em', 'text-anchor': 'end' }, yText(tick)));
    }
    for (const tick of xAxis.ticks) {
      const at = fixed(x(tick));
      const text = xText(tick);
      // A label at the very end would be cut.
      const anchor = at + (text.length * CHARACTER) / 2 > right + 12 ? 'end' : 'middle';
      group.append(svg('path', { class: 'tick', d: `M${at} ${bottom}v4` }));
      group.append(svg('text', { x: anchor === 'end' ? right + 12 : at, y: bottom + 16, 'text-anchor': anchor }, text));
    }
    group.append(svg('path', { class: 'baseline', d: `M${left} ${bottom}H${right}` }));
    if (title) group.append(svg('text', { x: (left + right) / 2, y: height - 5, 'text-anchor': 'middle' }, title));
    return group;
  }

  const fixed = (value) => Math.round(value * 10) / 10;

  // ---- shapes

  const drawable = (value, frame) => value !== null && value !== undefined && !(frame.yAxis.log && value <= 0);

  /** Positions in pixels, in pieces: a missing value is a gap, not a bridge. */
  function pieces(xs, ys, frame) {
    const found = [];
    let piece = [];
    xs.forEach((position, i) => {
      if (drawable(ys[i], frame)) {
        piece.push([fixed(frame.x(position)), fixed(frame.y(ys[i]))]);
      } else if (piece.length) {
        found.push(piece);
        piece = [];
      }
    });
    if (piece.length) found.push(piece);
    return found;
  }

  const path = (points) => `M${points.map(([x, y]) => `${x} ${y}`).join('L')}`;

  function linePath({ x, y, look, dashed = false, thin = false }, frame) {
    const found = pieces(x, y, frame);
    const group = svg('g', { class: thin ? 'series thin' : 'series', vars: { '--colour': look.colour } });
    group.append(svg('path', { class: dashed ? 'line dashed' : 'line', d: found.map(path).join('') }));
    if (!thin && look.marker) {
      const markers = markerPlaces(found.flat(), look.index).map(([px, py]) => look.marker(px, py, 3.2)).join('');
      group.append(svg('path', { class: dashed ? 'marker hollow' : 'marker', d: markers }));
    }
    return group;
  }

  /** Some points of a line, at other places for each method, and always its last. */
  function markerPlaces(points, index) {
    const places = [];
    let next = (points[0]?.[0] ?? 0) + 20 + (index * 23) % MARKER_GAP;
    for (const point of points) {
      if (point[0] < next) continue;
      places.push(point);
      next = point[0] + MARKER_GAP;
    }
    const last = points.at(-1);
    if (last && places.at(-1) !== last) {
      if (places.length && last[0] - places.at(-1)[0] < 12) places.pop();
      places.push(last);
    }
    return places;
  }

  function bandPath({ x, low, high, colour }, frame) {
    const both = low.map((value, i) => (value === null || high[i] === null ? null : value));
    const upper = high.map((value, i) => (both[i] === null ? null : value));
    const lower = pieces(x, both, frame);
    const shapes = pieces(x, upper, frame).map((piece, i) => `${path([...piece, ...lower[i].toReversed()])}z`);
    return svg('path', { class: 'band', d: shapes.join(''), vars: { '--colour': colour } });
  }

  /** Many dots are one path: a line of no length with a round end. */
  function dotsPath({ points, colour }, frame) {
    const places = points.filter(([, y]) => drawable(y, frame));
    const d = places.map(([x, y]) => `M${fixed(frame.x(x))} ${fixed(frame.y(y))}h0`).join('');
    return svg('path', { class: 'dots', d, vars: { '--colour': colour } });
  }

  function markPath({ x, y, look }, frame) {
    const end = x === null ? frame.right : Math.max(frame.left + 26, Math.min(frame.x(x), frame.right));
    const at = fixed(frame.y(y));
    return svg(
      'g',
      { class: 'mark', vars: { '--colour': look.colour } },
      svg('path', { class: 'mark-far', d: `M${frame.left} ${at}H${fixed(end)}` }),
      svg('path', { class: 'mark-near', d: `M${fixed(end - 26)} ${at}H${fixed(end)}` }),
    );
  }

  // ---- reading values

  function listen(host, open) {
    let touched = false;
    host.addEventListener('pointermove', (event) => point(host, event));
    host.addEventListener('pointerdown', (event) => {
      touched = event.pointerType === 'touch';
      point(host, event);
    });
    host.addEventListener('pointerleave', (event) => {
      if (event.pointerType !== 'touch') leave(host);
    });
    host.addEventListener('blur', () => leave(host));
    host.addEventListener('keydown', (event) => key(host, event, open));
    // A finger reads values; it opens a chart by its heading.
    if (open) host.addEventListener('click', () => touched || open());
  }

  function point(host, event) {
    const drawn = charts.get(host)?.drawn;
    if (!drawn?.model.stops.length) return;
    const box = host.getBoundingClientRect();
    const { frame, model } = drawn;
    const share = (event.clientX - box.left - frame.left) / (frame.right - frame.left);
    const position = frame.xAxis.low + share * (frame.xAxis.high - frame.xAxis.low);
    stopAt(host, nearest(model.stops, position));
  }

  function key(host, event, open) {
    const one = charts.get(host);
    const count = one?.drawn?.model.stops.length ?? 0;
    if (event.key === 'Enter' && open) open();
    else if (event.key === 'Escape' && one?.stop !== null) leave(host);
    else if (!count) return;
    else if (event.key === 'ArrowRight') move(host, one.stop === null ? 0 : Math.min(count - 1, one.stop + 1));
    else if (event.key === 'ArrowLeft') move(host, one.stop === null ? count - 1 : Math.max(0, one.stop - 1));
    else if (event.key === 'Home') move(host, 0);
    else if (event.key === 'End') move(host, count - 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  function move(host, stop) {
    const { title, rows } = stopAt(host, stop);
    say(`${title}: ${rows.map((row) => `${row.label} ${row.text} ${row.note ?? ''}`).join('; ')}`);
  }

  function stopAt(host, stop) {
    const one = charts.get(host);
    one.stop = stop;
    const { model, frame, cursor } = one.drawn;
    const readout = model.readout(model.stops[stop]);
    const at = fixed(frame.x(model.stops[stop]));
    cursor.replaceChildren(
      svg('path', { class: 'cursor-line', d: `M${at} ${frame.top}V${frame.bottom}` }),
      ...readout.rows.filter((row) => drawable(row.y, frame)).map((row) => cursorDot(row, frame)),
    );
    const box = host.getBoundingClientRect();
    ogspr.tip.show(readoutContent(readout), { x: box.left + at, top: box.top, bottom: box.bottom });
    return readout;
  }

  function cursorDot(row, frame) {
    const colour = lookOf(row)?.colour ?? 'var(--accent)';
    const place = { cx: fixed(frame.x(row.x)), cy: fixed(frame.y(row.y)), r: 3.5 };
    return svg('circle', { class: 'cursor-dot', ...place, vars: { '--colour': colour } });
  }

  const lookOf = (row) => row.look ?? (row.method ? ogspr.methods.look(row.method) : null);

  function readoutContent({ title, rows }) {
    const body = element('div', { class: 'tip-rows' });
    for (const row of rows) {
      const look = lookOf(row);
      const picture = look ? ogspr.methods.picture(look, row.kind) : '';
      body.append(
        element('span', { class: 'tip-label' }, picture, row.label),
        element('span', { class: 'tip-value' }, row.text),
        element('span', { class: 'tip-note' }, row.note ?? ''),
      );
    }
    return [element('p', { class: 'tip-title' }, title), body];
  }

  function leave(host) {
    const one = charts.get(host);
    if (one) one.stop = null;
    one?.drawn?.cursor.replaceChildren();
    ogspr.tip.hide();
  }

  /** Index of the number next to a value in an ascending list. */
  function nearest(sorted, value) {
    let [low, high] = [0, sorted.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle;
      else high = middle;
    }
    return value - sorted[low] <= sorted[high] - value ? low : high;
  }

  ogspr.charts = { chart, redraw, drawAll, forgetGone, nearest };
})();
