// The tables of the document, a tab each.
(() => {
  const { element, address } = ogspr.dom;

  const tableAddress = (table) => `#tables/${address(table.name)}`;

  function view({ tables }, name) {
    const at = Math.max(0, tables.findIndex((table) => address(table.name) === name));
    const panels = [{ key: 'heading', wide: true, data: null, build: () => element('h1', {}, 'Tables') }];
    if (!tables.length) {
      panels.push({ key: 'nothing', wide: true, data: null, build: () => element('p', { class: 'empty' }, 'No tables yet.') });
    } else {
      panels.push(
        { key: 'tabs', wide: true, data: [tables.map((table) => [table.name, table.title]), at], build: () => tabs(tables, at) },
        { key: `table:${tables[at].name}`, wide: true, data: tables[at], build: () => tablePanel(tables[at]) },
      );
    }
    return { title: tables[at]?.title ?? 'Tables', panels };
  }

  function tabs(tables, at) {
    const list = element('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Tables', 'data-keep': 'scroll:tabs' });
    tables.forEach((table, i) => {
      list.append(element('a', {
        role: 'tab',
        href: tableAddress(table),
        id: `tab-${i}`,
        tabindex: i === at ? '0' : '-1',
        'aria-selected': String(i === at),
        'aria-controls': i === at ? 'table-panel' : null,
        'data-keep': `tab:${table.name}`,
      }, table.title));
    });
    list.addEventListener('keydown', (event) => walk(list, event));
    return list;
  }

  function walk(list, event) {
    const all = [...list.children];
    const at = all.indexOf(document.activeElement);
    const to = {
      ArrowRight: (at + 1) % all.length,
      ArrowLeft: (at - 1 + all.length) % all.length,
      Home: 0,
      End: all.length - 1,
      ' ': at,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    all[to].focus();
    // The tab's own panel follows; the focus is found again by its name.
    location.replace(all[to].getAttribute('href'));
  }

  function tablePanel(table) {
    return element(
      'section',
      { class: 'card', role: 'tabpanel', id: 'table-panel', 'aria-label': table.title },
      element('h2', {}, table.title),
      table.note ? element('p', { class: 'card-note' }, ogspr.numbers.unbroken(table.note)) : '',
      ogspr.grid.grid({ name: `table:${table.name}`, caption: table.title, columns: table.columns, rows: table.rows }),
    );
  }

  ogspr.tables = { view };
})();
