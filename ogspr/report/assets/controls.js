// Fields, switches and legends. Each changes a choice and has the charts drawn again.
(() => {
  const { element } = ogspr.dom;
  const { choices, choose } = ogspr.state;

  /** Every word must occur; the order does not matter. */
  function matcher(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return (text) => {
      const low = text.toLowerCase();
      return words.every((word) => low.includes(word));
    };
  }

  /** A field that narrows the list `name` down; what was typed is kept. */
  function filterField(name, label, changed) {
    const field = element('input', {
      type: 'search',
      placeholder: label,
      'aria-label': label,
      autocomplete: 'off',
      spellcheck: 'false',
      'data-keep': `filter:${name}`,
    });
    field.value = choices.filters.get(name) ?? '';
    field.addEventListener('input', () => {
      choices.filters.set(name, field.value);
      changed();
    });
    return field;
  }

  const filterOf = (name) => matcher(choices.filters.get(name) ?? '');

  function switchField(choice, label) {
    const box = element('input', { type: 'checkbox', 'data-keep': `switch:${choice}` });
    box.checked = choices[choice];
    box.addEventListener('change', () => {
      choose(choice, box.checked);
      ogspr.charts.redraw();
    });
    return element('label', { class: 'switch' }, box, label);
  }

  function axisField() {
    const group = element('fieldset', { class: 'segments' }, element('legend', { class: 'unseen' }, 'Horizontal axis'));
    for (const [axis, label] of [['agent_steps', 'Agent steps'], ['frames', 'Frames']]) {
      const button = element('input', { type: 'radio', name: 'axis', value: axis, 'data-keep': `axis:${axis}` });
      button.checked = choices.axis === axis;
      button.addEventListener('change', () => {
        choices.axis = axis;
        ogspr.charts.redraw();
      });
      group.append(element('label', {}, button, element('span', {}, label)));
    }
    return group;
  }

  /** A button a method. Shift and click shows it alone. */
  function legend(kinds) {
    const methods = kinds.map(([method]) => method);
    const buttons = kinds.map(([method, kind]) => legendButton(method, kind, (event) => {
      if (event.shiftKey) showOnly([method], methods);
      else if (!choices.hidden.delete(method)) choices.hidden.add(method);
      press();
    }));
    const press = () => {
      buttons.forEach((button, i) => button.setAttribute('aria-pressed', String(!choices.hidden.has(methods[i]))));
      ogspr.charts.redraw();
    };
    const all = quietButton('All', 'legend:all', () => { showOnly(methods, methods); press(); });
    const none = quietButton('None', 'legend:none', () => { showOnly([], methods); press(); });
    return element('div', { class: 'legend', role: 'group', 'aria-label': 'Methods in charts' }, ...buttons, all, none);
  }

  function legendButton(method, kind, listener) {
    return element(
      'button',
      {
        type: 'button',
        class: 'method',
        'aria-pressed': String(!choices.hidden.has(method)),
        title: 'Show or hide; with Shift: only this one',
        'data-keep': `legend:method:${method}`,
        on: { click: listener },
      },
      ogspr.methods.swatch(method, kind),
      method,
    );
  }

  function showOnly(shown, methods) {
    for (const method of methods) {
      if (shown.includes(method)) choices.hidden.delete(method);
      else choices.hidden.add(method);
    }
  }

  function quietButton(label, keep, listener) {
    return element('button', { type: 'button', class: 'quiet', 'data-keep': keep, on: { click: listener } }, label);
  }

  ogspr.controls = { filterField, filterOf, switchField, axisField, legend, quietButton };
})();
