'use strict';

// The one global of the page: each file below adds its part to it.
const ogspr = {};

// Elements. Text of runs reaches the page only as text nodes and attribute values, never as markup.
(() => {
  const SVG = 'http://www.w3.org/2000/svg';

  function set(node, attributes) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === 'on') {
        for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
      } else if (name === 'vars') {
        // Through the object model: the content policy forbids style attributes.
        for (const [property, content] of Object.entries(value)) node.style.setProperty(property, content);
      } else {
        node.setAttribute(name, value === true ? '' : value);
      }
    }
  }

  function element(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    set(node, attributes);
    node.append(...children);
    return node;
  }

  function svg(name, attributes = {}, ...children) {
    const node = document.createElementNS(SVG, name);
    set(node, attributes);
    node.append(...children);
    return node;
  }

  /** For readers of the screen only. */
  const unseen = (text) => element('span', { class: 'unseen' }, text);

  /** Says a thing to screen readers without moving the focus. */
  function say(text) {
    document.querySelector('[role=status].unseen').textContent = text;
  }

  // Folder names may hold halves of characters, which encodeURIComponent refuses.
  const wellFormed = (text) => text.replace(/\p{Surrogate}/gu, '\uFFFD');

  /** A part of an address after the #. */
  const address = (text) => encodeURIComponent(wellFormed(text));

  ogspr.dom = { element, svg, unseen, say, address };
})();
