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
    const marks = [...figure.querySelectorAll('[data-told]')].filter(mark => !mark.closest('.legend'));
    const caption = figure.querySelector('figcaption');
    let at = -1;
    const tell = next => {
      if (marks[at]) marks[at].classList.remove('at');
      at = next;
      if (marks[at]) { marks[at].classList.add('at'); caption.textContent = marks[at].dataset.told; }
    };
    figure.addEventListener('keydown', event => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || !marks.length) return;
      event.preventDefault();
      tell((at + step + marks.length + (at < 0 && step < 0 ? 1 : 0)) % marks.length);
    });
    figure.addEventListener('blur', () => tell(-1));
    marks.forEach((mark, i) => mark.addEventListener('pointerenter', () => tell(i)));
  }
})();
