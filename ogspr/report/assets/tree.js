// Settings as a tree that folds, with a search field.
(() => {
  const { element } = ogspr.dom;
  const OPEN_DEPTH = 4;

  const isBranch = (value) => value !== null && typeof value === 'object' && !isFlatList(value);
  const isFlatList = (value) => Array.isArray(value) && value.every((item) => item === null || typeof item !== 'object');

  function leaf(name, value, path, leaves) {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    const row = element(
      'div',
      { class: 'leaf' },
      element('span', { class: 'leaf-name' }, name),
      element('span', { class: `leaf-value ${value === null ? 'null' : typeof value}` }, text),
    );
    leaves.push({ row, text: `${path} ${text}` });
    return row;
  }

  function branch(name, value, path, depth, leaves) {
    const fold = element('details', { open: depth < OPEN_DEPTH }, element('summary', {}, name));
    fold.append(...children(value, path, depth + 1, leaves));
    return fold;
  }

  function children(value, path, depth, leaves) {
    return Object.entries(value).map(([name, inner]) => {
      const below = path ? `${path}.${name}` : name;
      return isBranch(inner) ? branch(name, inner, below, depth, leaves) : leaf(name, inner, below, leaves);
    });
  }

  function tree(name, label, value) {
    const leaves = [];
    const body = element('div', { class: 'tree' }, ...children(value, '', 1, leaves));
    const folds = [...body.querySelectorAll('details')].reverse(); // inner ones first
    const before = new Map(folds.map((fold) => [fold, fold.open]));
    const nothing = element('p', { class: 'empty', hidden: true }, 'Nothing matches.');
    const search = () => {
      const query = ogspr.state.choices.filters.get(name)?.trim();
      const matches = ogspr.controls.filterOf(name);
      for (const { row, text } of leaves) row.hidden = !matches(text);
      for (const fold of folds) {
        fold.hidden = Boolean(query) && !fold.querySelector('.leaf:not([hidden])');
        fold.open = query ? !fold.hidden : before.get(fold);
      }
      nothing.hidden = !query || leaves.some(({ row }) => !row.hidden);
    };
    search();
    const setAll = (open) => () => folds.forEach((fold) => { fold.open = open; });
    return element(
      'div',
      {},
      element(
        'div',
        { class: 'bar' },
        ogspr.controls.filterField(name, label, search),
        ogspr.controls.quietButton('Unfold all', `unfold:${name}`, setAll(true)),
        ogspr.controls.quietButton('Fold all', `fold:${name}`, setAll(false)),
      ),
      body,
      nothing,
    );
  }

  ogspr.tree = { tree };
})();
