// The list of runs, and a page for each.
(() => {
  const { element, address } = ogspr.dom;
  const { choices, axisName } = ogspr.state;
  const { count, duration, mean, number, score, short, steps } = ogspr.numbers;
  const { cell } = ogspr.grid;
  const PLAIN = { index: 0, colour: 'var(--accent)' };
  const INFLUENCE = 'encoder_gradient_'; // columns that belong in one chart
  const CLOCK = new Set(['agent_steps', 'frames', 'seconds', 'unix_time']);
  const UNITS = [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [1, 'bytes']];

  const runAddress = (run) => `#run/${address(run.id)}`;
  const share = (run) => (run.wanted_steps > 0 ? Math.min(1, run.agent_steps / run.wanted_steps) : 0);

  // ---- the list

  // A phone has room for the first ones.
  const COLUMNS = [
    ['Run', false], ['Progress', true], ['Last', true], ['Best', true], ['Task', false], ['Method', false], ['Seed', true],
  ].map(([title, numeric]) => ({ title, group: '', numeric }));

  const row = (run) => [
    cell(run.folder, null, () => folderLink(run, 'run')),
    cell(progressText(run), share(run), () => progress(run)),
    cell(score(run.last), run.last),
    cell(score(run.best), run.best),
    cell(run.task),
    cell(run.method, null, () => element('span', { class: 'method-name' }, ogspr.methods.swatch(run.method), run.method)),
    cell(String(run.seed), run.seed),
  ];

  /** If there is no room its beginning is cut off: runs differ at the end. */
  const folderLink = (run, where) => element(
    'a',
    { href: runAddress(run), class: 'folder tail', title: run.folder, 'data-keep': `${where}:${run.id}` },
    element('bdi', { dir: 'ltr' }, run.folder),
  );

  // Not "finished": that could be taken for the length of the paper's runs.
  const progressText = (run) => `${short(run.agent_steps)} of ${short(run.wanted_steps)}`;

  function progress(run) {
    const title = `${steps(run.agent_steps)} agent steps of the ${steps(run.wanted_steps)} requested`;
    const bar = element('progress', { max: 1, value: share(run), 'aria-label': 'progress' });
    return element('span', { class: 'progress', title }, bar, element('span', {}, progressText(run)));
  }

  // Not the curves: a list is rebuilt only if something in it has changed.
  const summary = ({ id, folder, task, method, seed, agent_steps, wanted_steps, finished, last, best }) => (
    [id, folder, task, method, seed, agent_steps, wanted_steps, finished, last, best]
  );

  const listPanel = (runs, name, title) => ({
    key: `runs:${name}`, wide: true, data: runs.map(summary),
    build: () => element(
      'section',
      { class: 'card' },
      title ? element('h2', {}, title) : '',
      runs.length
        ? ogspr.grid.grid({ name: `runs:${name}`, caption: title || 'Runs', columns: COLUMNS, rows: runs.map(row), filter: 'Filter runs' })
        : element('p', { class: 'empty' }, 'No runs.'),
    ),
  });

  function view({ runs }) {
    return {
      title: 'Runs',
      panels: [
        { key: 'heading', wide: true, data: null, build: () => element('h1', {}, 'Runs') },
        listPanel(runs, 'all', ''),
      ],
    };
  }

  // ---- one run

  function runView(content, name) {
    const run = content.runs.find((one) => address(one.id) === name);
    if (!run) return null;
    const part = (key, title, data, build) => ({ key: `${run.id}:${key}`, wide: true, data, build: () => section(title, build()) });
    const small = (columns, skip) => columns.names.filter((column) => !skip.has(column));
    // MR.Q has another column with the same prefix.
    const influence = run.losses.names.includes(`${INFLUENCE}combined`)
      ? run.losses.names.filter((column) => column.startsWith(INFLUENCE))
      : [];
    const losses = small(run.losses, new Set([...CLOCK, ...influence])).map((column) => chartPanel(run, run.losses, column, lossModel));
    const system = systemColumns(run.system).map((column) => chartPanel(run, column.table, column.name, systemModel));
    return {
      title: `${run.task}, ${run.method}, seed ${run.seed}`,
      up: '#runs',
      panels: [
        { key: `${run.id}:heading`, wide: true, data: [summary(run), totalSeconds(run)], build: () => heading(run) },
        { key: 'switches', wide: true, sticky: true, data: null, build: runSwitches },
        part('evaluations', 'Evaluations', run.evaluations, () => [
          ogspr.charts.chart(() => evaluationModel(run), { size: 'large', keep: 'chart:evaluations' }),
        ]),
        ...(run.videos.length ? [part('videos', 'Videos', run.videos, () => [element('div', { class: 'videos' }, ...run.videos.map(video))])] : []),
        title('losses', 'Training', losses.length ? '' : 'train.csv has no rows yet.'),
        ...(influence.length ? [influencePanel(run, influence)] : []),
        ...losses,
        title('system', 'System', system.length ? '' : 'system.csv has no rows yet.'),
        ...system,
        { key: `${run.id}:settings`, wide: true, data: [run.config, run.manifest], build: () => settings(run) },
      ],
    };
  }

  const section = (name, children) => element('section', { class: 'card' }, element('h2', {}, name), ...children);

  const title = (key, name, remark) => ({
    key: `title:${key}`, wide: true, data: remark,
    build: () => element('div', {}, element('h2', { class: 'over' }, name), remark ? element('p', { class: 'empty' }, remark) : ''),
  });

  const settings = (run) => element(
    'div',
    { class: 'pair' },
    section('Configuration', [ogspr.tree.tree('config', 'Search configuration', run.config)]),
    section('Manifest', [ogspr.tree.tree('manifest', 'Search manifest', run.manifest)]),
  );

  function runSwitches() {
    const { axisField, switchField } = ogspr.controls;
    return element('div', { class: 'controls' }, element('div', { class: 'bar' }, axisField(), switchField('logLosses', 'Log scale for training')));
  }

  function heading(run) {
    const seconds = totalSeconds(run);
    const facts = [
      ['Method', element('span', { class: 'method-name' }, ogspr.methods.swatch(run.method), run.method)],
      ['Seed', String(run.seed)],
      ['Agent steps', `${steps(run.agent_steps)} of ${steps(run.wanted_steps)}`],
      ['Progress', progress(run)],
      ['Last score', score(run.last)],
      ['Best score', score(run.best)],
      ...(seconds === null ? [] : [['Time', duration(seconds)]]),
    ];
    return element(
      'div',
      { class: 'heading' },
      element(
        'p',
        { class: 'crumbs' },
        element('a', { href: '#runs', 'data-keep': 'up' }, 'Runs'), ' / ',
        element('a', { href: ogspr.curves.taskAddress(run.task), 'data-keep': 'task' }, run.task),
      ),
      element('h1', { class: 'folder' }, run.folder),
      element('dl', { class: 'facts' }, ...facts.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value)))),
    );
  }

  function totalSeconds(run) {
    const at = run.system.names.indexOf('seconds');
    return at < 0 ? null : run.system.rows.at(-1)?.[at] ?? null;
  }

  // ---- evaluations

  function evaluationModel(run) {
    const { evaluations } = run;
    const xs = evaluations[choices.axis];
    const label = `Evaluations of ${run.folder}`;
    if (!xs.length) return { label, message: 'Not evaluated yet.' };
    const points = evaluations.scores.flatMap((episodes, i) => episodes.map((one) => [xs[i], one]));
    const means = evaluations.scores.map(mean);
    return {
      label: `${label}: ${count(xs.length, 'evaluation')}. Arrow keys read values.`,
      title: axisName(),
      zero: true,
      xs,
      ys: evaluations.scores,
      dots: [{ points, colour: ogspr.methods.look(run.method).colour }],
      lines: [{ x: xs, y: means, look: { ...ogspr.methods.look(run.method), marker: null } }],
      stops: xs,
      readout: (stop) => evaluationReadout(run, xs.indexOf(stop), means),
    };
  }

  function evaluationReadout(run, at, means) {
    const known = run.evaluations.scores[at].filter((one) => one !== null);
    const position = run.evaluations[choices.axis][at];
    const rows = [{ label: 'mean', text: score(means[at]), note: count(known.length, 'episode'), x: position, y: means[at], method: run.method }];
    if (known.length > 1) {
      rows.push({ label: 'best episode', text: score(Math.max(...known)), y: null }, { label: 'worst episode', text: score(Math.min(...known)), y: null });
    }
    return { title: `${steps(position)} ${axisName()}`, rows };
  }

  // ---- columns of csv files

  const values = (table, name) => {
    const at = table.names.indexOf(name);
    return table.rows.map((line) => line[at] ?? null);
  };

  /** Where the rows lie on the horizontal axis; by their number where the file does not say. */
  function positions(table) {
    const name = [choices.axis, 'agent_steps'].find((one) => table.names.includes(one));
    return name ? { xs: values(table, name), name: name.replace('_', ' ') } : { xs: table.rows.map((line, i) => i), name: 'row' };
  }

  const words = (name) => name.replaceAll('_', ' ');

  function chartPanel(run, table, name, modelOf) {
    const used = table.names.filter((one) => one === name || CLOCK.has(one));
    return {
      key: `${run.id}:column:${name}`,
      data: used.map((one) => values(table, one)),
      build: () => element(
        'section',
        { class: 'card' },
        element('h3', {}, words(name)),
        ogspr.charts.chart(() => modelOf(table, name), { size: 'tiny', keep: `chart:column:${name}` }),
      ),
    };
  }

  function columnModel(table, name, { log = false, zero = false }) {
    const { xs, name: axis } = positions(table);
    const known = values(table, name);
    const ys = log ? known.map((value) => (value > 0 ? value : null)) : known;
    const label = words(name);
    if (ys.every((value) => value === null)) {
      return { label, message: log && known.some((value) => value !== null) ? 'No values above 0 for a log scale.' : 'No values yet.' };
    }
    const stops = xs.filter((x, i) => x !== null && ys[i] !== null);
    return {
      label: `${label}. Arrow keys read values.`,
      title: axis,
      log,
      zero,
      xs,
      ys: [ys],
      lines: [{ x: xs, y: ys, look: PLAIN }],
      dots: stops.length === 1 ? [{ points: [[stops[0], ys[xs.indexOf(stops[0])]]], colour: PLAIN.colour }] : [],
      stops,
      readout: (stop) => {
        const value = ys[xs.indexOf(stop)];
        return { title: `${steps(stop)} ${axis}`, rows: [{ label, text: number(value), x: stop, y: value }] };
      },
    };
  }

  // ---- how much each loss moves the encoder

  function influencePanel(run, columns) {
    const used = run.losses.names.filter((one) => columns.includes(one) || CLOCK.has(one));
    const lines = columns.map((name, i) => ({ name, label: words(name.slice(INFLUENCE.length)), look: ogspr.methods.nth(i) }));
    return {
      key: `${run.id}:influence`, wide: true,
      data: used.map((one) => values(run.losses, one)),
      build: () => element(
        'section',
        { class: 'card' },
        element('h3', {}, 'Gradient on the encoder, by loss'),
        element('p', { class: 'card-note' }, 'Norms, each loss times its weight. A loss far below the others has next to no effect.'),
        element('p', { class: 'card-note influences' }, ...lines.map(({ label, look }) => element('span', { class: 'method-name' }, ogspr.methods.picture(look), label))),
        ogspr.charts.chart(() => influenceModel(run.losses, lines), { size: 'large', keep: 'chart:influence' }),
      ),
    };
  }

  /** On a log scale: what matters is whether they are of one order. */
  function influenceModel(table, lines) {
    const { xs, name: axis } = positions(table);
    const drawn = lines.map((line) => ({ ...line, ys: values(table, line.name).map((value) => (value > 0 ? value : null)) }));
    const label = 'Gradient on the encoder, by loss';
    const stops = xs.filter((x, i) => x !== null && drawn.some(({ ys }) => ys[i] !== null));
    if (!stops.length) return { label, message: 'No values yet: they come with the first updates.' };
    return {
      label: `${label}. Arrow keys read values.`,
      title: axis,
      log: true,
      xs,
      ys: drawn.map(({ ys }) => ys),
      lines: drawn.map(({ ys, look }) => ({ x: xs, y: ys, look: stops.length === 1 ? look : { ...look, marker: null } })),
      stops,
      readout: (stop) => ({
        title: `${steps(stop)} ${axis}`,
        rows: drawn.map(({ label: name, look, ys }) => ({ label: name, look, text: number(ys[xs.indexOf(stop)]), x: stop, y: ys[xs.indexOf(stop)] })),
      }),
    };
  }

  const lossModel = (table, name) => columnModel(table, name, { log: choices.logLosses });
  const systemModel = (table, name) => columnModel(table, name, { zero: true });

  /** Speed is what seconds are looked at for; memory is read in units of this size. */
  function systemColumns(table) {
    const found = table.names.filter((name) => !CLOCK.has(name)).map((name) => readable(table, name));
    const speed = stepsPerSecond(table);
    return speed ? [speed, ...found] : found;
  }

  const derived = (table, name, column) => ({
    name,
    table: {
      names: [...table.names.filter((one) => CLOCK.has(one)), name],
      rows: table.rows.map((line, i) => [...line.filter((_, at) => CLOCK.has(table.names[at])), column[i]]),
    },
  });

  function readable(table, name) {
    if (!name.endsWith('_bytes')) return { name, table };
    const bytes = values(table, name);
    const [size, unit] = UNITS.find(([one]) => Math.max(...bytes) >= one) ?? UNITS[0];
    return derived(table, `${name.slice(0, -'_bytes'.length)}, ${unit}`, bytes.map((value) => (value === null ? null : value / size)));
  }

  function stepsPerSecond(table) {
    if (!['agent_steps', 'seconds'].every((name) => table.names.includes(name)) || table.rows.length < 2) return null;
    const [done, seconds] = [values(table, 'agent_steps'), values(table, 'seconds')];
    const speeds = done.map((now, i) => {
      const [more, time] = [now - done[i - 1], seconds[i] - seconds[i - 1]];
      return more > 0 && time > 0 ? more / time : null; // the clock of a resumed run may start again
    });
    return derived(table, 'agent steps a second', speeds);
  }

  // ---- videos

  /** Only videos inside the page or next to it: nothing is fetched from elsewhere. */
  function isLocal(source) {
    return /^data:(video|image)\//.test(source) || !(/^[a-z][a-z0-9+.-]*:/i.test(source) || /^[\\/]{2}/.test(source));
  }

  function video({ name, source }) {
    return element('figure', {}, player(name, source), element('figcaption', {}, name));
  }

  /** Browsers play a gif as an image, and everything else as a video. */
  function player(name, source) {
    if (!isLocal(source)) return element('p', { class: 'empty' }, 'This video is stored elsewhere and was not loaded.');
    if (name.toLowerCase().endsWith('.gif')) return element('img', { src: source, alt: name, loading: 'lazy' });
    return element('video', { controls: true, preload: 'metadata', src: source, 'aria-label': name, playsinline: true });
  }

  ogspr.runs = { view, runView, listPanel, folderLink, progress };
})();
