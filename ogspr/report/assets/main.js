// Addresses, views, and updates that leave alone what has not changed.
(() => {
  const { element } = ogspr.dom;
  const VIEWS = [['overview', 'Overview'], ['tables', 'Tables'], ['curves', 'Curves'], ['runs', 'Runs']];
  const PARENT = { task: 'curves', run: 'runs' };
  const main = document.querySelector('main');

  let content = null; // the document
  let shown = ''; // the address whose view is on the page
  let current = null; // that view
  let panels = new Map(); // key -> {node, print}

  // ---- addresses

  function route() {
    const [view, ...rest] = location.hash.slice(1).split('/');
    return { view, argument: rest.join('/') };
  }

  function viewOf({ view, argument }) {
    if (!content && isLive()) return ogspr.overview.loadingView();
    if (isEmpty()) return ogspr.overview.emptyView(content);
    const found = {
      tables: () => ogspr.tables.view(content, argument),
      curves: () => ogspr.curves.view(content),
      runs: () => ogspr.runs.view(content),
      task: () => ogspr.curves.taskView(content, argument),
      run: () => ogspr.runs.runView(content, argument),
    }[view];
    return found ? found() ?? missing(view) : ogspr.overview.view(content);
  }

  const isLive = () => Boolean(document.documentElement.dataset.live);
  const isEmpty = () => !content || !(content.runs.length || content.curves.length || content.tables.length);

  const missing = (view) => ({
    title: 'Not found',
    panels: [{
      key: 'missing', wide: true, data: null,
      build: () => element('p', { class: 'empty' }, `This ${view} does not exist. `, element('a', { href: '#overview' }, 'Overview')),
    }],
  });

  // ---- views on the page

  /** What a panel shows, as text to compare; only pages that are updated need it. */
  const printOf = (panel) => (isLive() ? JSON.stringify(panel.data) : '');

  function placed(panel) {
    const before = panels.get(panel.key);
    const print = printOf(panel);
    if (before && before.print === print) return before;
    const kind = ['panel', panel.wide ? 'wide' : '', panel.sticky ? 'sticky' : ''].join(' ').trim();
    return { print, node: element('div', { class: kind }, panel.build()) };
  }

  /** Unchanged panels are not even moved: a video keeps playing, a field keeps its cursor. */
  function place(view) {
    const next = new Map(view.panels.map((panel) => [panel.key, placed(panel)]));
    const kept = new Set([...next.values()].map(({ node }) => node));
    for (const node of [...main.childNodes]) if (!kept.has(node)) node.remove();
    let at = main.firstChild;
    for (const { node } of next.values()) {
      if (node === at) at = at.nextSibling;
      else main.insertBefore(node, at);
    }
    panels = next;
    current = view;
    view.shown?.();
    ogspr.charts.forgetGone();
    document.title = [view.title, content?.title ?? 'ogspr'].filter(Boolean).join(' · ');
  }

  function navigate() {
    const address = route();
    const from = shown;
    const focus = keptFocus();
    shown = location.hash;
    panels = new Map();
    ogspr.tip.hide();
    place(viewOf(address));
    navigation(PARENT[address.view] ?? address.view);
    // A new address begins at its top; the way back leads to where one was.
    scrollTo(0, history.state?.scroll ?? 0);
    if (from && !focus()) main.focus({ preventScroll: true });
  }

  function take(next) {
    content = next;
    if (!content) return;
    ogspr.methods.knowAll(content);
    ogspr.curves.suggestEnd(content);
  }

  function update(next) {
    take(next);
    const [left, top] = [scrollX, scrollY];
    const boxes = keptScrolls();
    const focus = keptFocus();
    place(viewOf(route()));
    brand();
    navigation(PARENT[route().view] ?? route().view);
    boxes();
    focus();
    scrollTo(left, top);
  }

  const named = (name) => [...main.querySelectorAll('[data-keep]')].find((node) => node.dataset.keep === name);

  function keptFocus() {
    const active = document.activeElement;
    const name = active?.dataset?.keep;
    const selection = active?.type === 'search' ? [active.selectionStart, active.selectionEnd] : null;
    return () => {
      if (!name || active.isConnected) return Boolean(name);
      const again = named(name);
      again?.focus({ preventScroll: true });
      if (again && selection) again.setSelectionRange(...selection);
      return Boolean(again);
    };
  }

  function keptScrolls() {
    const places = [...main.querySelectorAll('[data-keep^="scroll:"]')].map((box) => [box.dataset.keep, box.scrollLeft, box.scrollTop]);
    return () => {
      for (const [name, left, top] of places) named(name)?.scrollTo(left, top);
    };
  }

  // ---- around the views

  function navigation(view) {
    const nav = document.querySelector('.views');
    nav.replaceChildren(...(isEmpty() ? [] : VIEWS).map(([name, label]) => element(
      'a', { href: `#${name}`, 'aria-current': (view || 'overview') === name ? 'page' : null }, label,
    )));
  }

  function brand() {
    document.querySelector('.brand').textContent = content?.title || 'ogspr';
    const made = content ? new Date(content.made) : null;
    const when = made && !Number.isNaN(made.valueOf()) ? made.toLocaleString('en-GB', { dateStyle: 'long', timeStyle: 'short' }) : content?.made ?? '';
    document.querySelector('.foot').textContent = content ? `Created ${when} with ogspr ${content.version}` : '';
  }

  function rememberScroll() {
    let waiting = 0;
    addEventListener('scroll', () => {
      clearTimeout(waiting);
      const address = location.hash;
      waiting = setTimeout(() => {
        if (location.hash === address && shown === address) history.replaceState({ scroll: scrollY }, '');
      }, 120);
    }, { passive: true });
  }

  function showEverything() {
    ogspr.grid.showAll();
    ogspr.charts.drawAll();
  }

  /** By hand: what stands after the # names views. */
  function skipToContent(event) {
    event.preventDefault();
    main.focus();
  }

  function start() {
    take(JSON.parse(document.getElementById('document').textContent));
    history.scrollRestoration = 'manual';
    brand();
    navigate();
    rememberScroll();
    addEventListener('hashchange', navigate);
    document.querySelector('.skip').addEventListener('click', skipToContent);
    addEventListener('beforeprint', showEverything);
    addEventListener('scroll', ogspr.tip.hide, { passive: true, capture: true });
    addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && current.up && !event.target.matches?.('input')) location.hash = current.up;
    });
    const { live } = document.documentElement.dataset;
    if (live) ogspr.live.watch(live, update);
  }

  ogspr.state.themeButton(document.querySelector('.theme'));
  // First the frame of the page, then the reading of what may be many megabytes.
  requestAnimationFrame(() => setTimeout(start));
})();
