// What the reader has chosen. It outlives views and updates of the data; only the theme outlives the page.
(() => {
  const THEME = 'ogspr-theme';

  const choices = {
    axis: 'agent_steps', // or 'frames'
    hidden: new Set(), // methods that charts leave out
    singleRuns: false,
    bands: true,
    published: true,
    paper: true,
    onlyOurSteps: false, // but see `suggest`
    logLosses: false,
    filters: new Map(), // by the name of the list
    sorts: new Map(), // by the name of the table: {column, descending}
    rows: new Map(), // by the name of the table: how many have been looked at
  };

  const chosen = new Set(); // names of choices that the reader has made

  function choose(name, value) {
    chosen.add(name);
    choices[name] = value;
  }

  /** What fits the data, as long as the reader has not chosen; says whether that changed anything. */
  function suggest(name, value) {
    if (chosen.has(name) || choices[name] === value) return false;
    choices[name] = value;
    return true;
  }

  // Storage is refused in private windows and in some browsers for files: then nothing is remembered.
  function rememberedTheme() {
    try {
      return localStorage.getItem(THEME);
    } catch {
      return null;
    }
  }

  function rememberTheme(theme) {
    try {
      localStorage.setItem(THEME, theme);
    } catch {
      // The choice holds for this page only.
    }
  }

  function applyTheme(theme) {
    if (theme === 'auto') document.documentElement.removeAttribute('data-theme');
    else document.documentElement.setAttribute('data-theme', theme);
  }

  /** Makes a button that goes round auto, light, dark. */
  function themeButton(button) {
    const themes = ['auto', 'light', 'dark'];
    let theme = themes.includes(rememberedTheme()) ? rememberedTheme() : 'auto';
    const show = () => {
      applyTheme(theme);
      button.textContent = `Theme: ${theme}`;
    };
    button.addEventListener('click', () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      rememberTheme(theme);
      show();
    });
    show();
  }

  const axisName = () => (choices.axis === 'frames' ? 'frames' : 'agent steps');

  ogspr.state = { choices, choose, suggest, themeButton, axisName };
})();
