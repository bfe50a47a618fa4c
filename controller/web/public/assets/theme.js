// Before the first paint, so that a dark page does not flash: what was chosen here, else what the system prefers.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem('virtkeep.theme');
  } catch {
    // storage is forbidden: the system's preference counts
  }
  const dark = chosen === null ? matchMedia('(prefers-color-scheme: dark)').matches : chosen === 'dark';
  document.documentElement.classList.toggle('pf-v6-theme-dark', dark);
})();
