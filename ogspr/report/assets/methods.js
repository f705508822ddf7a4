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

  // The names of the paper look the same in every report: a line for each round of colours. Variants are compared
  // with OG-SPR, whose colour none of them has.
  const FIXED = [
    'OG-SPR', 'AnonMethod', 'MR.Q', 'DrQ-v2', 'TD-MPC2', 'DreamerV3', 'SPR', 'OG-SPR - OP',
    null, 'OG-SPR - SP', 'OG-SPR - SVP', 'Shared Adapter', 'No Adapter', 'Adapter 2 Only',
  ];

  // Names, in the order of legends, with their index. Only ever added to: a method that appears later does not change
  // the looks of the others.
  const known = new Map();

  function know(names) {
    const fixed = names.filter((name) => FIXED.includes(name)).map((name) => FIXED.indexOf(name));
    const taken = new Set([...known.values(), ...fixed]);
    for (const name of names) {
      if (known.has(name)) continue;
      const index = FIXED.includes(name) ? FIXED.indexOf(name) : leftOver(taken);
      known.set(name, index);
      taken.add(index);
    }
  }

  /** The first index after the fixed ones, of a colour that nothing has yet where there is one; never OG-SPR's. */
  function leftOver(taken) {
    const colours = new Set([0, ...[...taken].map((index) => index % COLOURS)]);
    let free = FIXED.length;
    while (taken.has(free)) free += 1;
    for (let index = free; index < free + COLOURS; index += 1) if (!colours.has(index % COLOURS)) return index;
    return free;
  }

  /** Ours first, then published curves, then what only the paper has numbers of. */
  function knowAll({ runs, curves }) {
    const series = curves.flatMap((task) => task.series);
    const groups = [
      runs,
      series.filter((one) => one.group === 'ours'),
      series.filter((one) => one.group === 'published'),
      curves.flatMap((task) => task.paper),
    ];
    know(groups.flatMap((group) => group.map((one) => one.method).sort()));
  }

  function look(method) {
    know([method]);
    return nth(known.get(method));
  }

  function nth(index) {
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
  const swatch = (method, kind = 'ours') => picture(look(method), kind);

  function picture({ colour, marker }, kind = 'ours') {
    return svg(
      'svg',
      { class: 'swatch', viewBox: '0 0 26 12', 'aria-hidden': 'true', vars: { '--colour': colour } },
      ...PICTURES[kind].map(([name, path]) => svg('path', { class: name, d: path(marker) })),
    );
  }

  ogspr.methods = { knowAll, look, nth, swatch, picture, names: () => [...known.keys()] };
})();
