'use strict';
(() => {
  const root = document.documentElement, button = document.getElementById('theme');
  const themes = ['system', 'light', 'dark'];
  // Storage may be refused to a page that was opened from a file.
  const kept = () => { try { return localStorage.getItem('theme'); } catch { return null; } };
  const show = theme => {
    if (theme === 'system') delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = 'Theme: ' + theme;
  };
  let theme = themes.includes(kept()) ? kept() : 'system';
  show(theme);
  button.hidden = false;
  button.addEventListener('click', () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem('theme', theme); } catch { /* for this visit alone */ }
    show(theme);
  });
  for (const figure of document.querySelectorAll('figure')) {
    const all = [...figure.querySelectorAll('[data-text]')].filter(mark => !mark.closest('.legend'));
    // Of two drawings for different rooms one is shown.
    const shown = () => all.filter(mark => mark.getClientRects().length);
    const caption = figure.querySelector('figcaption');
    let at = null;
    const tell = next => {
      if (at) at.classList.remove('at');
      at = next;
      if (at) { at.classList.add('at'); caption.textContent = at.dataset.text; }
    };
    figure.addEventListener('keydown', event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const marks = shown();
      if (!step || !marks.length) return;
      event.preventDefault();
      const place = marks.indexOf(at);
      tell(marks[(place + step + marks.length + (place < 0 && step < 0 ? 1 : 0)) % marks.length]);
    });
    figure.addEventListener('blur', () => tell(null));
    all.forEach(mark => mark.addEventListener('pointerenter', () => tell(mark)));
  }
})();
