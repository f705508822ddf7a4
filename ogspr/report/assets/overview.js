// The first view: how much there is, how far it is, what deserves attention.
(() => {
  const { element } = ogspr.dom;
  const { count, score, short } = ogspr.numbers;
  const { cell } = ogspr.grid;
  const FIRST_CURVES = 6;
  const FIRST_RUNS = 6;
  const FEW = 5; // warnings that are shown unfolded

  function view(content) {
    const { runs, curves } = content;
    const first = curves.slice(0, FIRST_CURVES);
    const panels = [
      { key: 'heading', wide: true, data: content.title, build: () => element('h1', {}, content.title) },
      { key: 'tiles', wide: true, data: facts(content), build: () => tiles(facts(content)) },
    ];
    panels.push(...attention(content));
    if (first.length) panels.push(ogspr.curves.controlsPanel(first), ...first.map(ogspr.curves.cardPanel));
    if (curves.length > first.length) panels.push(moreCurves(curves.length));
    if (content.scores.length) panels.push(scoresPanel(content.scores));
    if (runs.some((run) => !run.finished)) panels.push(goingOnPanel(runs));
    return { title: '', panels };
  }

  // ---- numbers on top

  const labelled = (amount, one) => [amount === 1 ? one : `${one}s`, String(amount)];

  /** Of the length that each was started with, which need not be the paper's. */
  function lengths(runs) {
    const reached = runs.filter((run) => run.finished).length;
    if (reached === runs.length) return runs.length > 1 ? 'all complete' : 'complete';
    return `${reached} complete, ${runs.length - reached} in progress`;
  }

  function facts({ runs, curves, warnings, skipped }) {
    const tasks = new Set([...runs.map((run) => run.task), ...curves.filter((task) => !task.note).map((task) => task.task)]);
    const methods = new Set(runs.map((run) => run.method));
    const steps = runs.map((run) => run.agent_steps);
    return [
      [...labelled(runs.length, 'Run'), lengths(runs)],
      [...labelled(tasks.size, 'Task'), `${count(curves.length, 'chart')} of curves`],
      [...labelled(methods.size, 'Method'), 'trained here'],
      ['Agent steps, all runs together', short(steps.reduce((sum, one) => sum + one, 0)), `the longest run has ${short(Math.max(0, ...steps))}`],
      [...labelled(warnings.length, 'Warning'), `${count(skipped.length, 'folder')} skipped`],
    ];
  }

  const tiles = (all) => element('dl', { class: 'tiles' }, ...all.map(([name, value, remark]) => element(
    'div', {}, element('dt', {}, name), element('dd', { class: 'tile-value' }, value), element('dd', { class: 'tile-remark' }, remark),
  )));

  // ---- what deserves attention

  function attention({ warnings, skipped }) {
    if (!warnings.length && !skipped.length) return [];
    const build = () => element(
      'div',
      { class: 'attention-row' },
      warnings.length ? folded('warnings', count(warnings.length, 'warning'), warnings.map((text) => [text])) : '',
      skipped.length ? folded('skipped', `${count(skipped.length, 'folder')} skipped`, skipped.map(skippedLine)) : '',
    );
    return [{ key: 'attention', wide: true, data: [warnings, skipped], build }];
  }

  const skippedLine = ({ folder, reason }) => [element('span', { class: 'folder' }, folder), ` ${reason}`];

  const folded = (kind, title, lines) => element(
    'details',
    { class: `card attention ${kind}`, open: lines.length <= FEW },
    element('summary', {}, title),
    element('ul', {}, ...lines.map((line) => element('li', {}, ...line))),
  );

  const moreCurves = (all) => ({
    key: 'more', wide: true, data: all,
    build: () => element('p', { class: 'more' }, element('a', { href: '#curves', 'data-keep': 'more' }, `All ${all} charts of curves`)),
  });

  // ---- scores

  const scoresPanel = (lines) => ({ key: 'scores', wide: true, data: lines, build: () => scores(lines) });

  function scores(lines) {
    const columns = [['Task', false], ['Method', false], ['Score', true], ['Agent steps', true], ['Runs', true], ['Complete', true]];
    return element(
      'section',
      { class: 'card' },
      element('h2', {}, 'Scores'),
      element('p', { class: 'card-note' }, 'As in the tables: at the step of the paper’s scores, or at the last step that all runs have in common. The number of steps requested for a run may be lower than the paper’s.'),
      ogspr.grid.grid({
        name: 'scores',
        caption: 'Scores of tasks and methods',
        columns: columns.map(([title, numeric]) => ({ title, group: '', numeric })),
        rows: lines.map((line) => [
          cell(line.task, null, () => element('a', { href: ogspr.curves.taskAddress(line.task), 'data-keep': `scores:${line.task}:${line.method}` }, line.task)),
          cell(line.method, null, () => element('span', { class: 'method-name' }, ogspr.methods.swatch(line.method), line.method)),
          { ...cell(score(line.score), line.score), note: line.note, incomplete: line.incomplete },
          cell(line.agent_steps === null ? '\u2013' : short(line.agent_steps), line.agent_steps),
          cell(String(line.runs), line.runs),
          cell(String(line.finished), line.finished),
        ]),
      }),
    );
  }

  function goingOnPanel(runs) {
    const open = runs.filter((run) => !run.finished);
    const first = open.slice(0, FIRST_RUNS);
    const lines = first.map((run) => [run.id, run.folder, run.agent_steps, run.wanted_steps]);
    return {
      key: 'unfinished', wide: true, data: [lines, open.length],
      build: () => element(
        'section',
        { class: 'card' },
        element('h2', {}, 'In progress'),
        element('ul', { class: 'plain' }, ...first.map((run) => element(
          'li', {}, ogspr.runs.folderLink(run, 'unfinished'), ogspr.runs.progress(run),
        ))),
        open.length > first.length ? element('p', { class: 'more' }, element('a', { href: '#runs', 'data-keep': 'all runs' }, `All ${runs.length} runs`)) : '',
      ),
    };
  }

  /** The server of a live page reads the runs before its first answer. */
  const loadingView = () => ({
    title: 'Loading',
    panels: [{
      key: 'loading', wide: true, data: null,
      build: () => element(
        'section',
        { class: 'card welcome' },
        element('h1', {}, 'Loading the runs'),
        element('p', {}, 'Reading many runs takes a while. This page updates by itself.'),
      ),
    }],
  });

  function emptyView(content) {
    const live = document.documentElement.dataset.live;
    const wait = live ? 'This page updates as soon as a run starts.' : 'Then create this page again.';
    const panels = [{
      key: 'empty', wide: true, data: null,
      build: () => element(
        'section',
        { class: 'card welcome' },
        element('h1', {}, 'No runs yet'),
        element('p', {}, 'Train one, for example with'),
        element('pre', {}, 'ogspr train dmc:walker-walk'),
        element('p', {}, wait),
      ),
    }];
    return { title: '', panels: content ? panels.concat(attention(content)) : panels };
  }

  ogspr.overview = { view, emptyView, loadingView };
})();
