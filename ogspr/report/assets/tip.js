// The one box that shows the values under the pointer, and the notes of table cells.
(() => {
  const MARGIN = 8; // to the edge of the window
  const GAP = 14; // to what it explains
  const box = () => document.querySelector('.tip');

  /** Beside a place of the window: on its right or left, else over or under it; always inside of the window. */
  function show(content, { x, top, bottom }) {
    const tip = box();
    tip.replaceChildren(...content);
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const [across, down] = [document.documentElement.clientWidth, document.documentElement.clientHeight];
    const right = x + GAP;
    const left = x - GAP - width;
    const middle = (top + bottom - height) / 2;
    if (right + width <= across - MARGIN) place(tip, right, within(middle, down - height));
    else if (left >= MARGIN) place(tip, left, within(middle, down - height));
    else place(tip, within(x - width / 2, across - width), within(outside(top, bottom, height), down - height));
  }

  const outside = (top, bottom, height) => (top - height - GAP >= MARGIN ? top - height - GAP : bottom + GAP);
  const within = (place, room) => Math.max(MARGIN, Math.min(place, room - MARGIN));

  function place(tip, left, top) {
    tip.style.setProperty('transform', `translate(${Math.round(left)}px, ${Math.round(top)}px)`);
  }

  function hide() {
    box().hidden = true;
  }

  ogspr.tip = { show, hide };
})();
