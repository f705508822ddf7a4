// Tables that can be sorted by each column and narrowed down to rows.
(() => {
  const { element, unseen, say } = ogspr.dom;
  const { choices } = ogspr.state;
  const { count, unbroken } = ogspr.numbers;
  const AT_ONCE = 100; // rows
  const words = new Intl.Collator('en', { numeric: true });
  const GROUPS = { ours: 'Ours', paper: 'Paper' };

  const showers = new WeakMap(); // the box of a table -> a function that shows all of its rows

  /**
   * columns: {title, group, numeric}; rows: lists of {text, value, note, incomplete, node}, where `node` makes what is
   * shown instead of the text. `name` is under which sort order and filter are kept.
   */
  function grid({ name, caption, columns, rows, filter = 'Filter rows' }) {
    const lines = rows.map((cells) => ({ cells, text: cells.map((one) => one.text).join(' '), row: null }));
    const body = element('tbody');
    const counter = element('span', { class: 'counter' });
    const headers = columns.map((column) => header(name, column, () => sortBy(column)));
    const table = element('table', {}, element('caption', { class: 'unseen' }, caption), headOf(columns, headers), body);
    const box = element('div', { class: 'scroll', 'data-keep': `scroll:${name}` }, table);
    let wanted = []; // lines that match the filter, in order

    // A long table is built as far as it is looked at.
    const showUntil = (end) => {
      const start = body.childElementCount;
      body.append(...wanted.slice(start, end).map((line) => { line.row ??= rowOf(line.cells, columns); return line.row; }));
      choices.rows.set(name, body.childElementCount);
    };
    const arrange = (atLeast) => {
      wanted = sorted(lines.filter(({ text }) => ogspr.controls.filterOf(name)(text)), name, columns);
      body.replaceChildren();
      showUntil(atLeast);
      headers.forEach((head, i) => head.setAttribute('aria-sort', direction(name, columns[i])));
      counter.textContent = wanted.length === lines.length ? count(lines.length, 'row') : `${wanted.length} of ${count(lines.length, 'row')}`;
      oneTabStop(body);
    };
    const again = () => {
      arrange(AT_ONCE);
      box.scrollTop = 0;
    };
    const sortBy = (column) => {
      nextOrder(name, column);
      again();
      say(`sorted by ${column.title}: ${direction(name, column)}`);
    };
    arrange(Math.max(AT_ONCE, choices.rows.get(name) ?? 0));
    box.addEventListener('scroll', () => {
      if (box.scrollTop + 2 * box.clientHeight > box.scrollHeight) showUntil(body.childElementCount + AT_ONCE);
    }, { passive: true });
    showers.set(box, () => showUntil(Infinity));
    listenToNotes(body);
    const bar = element('div', { class: 'bar' }, ogspr.controls.filterField(name, filter, again), counter);
    return element('div', { class: 'grid' }, bar, box, rows.flat().some((one) => one.incomplete) ? incompleteKey() : '');
  }

  const incompleteKey = () => element(
    'p',
    { class: 'key' },
    element('span', { class: 'incomplete' }, '123'),
    ' incomplete: fewer runs or steps than the paper’s protocol asks for',
  );

  /** Paper does not scroll. */
  function showAll() {
    for (const box of document.querySelectorAll('.scroll')) showers.get(box)?.();
  }

  const identity = (column) => `${column.group}|${column.title}`;

  /** Best numbers first, then worst first, then as given; words from A. */
  function nextOrder(name, column) {
    const order = choices.sorts.get(name);
    const same = order?.column === identity(column);
    const first = column.numeric;
    if (!same) choices.sorts.set(name, { column: identity(column), descending: first });
    else if (order.descending === first) choices.sorts.set(name, { ...order, descending: !first });
    else choices.sorts.delete(name);
  }

  function direction(name, column) {
    const order = choices.sorts.get(name);
    if (order?.column !== identity(column)) return 'none';
    return order.descending ? 'descending' : 'ascending';
  }

  function sorted(lines, name, columns) {
    const order = choices.sorts.get(name);
    const index = columns.findIndex((column) => identity(column) === order?.column);
    return index < 0 ? lines : lines.toSorted(comparison(index, columns[index], order.descending));
  }

  function comparison(index, column, descending) {
    const sign = descending ? -1 : 1;
    return ({ cells: a }, { cells: b }) => {
      if (!column.numeric) return sign * words.compare(a[index].text, b[index].text);
      const [x, y] = [a[index].value, b[index].value];
      if (x === null || y === null) return (x === null) - (y === null); // the unknown last, in both directions
      return sign * (x - y);
    };
  }

  function header(name, column, listener) {
    const button = element(
      'button',
      { type: 'button', on: { click: listener }, 'data-keep': `sort:${name}:${identity(column)}` },
      column.title,
      column.group ? unseen(` (${column.group})`) : '',
    );
    return element('th', { scope: 'col', class: classes(column), 'aria-sort': 'none' }, button);
  }

  const classes = (column) => [column.group, column.numeric ? 'numeric' : ''].filter(Boolean).join(' ') || null;

  function headOf(columns, headers) {
    const head = element('thead');
    if (columns.some((column) => column.group)) head.append(groupRow(columns));
    head.append(element('tr', {}, ...headers));
    return head;
  }

  /** Whose numbers stand below: one cell for neighbours of the same group. */
  function groupRow(columns) {
    const row = element('tr', { class: 'groups' });
    for (let i = 0; i < columns.length;) {
      const { group } = columns[i];
      let end = i;
      while (end < columns.length && columns[end].group === group) end += 1;
      const span = { colspan: end - i, class: group || null };
      row.append(group ? element('th', { ...span, scope: 'colgroup' }, GROUPS[group] ?? group) : element('td', span));
      i = end;
    }
    return row;
  }

  function rowOf(cells, columns) {
    const row = element('tr');
    cells.forEach((cell, i) => {
      const kind = { class: classes(columns[i]) };
      const content = cell.node?.() ?? (cell.note || cell.incomplete ? noted(cell) : cell.text);
      row.append(i === 0 ? element('th', { ...kind, scope: 'row' }, content) : element('td', kind, content));
    });
    return row;
  }

  function noted(cell) {
    const remark = unbroken([cell.incomplete ? 'incomplete' : '', cell.note].filter(Boolean).join(': '));
    return element(
      'span',
      { class: cell.incomplete ? 'noted incomplete' : 'noted', tabindex: '-1', 'data-note': remark },
      cell.text,
      unseen(` (${remark})`),
    );
  }

  // ---- notes: one stop for the Tab key, arrow keys from there

  const notesOf = (body) => [...body.querySelectorAll('.noted')];

  function oneTabStop(body) {
    notesOf(body).forEach((note, i) => { note.tabIndex = i ? -1 : 0; });
  }

  function listenToNotes(body) {
    const showFor = (event) => {
      const note = event.target.closest?.('.noted');
      if (!note) return;
      const box = note.getBoundingClientRect();
      ogspr.tip.show([element('p', {}, note.dataset.note)], { x: box.right, top: box.top, bottom: box.bottom });
    };
    body.addEventListener('pointerover', showFor);
    body.addEventListener('focusin', showFor);
    body.addEventListener('pointerout', ogspr.tip.hide);
    body.addEventListener('focusout', ogspr.tip.hide);
    body.addEventListener('keydown', (event) => walk(body, event));
  }

  function walk(body, event) {
    const from = event.target.closest('.noted');
    const to = from && neighbour(notesOf(body), from, event.key);
    if (!to) return;
    event.preventDefault();
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  function neighbour(notes, from, key) {
    const at = notes.indexOf(from);
    const column = from.closest('td, th').cellIndex;
    const below = (note) => note.closest('td, th').cellIndex === column;
    if (key === 'ArrowRight') return notes[at + 1];
    if (key === 'ArrowLeft') return notes[at - 1];
    if (key === 'ArrowDown') return notes.slice(at + 1).find(below);
    if (key === 'ArrowUp') return notes.slice(0, at).reverse().find(below);
    return null;
  }

  /** A cell of words or of a number, without a note. */
  const cell = (text, value = null, node = null) => ({ text, value, note: '', incomplete: false, node });

  ogspr.grid = { grid, cell, showAll };
})();
