// Each method has one colour and one marker, the same in every chart and list.
(() => {
  const { svg } = ogspr.dom;
  const COLOURS = 8; // --method-0 ... in the style sheet

  // Paths around (x, y); the shapes tell methods apart without colour.
  const MARKERS = [
    (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
    (x, y, r) => `M${x - r * 0.9} ${y - r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}z`,
    (x, y, r) => `M${x} ${y - r * 1.2}l${r * 1.15} ${r * 2}h${-r * 2.3}z`,
    (x, y, r) => `M${x} ${y - r * 1.3}l${r * 1.3} ${r * 1.3}l${-r * 1.3} ${r * 1.3}l${-r * 1.3} ${-r * 1.3}z`,
    (x, y, r) => `M${x} ${y + r * 1.2}l${r * 1.15} ${-r * 2}h${-r * 2.3}z`,
    (x, y, r) => `M${x - r * 1.2} ${y - r * 0.4}h${r * 0.8}v${-r * 0.8}h${r * 0.8}v${r * 0.8}h${r * 0.8}v${r * 0.8}h${-r * 0.8}v${r * 0.8}h${-r * 0.8}v${-r * 0.8}h${-r * 0.8}z`,
    (x, y, r) => `M${x - r * 1.2} ${y - r}l${r * 2.4} ${r}l${-r * 2.4} ${r}z`,
    (x, y, r) => `M${x + r * 1.2} ${y - r}l${-r * 2.4} ${r}l${r * 2.4} ${r}z`,
  ];

  // Only ever added to: a method that appears later does not change the colours of the others.
  const known = new Map();

  function know(names) {
    for (const name of names) if (!known.has(name)) known.set(name, known.size);
  }

  /** Ours first, then published curves, then what only the paper has numbers of. */
  function knowAll(content) {
    know(content.runs.map((run) => run.method).sort());
    for (const group of ['ours', 'published']) {
      const series = content.curves.flatMap((task) => task.series);
      know(series.filter((one) => one.group === group).map((one) => one.method).sort());
    }
    know(content.curves.flatMap((task) => task.paper).map((one) => one.method).sort());
  }

  function look(method) {
    know([method]);
    const index = known.get(method);
    // After a whole round of colours the markers are moved on by one, so that no pair comes twice.
    const marker = (index + Math.floor(index / COLOURS)) % MARKERS.length;
    return { index, colour: `var(--method-${index % COLOURS})`, marker: MARKERS[marker] };
  }

  // How a method's own runs, curves that others published, and numbers of the paper are drawn.
  const PICTURES = {
    ours: [['line', () => 'M1 6h24'], ['marker', (marker) => marker(13, 6, 3.4)]],
    published: [['line dashed', () => 'M1 6h24'], ['marker hollow', (marker) => marker(13, 6, 3.4)]],
    paper: [['mark-near', () => 'M5 6h16']],
  };

  /** A small picture of a method's line, for legends and lists. */
  function swatch(method, kind = 'ours') {
    const { colour, marker } = look(method);
    return svg(
      'svg',
      { class: 'swatch', viewBox: '0 0 26 12', 'aria-hidden': 'true', vars: { '--colour': colour } },
      ...PICTURES[kind].map(([name, path]) => svg('path', { class: name, d: path(marker) })),
    );
  }

  ogspr.methods = { knowAll, look, swatch, names: () => [...known.keys()] };
})();
