// Curves of scores: a chart a task, and a page with a large one.
(() => {
  const { element, address } = ogspr.dom;
  const { choices, suggest, axisName } = ogspr.state;
  const { count, number, score, short, steps, unbroken } = ogspr.numbers;

  const SHORT = 0.5; // of what is known: runs that end before it are looked at closely

  const taskAddress = (task) => `#task/${address(task)}`;

  // ---- what a chart shows

  function shownSeries(task) {
    const shown = (one) => !choices.hidden.has(one.method) && (choices.published || one.group !== 'published');
    const end = lastStep(task);
    return task.series.filter(shown).map((one) => upTo(one, end)).filter((one) => one.agent_steps.length);
  }

  /** Where charts end: with everything that is known, or, short runs beside long published ones, with the runs. */
  function lastStep(task) {
    const end = choices.onlyOurSteps ? ourEnd(task, choices.axis) : 0;
    return end > 0 ? end : Infinity;
  }

  const largest = (numbers) => numbers.reduce((a, b) => Math.max(a, b), 0);
  const ourEnd = (task, axis) => largest(task.series.filter((one) => one.group === 'ours').flatMap((one) => one[axis]));
  const knownEnd = ({ series, paper }) => largest([...series.flatMap((one) => one.agent_steps), ...paper.map((one) => one.agent_steps)]);

  /** Short runs would be a dot beside long published curves: their charts end with them, unless the reader wants it otherwise. */
  function suggestEnd({ curves }) {
    const ours = largest(curves.map((task) => ourEnd(task, 'agent_steps')));
    const known = largest(curves.map(knownEnd));
    if (suggest('onlyOurSteps', ours > 0 && ours < SHORT * known)) ogspr.charts.redraw();
  }

  function upTo(one, end) {
    const xs = one[choices.axis];
    if (!xs.some((x) => x > end)) return one;
    const kept = (values) => values.filter((_, i) => xs[i] <= end);
    const runs = one.runs.map((run) => ({ ...run, scores: kept(run.scores) }));
    const [agentSteps, frames, mean, low, high] = [one.agent_steps, one.frames, one.mean, one.low, one.high].map(kept);
    return { ...one, agent_steps: agentSteps, frames, mean, low, high, runs };
  }

  const shownScores = (task) => (choices.paper ? task.paper.filter((one) => !choices.hidden.has(one.method)) : []);

  /** The paper's numbers are known by agent steps; the curves of a task tell how many frames those are. */
  function paperPosition(task, agentSteps) {
    if (choices.axis === 'agent_steps') return agentSteps;
    for (const one of task.series) {
      const last = one.agent_steps.length - 1;
      if (one.agent_steps[last] > 0) return (agentSteps * one.frames[last]) / one.agent_steps[last];
    }
    return null;
  }

  function model(task) {
    const series = shownSeries(task);
    const paper = shownScores(task);
    const label = `Scores on ${task.task}`;
    if (!series.length && !paper.length) return { label, message: 'Nothing to show: all methods are switched off.' };
    const lines = series.map((one) => meanLine(one));
    const thin = choices.singleRuns ? series.flatMap((one) => runLines(one)) : [];
    const bands = choices.bands ? series.map((one) => band(one)) : [];
    const markAt = (one) => Math.min(paperPosition(task, one.agent_steps), lastStep(task));
    const marks = paper.map((one) => ({ x: markAt(one), y: one.score, look: ogspr.methods.look(one.method) }));
    const xs = series.flatMap((one) => one[choices.axis]);
    return {
      label: `${label}: ${count(series.length, 'curve')}, ${count(paper.length, 'score')} of the paper. Arrow keys read values.`,
      title: axisName(),
      zero: true,
      xs: xs.length ? xs : marks.map((mark) => mark.x).concat(0),
      ys: [...lines, ...thin].map((line) => line.y).concat(bands.flatMap((one) => [one.low, one.high]), [marks.map((mark) => mark.y)]),
      bands,
      marks,
      lines: [...thin, ...lines],
      stops: [...new Set(xs)].sort((a, b) => a - b),
      readout: (stop) => readout(series, paper, stop, task),
    };
  }

  const meanLine = (one) => ({
    x: one[choices.axis], y: one.mean, look: ogspr.methods.look(one.method), dashed: one.group === 'published',
  });

  const runLines = (one) => one.runs.map((run) => ({ ...meanLine(one), y: run.scores, thin: true }));

  const band = (one) => ({
    x: one[choices.axis], low: one.low, high: one.high, colour: ogspr.methods.look(one.method).colour,
  });

  // ---- values at a step

  function readout(series, paper, stop, task) {
    const rows = series.map((one) => curveRow(one, stop)).filter(Boolean);
    rows.sort((a, b) => b.y - a.y);
    const marks = paper.map((one) => paperRow(one, task)).sort((a, b) => b.height - a.height);
    return { title: `${steps(stop)} ${axisName()}`, rows: [...rows, ...marks] };
  }

  /** The nearest point of a curve, if it is no farther than the curve's own points are from each other. */
  function curveRow(one, stop) {
    const xs = one[choices.axis];
    const known = xs.map((x, i) => i).filter((i) => one.mean[i] !== null);
    if (!known.length) return null;
    const positions = known.map((i) => xs[i]);
    const at = ogspr.charts.nearest(positions, stop);
    const gap = Math.max(...positions.map((x, i) => (i ? x - positions[i - 1] : 0)));
    if (Math.abs(positions[at] - stop) > gap / 2) return null;
    const i = known[at];
    const published = one.group === 'published';
    return {
      label: published ? `${one.method} (published)` : one.method,
      text: score(one.mean[i]),
      note: [interval(one, i), xs[i] === stop ? '' : `at ${steps(xs[i])}`].filter(Boolean).join(' '),
      method: one.method,
      kind: one.group,
      x: xs[i],
      y: one.mean[i],
    };
  }

  const interval = (one, i) => (
    one.low[i] === null || one.high[i] === null ? '' : `[${number(Math.round(one.low[i]))}, ${number(Math.round(one.high[i]))}]`
  );

  function paperRow(one, task) {
    const position = paperPosition(task, one.agent_steps);
    const at = position === null ? '' : `at ${short(position)}`;
    return { label: `${one.method} (paper)`, text: score(one.score), note: at, method: one.method, kind: 'paper', height: one.score, y: null };
  }

  // ---- parts of views

  function card(task) {
    const open = () => { location.hash = taskAddress(task.task); };
    return element(
      'section',
      { class: 'card', 'data-task': task.task },
      element('h3', {}, element('a', { href: taskAddress(task.task), 'data-keep': `task:${task.task}` }, task.task)),
      element('p', { class: 'card-note' }, unbroken(runsNote(task))),
      ogspr.charts.chart(() => model(task), { open, keep: `chart:${task.task}` }),
    );
  }

  function runsNote(task) {
    if (task.note) return task.note;
    const ours = task.series.filter((one) => one.group === 'ours');
    const runs = ours.reduce((sum, one) => sum + one.runs.length, 0);
    return ours.length ? `${count(runs, 'run')} of ${count(ours.length, 'method')}` : 'published curves only';
  }

  function switches() {
    const { axisField, switchField } = ogspr.controls;
    return [
      axisField(),
      switchField('singleRuns', 'Single runs'),
      switchField('bands', '95 % intervals'),
      switchField('published', 'Published curves'),
      switchField('paper', 'Paper’s scores'),
      switchField('onlyOurSteps', 'End with our runs'),
    ];
  }

  /** Each with how it is drawn: as runs of ours if there is one. */
  function methodsOf(curves) {
    const kinds = new Map(curves.flatMap((task) => task.paper).map((one) => [one.method, 'paper']));
    for (const one of curves.flatMap((task) => task.series)) {
      if (kinds.get(one.method) !== 'ours') kinds.set(one.method, one.group);
    }
    return ogspr.methods.names().filter((name) => kinds.has(name)).map((name) => [name, kinds.get(name)]);
  }

  /** Whose the numbers are that are not of runs here: one method can have a curve and a score that disagree. */
  function sources(curves) {
    const published = curves.some((task) => shownSeries(task).some((one) => one.group === 'published'));
    const ends = [...new Set(curves.flatMap(shownScores).map((one) => short(one.agent_steps)))].join(' or ');
    return [
      published ? 'Dashed: curves that the methods’ own authors published.' : '',
      ends ? `Short bars: final scores, at ${ends} agent steps, in the tables of the OG-SPR paper.` : '',
      published && ends ? 'These are different runs and may disagree.' : '',
    ].filter(Boolean).join(' ');
  }

  function controls(curves, ...more) {
    const note = element('p', { class: 'card-note sources' });
    const explain = () => { note.textContent = sources(curves); };
    explain();
    return element(
      'div',
      { class: 'controls', on: { change: explain, click: explain } }, // after the controls inside have done their work
      ogspr.controls.legend(methodsOf(curves)),
      element('div', { class: 'bar' }, ...more, ...switches()),
      note,
    );
  }

  const controlsPanel = (curves, ...more) => ({
    key: 'controls',
    wide: true,
    sticky: true,
    data: [methodsOf(curves), sources(curves), choices.onlyOurSteps],
    build: () => controls(curves, ...more),
  });

  const cardPanel = (task) => ({ key: `card:${task.task}`, data: task, build: () => card(task) });

  // ---- views

  function narrowCards() {
    const matches = ogspr.controls.filterOf('curves');
    const cards = [...document.querySelectorAll('.card[data-task]')];
    for (const one of cards) one.parentElement.hidden = !matches(one.dataset.task);
    const nothing = document.querySelector('.no-card');
    if (nothing) nothing.hidden = cards.some((one) => !one.parentElement.hidden);
  }

  function view({ curves }) {
    const filter = ogspr.controls.filterField('curves', 'Filter tasks', narrowCards);
    return {
      title: 'Curves',
      panels: [
        { key: 'heading', wide: true, data: null, build: () => element('h1', {}, 'Curves') },
        controlsPanel(curves, filter),
        ...curves.map(cardPanel),
        {
          key: 'nothing', wide: true, data: curves.length,
          build: () => element('p', { class: 'empty no-card', hidden: curves.length > 0 }, 'No curves to show.'),
        },
      ],
      shown: narrowCards,
    };
  }

  function taskView(content, name) {
    const at = content.curves.findIndex((task) => address(task.task) === name);
    const task = content.curves[at];
    if (!task) return null;
    const runs = content.runs.filter((run) => run.task === task.task);
    return {
      title: task.task,
      up: '#curves',
      panels: [
        { key: 'heading', wide: true, data: content.curves.map((one) => one.task), build: () => taskHeading(content.curves, at) },
        controlsPanel([task]),
        {
          key: `chart:${task.task}`, wide: true, data: task,
          build: () => element('section', { class: 'card' }, ogspr.charts.chart(() => model(task), { size: 'large', keep: `chart:${task.task}` })),
        },
        ...(task.note ? [] : [ogspr.runs.listPanel(runs, `task:${task.task}`, 'Runs of this task')]),
      ],
    };
  }

  function taskHeading(curves, at) {
    const step = (offset, label) => {
      const other = curves[at + offset];
      return other ? element('a', { href: taskAddress(other.task), title: other.task, 'data-keep': label }, label) : '';
    };
    return element(
      'div',
      { class: 'heading' },
      element('p', { class: 'crumbs' }, element('a', { href: '#curves', 'data-keep': 'up' }, 'Curves')),
      element('h1', {}, curves[at].task),
      element('nav', { class: 'steps', 'aria-label': 'Other tasks' }, step(-1, '← Previous'), step(1, 'Next →')),
    );
  }

  ogspr.curves = { view, taskView, controlsPanel, cardPanel, taskAddress, suggestEnd };
})();
