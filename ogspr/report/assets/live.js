// `ogspr watch`: the document is fetched again every few seconds; the page says how old it is.
(() => {
  const { say } = ogspr.dom;
  const EVERY = 3000; // milliseconds after the last answer
  const PATIENCE = 20000; // until a server that does not answer counts as gone

  function watch(source, update) {
    const badge = document.querySelector('.live');
    badge.hidden = false;
    let before = null; // the text of the last answer
    let since = '';
    let state = '';

    function show(next, text) {
      badge.dataset.state = next;
      badge.textContent = text;
      badge.title = text;
      if (next !== state && state) say(text);
      state = next;
    }

    async function ask() {
      const start = performance.now();
      try {
        const answer = await fetch(source, { cache: 'no-cache', signal: AbortSignal.timeout(PATIENCE) });
        const text = await answer.text();
        if (answer.ok) take(text);
        else show('trouble', complaint(text) ?? `The server answered with ${answer.status}`);
      } catch {
        show('gone', since ? `Server not reachable; as of ${since}` : 'The server does not respond');
      }
      // Large documents take their time; most of it should be the reader's.
      setTimeout(askIfSeen, Math.max(EVERY, 10 * (performance.now() - start)));
    }

    function take(text) {
      if (text !== before) update(JSON.parse(text));
      before = text;
      since = new Date().toLocaleTimeString('en-GB');
      show('fresh', `Up to date, ${since}`);
    }

    // A tab in the background costs nothing, and is up to date at once when it is looked at.
    function askIfSeen() {
      if (document.hidden) document.addEventListener('visibilitychange', askIfSeen, { once: true });
      else ask();
    }

    show('wait', 'Connecting');
    ask();
  }

  /** What a server says that runs but cannot read the runs. */
  function complaint(text) {
    try {
      return JSON.parse(text).error ?? null;
    } catch {
      return null;
    }
  }

  ogspr.live = { watch };
})();
