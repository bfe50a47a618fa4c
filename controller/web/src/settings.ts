/** What this browser remembers of its user's taste: theme, language, length of lists. Nothing of a login is kept here. */

export type Setting = 'theme' | 'language' | 'perPage';

const nameOf = (name: Setting) => `virtkeep.${name}`;

export function setting(name: Setting): string | null {
  try {
    return localStorage.getItem(nameOf(name));
  } catch {
    return null; // storage is forbidden
  }
}

export function storeSetting(name: Setting, value: string): void {
  try {
    localStorage.setItem(nameOf(name), value);
  } catch {
    // it lasts until the page is closed
  }
}

const DARK = 'pf-v6-theme-dark';

export const isDark = () => document.documentElement.classList.contains(DARK);

export function setDark(dark: boolean): void {
  document.documentElement.classList.toggle(DARK, dark);
  storeSetting('theme', dark ? 'dark' : 'light');
}
